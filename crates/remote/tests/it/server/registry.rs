//! A registry: manifests and blobs by digest, tokens, blobs at another host, and answers that are wrong on purpose.

use sha2::{Digest as _, Sha256};

use super::{AnsweredRequest, Reply, ServerState, TestServer};

/// A layer of a model: its media type, the path that it states, and its bytes.
pub type TestLayer<'a> = (&'a str, Option<&'a str>, &'a [u8]);

/// The token of repositories below `private/`.
const TOKEN: &str = "Bearer registry-token";

pub fn digest_of(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// An uncompressed archive of these files, as GNU tar and POSIX have it.
pub fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, bytes) in files {
        // a longer name stands in an extended header
        let short = name.get(..name.len().min(99)).unwrap();
        if short != *name {
            let record = format!(" path={name}\n");
            let len = (1..).find(|len: &usize| len.to_string().len() + record.len() == *len);
            let text = format!("{}{record}", len.unwrap());
            member(&mut out, "long", b'x', text.as_bytes());
        }
        member(&mut out, short, b'0', bytes);
    }
    out.resize(out.len() + 1024, 0);
    out
}

fn member(out: &mut Vec<u8>, name: &str, kind: u8, bytes: &[u8]) {
    let mut header = [0; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    let size = format!("{:011o}\0", bytes.len());
    header[124..136].copy_from_slice(size.as_bytes());
    header[148..156].fill(b' ');
    header[156] = kind;
    header[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    out.extend(header);
    out.extend(bytes);
    out.resize(out.len().next_multiple_of(512), 0);
}

impl TestServer {
    /// Serves a model under a tag, and returns the digest of its manifest.
    pub fn put_model(&self, repository: &str, tag: &str, layers: &[TestLayer<'_>]) -> String {
        let listed = layers.iter().map(|(media_type, path, bytes)| {
            let digest = digest_of(bytes);
            self.put(&format!("/blobs/{digest}"), *bytes);
            let size = bytes.len();
            let path = path.map_or(String::new(), |path| {
                format!(r#","annotations":{{"org.cncf.model.filepath":"{path}"}}"#)
            });
            format!(r#"{{"mediaType":"{media_type}","digest":"{digest}","size":{size}{path}}}"#)
        });
        let listed: Vec<String> = listed.collect();
        let text = format!(r#"{{"schemaVersion":2,"layers":[{}]}}"#, listed.join(","));
        self.put_manifest(repository, tag, &text)
    }

    /// Serves a manifest or an index under a tag and its digest.
    pub fn put_manifest(&self, repository: &str, tag: &str, text: &str) -> String {
        let digest = digest_of(text.as_bytes());
        for reference in [tag, &digest] {
            self.put(&format!("/manifests/{repository}/{reference}"), text);
        }
        digest
    }

    /// The address of a model in this registry.
    pub fn oci(&self, model: &str) -> String {
        format!("oci://{}/{model}", self.address)
    }
}

impl ServerState {
    pub(super) fn registry(&self, path: &[&str], request: &AnsweredRequest) -> Reply {
        let [repository @ .., kind, reference] = path else {
            return Reply::new("404 Not Found", &[], "");
        };
        let repository = repository.join("/");
        let token = request.headers.get("authorization").map(String::as_str);
        if repository.starts_with("private/") && token != Some(TOKEN) {
            let challenge = format!(
                "WWW-Authenticate: Bearer realm=\"http://{}/token\",service=\"test\",scope=\"repository:all:push\"",
                self.address
            );
            return Reply::new("401 Unauthorized", &[&challenge], "{}");
        }
        match *kind {
            "manifests" => self.file(&format!("/manifests/{repository}/{reference}"), request),
            _ if repository.starts_with("moved/") => {
                let to = format!(
                    "Location: http://localhost:{}/blobs/{reference}?Signature=1",
                    self.address.port()
                );
                Reply::new("307 Temporary Redirect", &[&to], "")
            }
            _ => self.file(&format!("/blobs/{reference}"), request),
        }
    }

    /// A token for the repository of the scope, and nothing else.
    pub(super) fn token(&self, request: &AnsweredRequest) -> Reply {
        let is_narrow = request.query.contains("scope=repository%3Aprivate%2F")
            && request.query.ends_with("%3Apull");
        match is_narrow {
            true => Reply::new(
                "200 OK",
                &[],
                r#"{"token":"registry-token","expires_in":60}"#,
            ),
            false => Reply::new("403 Forbidden", &[], "{}"),
        }
    }
}
