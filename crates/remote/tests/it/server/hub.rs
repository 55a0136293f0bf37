//! A subset of the hub: listings of repositories, and files by redirects to signed URLs.

use sha2::{Digest as _, Sha256};

use super::{AnsweredRequest, Reply, ServerState};

pub const COMMIT: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

/// The id of the git object of `{}`.
const EMPTY_OBJECT: &str = "9e26dfeeb6e641a33dae4961196235bdb965b21b";

/// The fields of a file's digest: of a small text the git object, of other files in LFS the SHA-256.
fn digest(bytes: &[u8]) -> String {
    let sha256: String = Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    match bytes {
        b"{}" => format!(",\"blobId\":\"{EMPTY_OBJECT}\",\"size\":2"),
        _ => format!(
            ",\"blobId\":\"{}\",\"lfs\":{{\"sha256\":\"{sha256}\"}}",
            "0".repeat(40)
        ),
    }
}

impl ServerState {
    pub(super) fn listing(&self, owner: &str, name: &str, revision: &str, query: &str) -> Reply {
        let prefix = format!("/{owner}/{name}/");
        let files = self.files.lock().unwrap();
        let mut names: Vec<_> = files
            .iter()
            .filter_map(|(path, bytes)| Some((path.strip_prefix(&prefix)?, bytes)))
            .map(|(name, bytes)| {
                let digest = if query.contains("blobs=true") {
                    digest(bytes)
                } else {
                    String::new()
                };
                format!("{{\"rfilename\":\"{name}\"{digest}}}")
            })
            .collect();
        names.sort();
        if names.is_empty() {
            return Reply::new("401 Unauthorized", &["X-Error-Code: RepoNotFound"], "{}");
        }
        if !["main", COMMIT].contains(&revision) {
            return Reply::new("404 Not Found", &["X-Error-Code: RevisionNotFound"], "{}");
        }
        let text = format!(
            "{{\"sha\":\"{COMMIT}\",\"siblings\":[{}]}}",
            names.join(",")
        );
        Reply::new("200 OK", &["Content-Type: application/json"], text)
    }

    /// A file of the hub: JSON at once, others by a redirect to a signed URL.
    pub(super) fn resolve(&self, path: &str, revision: &str, request: &AnsweredRequest) -> Reply {
        let token = request.headers.get("authorization").map(String::as_str);
        if path.contains("/gated/") && token != Some("Bearer secret") {
            return Reply::new("401 Unauthorized", &["X-Error-Code: GatedRepo"], "{}");
        }
        if self.get(path).is_none() {
            return Reply::new("404 Not Found", &["X-Error-Code: EntryNotFound"], "");
        }
        let commit = if path.contains("/moving/") {
            format!("{:040}", self.times("moving"))
        } else {
            COMMIT.to_owned()
        };
        if !["main", COMMIT].contains(&revision) && !path.contains("/moving/") {
            return Reply::new("404 Not Found", &["X-Error-Code: RevisionNotFound"], "");
        }
        let commit = format!("X-Repo-Commit: {commit}");
        if path.ends_with(".json") {
            let mut reply = self.file(path, request);
            reply.headers.push(commit);
            return reply;
        }
        let n = self.times("signed");
        let location = format!(
            "Location: http://localhost:{}/cdn{path}?Signature={n}",
            self.address.port()
        );
        Reply::new("302 Found", &[&location, &commit], "")
    }
}
