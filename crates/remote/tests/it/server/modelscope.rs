//! A subset of ModelScope: lists of files with digests, texts as a whole whatever range is requested, and other files by redirects to
//! signed URLs.

use super::{AnsweredRequest, Reply, ServerState, chunked, decoded, digest_of};

/// The headers that know an account, which the models of the owner `private` require.
const TOKEN: (&str, &str) = ("Bearer ms-token", "m_session_id=ms-token");

impl ServerState {
    /// Answers a request for `/owner/name`; `behind` is the rest of the path behind `repo`.
    pub(super) fn modelscope(
        &self,
        model: &str,
        behind: &[&str],
        request: &AnsweredRequest,
    ) -> Reply {
        let header = |name: &str| request.headers.get(name).map_or("", String::as_str);
        if model.starts_with("/private/") && (header("authorization"), header("cookie")) != TOKEN {
            return Reply::new("403 Forbidden", &[], "{}");
        }
        let parameter = |name: &str| {
            let mut pairs = request.query.split('&');
            let value = pairs.find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
            decoded(value.unwrap_or_default())
        };
        let is_known = ["master", "v1"].contains(&&*parameter("Revision"));
        match behind {
            ["files"] if is_known && parameter("Recursive") == "True" => {
                self.modelscope_list(model)
            }
            [] if is_known => self.modelscope_file(&format!("{model}/{}", parameter("FilePath"))),
            _ => Reply::new("404 Not Found", &[], r#"{"Code":10010205001}"#),
        }
    }

    /// Files of the folder `new` have no digest, and the ones of `hidden` are missing, as in a list that ends before the last one.
    fn modelscope_list(&self, model: &str) -> Reply {
        let files = self.files.lock().unwrap();
        let (mut entries, mut is_cut) = (Vec::new(), false);
        for (path, bytes) in files.iter() {
            let Some(name) = path.strip_prefix(&format!("{model}/")) else {
                continue;
            };
            if name.starts_with("hidden/") {
                is_cut = true;
                continue;
            }
            // a file that was replaced since has its former digest
            let bytes = files.get(&format!("/former{path}")).unwrap_or(bytes);
            let digest = match name.starts_with("new/") {
                true => String::new(),
                false => digest_of(bytes).replace("sha256:", ""),
            };
            let size = bytes.len();
            entries.push(format!(
                r#"{{"Path":"{name}","Type":"blob","Size":{size},"Sha256":"{digest}"}}"#
            ));
        }
        if is_cut {
            entries.resize(3000, r#"{"Path":"folder","Type":"tree"}"#.to_owned());
        }
        if entries.is_empty() {
            let text =
                r#"{"Code":10010205001,"Data":null,"Message":"no such model","Success":false}"#;
            return Reply::new("200 OK", &[], text);
        }
        let text = format!(
            r#"{{"Code":200,"Data":{{"Files":[{}]}},"Message":"success","Success":true}}"#,
            entries.join(",")
        );
        Reply::new("200 OK", &["Content-Type: application/json"], text)
    }

    fn modelscope_file(&self, path: &str) -> Reply {
        let Some(bytes) = self.get(path) else {
            return Reply::new("404 Not Found", &[], "");
        };
        if path.ends_with(".json") {
            let body = [&chunked(&bytes), &b"0\r\n\r\n"[..]].concat();
            return Reply::new("200 OK", &["Transfer-Encoding: chunked"], body);
        }
        let n = self.times("signed");
        let location = format!(
            "Location: http://localhost:{}/cdn{path}?Signature={n}",
            self.address.port()
        );
        Reply::new("302 Found", &[&location], "")
    }
}
