//! ModelScope: `ms://owner/name[@revision][/file]`.
//!
//! `GET /api/v1/models/{owner}/{name}/repo/files?Revision=…&Recursive=True` lists the files with lengths and SHA-256, and
//! `GET /api/v1/models/{owner}/{name}/repo?Revision=…&FilePath=…` is a file, as `HubApi.get_model_files` and `get_file_download_url` of
//! `modelscope/modelscope` request them; variables, the header and the cookie of the token, and the length at which lists end are the
//! ones of `config.py`, `_legacy_api.py` and `constants.py` of its package `modelscope_hub`.

use std::fmt;

use reqwest::header::{AUTHORIZATION, COOKIE, HeaderMap, HeaderValue};
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use url::Url;

use crate::credentials::{headers_for, is_private_way};
use crate::error::{Error, ErrorKind, Result, shown};
use crate::hub::HubPath;
use crate::json_fields::{Nested, ObjectFields, ReadObject, ShortText, read_whole};
use crate::names::{has_ending, is_plain};
use crate::options::RemoteOptions;
use crate::registry::{Blob, BlobDigest};
use crate::stated::StatedFile;

/// The variable of the token.
const TOKEN: &str = "MODELSCOPE_API_TOKEN";

/// Entries at which the server ends a list, and does not say so.
const LONGEST_LIST: usize = 3000;
/// Entries of another server's list.
const MOST_ENTRIES: usize = 1_000_000;

/// A model or a file on ModelScope.
pub(crate) struct ModelScopePath {
    pub(crate) endpoint: Url,
    path: HubPath,
    /// The URL of the model, to which names of files are appended.
    pub(crate) model: String,
}

impl ModelScopePath {
    /// Parses what follows `ms://`, for the server that variables name.
    pub(crate) fn parse(rest: &str, get: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        let path = HubPath::parse_as("ms", "master", rest)?;
        let mut parts = rest.splitn(3, '/');
        let (owner, name) = (parts.next(), parts.next());
        let model = format!(
            "ms://{}/{}",
            owner.unwrap_or_default(),
            name.unwrap_or_default()
        );
        let set = |name: &str| get(name).filter(|value| !value.trim().is_empty());
        // the second is the former name of the first
        let endpoint = set("MODELSCOPE_ENDPOINT").or_else(|| set("MODELSCOPE_DOMAIN"));
        let endpoint = endpoint.unwrap_or_else(|| "https://modelscope.cn".to_owned());
        let endpoint = endpoint.trim().trim_end_matches('/');
        let endpoint = match endpoint.contains("://") {
            true => format!("{endpoint}/"),
            false => format!("https://{endpoint}/"),
        };
        let endpoint = Url::parse(&endpoint).ok().filter(|url| {
            matches!(url.scheme(), "http" | "https")
                && url.username().is_empty()
                && url.password().is_none()
        });
        let what = "MODELSCOPE_ENDPOINT is no http or https URL without credentials";
        let endpoint = endpoint.ok_or_else(|| Error::new(ErrorKind::Invalid, what))?;
        Ok(Self {
            endpoint,
            path,
            model,
        })
    }

    /// The path below the model; empty for the model.
    pub(crate) fn file(&self) -> &str {
        &self.path.file
    }

    pub(crate) fn revision(&self) -> &str {
        &self.path.revision
    }

    /// The URL as it is shown.
    pub(crate) fn shown(&self) -> String {
        let (model, file) = (&self.model, &self.path.file);
        // a folder whose name has an ending stays one
        let end = match self.path.is_folder && has_ending(file) {
            true => "/",
            false => "",
        };
        match &**file {
            "" => model.clone(),
            file => format!("{model}/{file}{end}"),
        }
    }

    /// The headers for the server: given ones or a login of its host, else the token of the variable. The server knows a token by a header, and
    /// at its older addresses by a cookie.
    pub(crate) fn headers(
        &self,
        options: &RemoteOptions,
        variables: &dyn Fn(&str) -> Option<String>,
    ) -> Result<HeaderMap> {
        let mut headers = headers_for(&self.endpoint, options, variables)?;
        let token = variables(TOKEN).filter(|token| !token.trim().is_empty());
        let Some(token) = token.filter(|_| !headers.contains_key(AUTHORIZATION)) else {
            return Ok(headers);
        };
        // as tokens of other servers: not where others may read them
        if !is_private_way(&self.endpoint) {
            return Ok(headers);
        }
        let token = token.trim();
        // others would end the cookie
        let is_word = |b: u8| b.is_ascii_alphanumeric() || b"-_.~+/=".contains(&b);
        if !token.bytes().all(is_word) {
            let what = format!("{TOKEN} holds characters that no token has");
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        for (name, text) in [
            (AUTHORIZATION, format!("Bearer {token}")),
            (COOKIE, format!("m_session_id={token}")),
        ] {
            let mut value = HeaderValue::from_str(&text).expect("words");
            // not shown where headers are logged
            value.set_sensitive(true);
            headers.entry(name).or_insert(value);
        }
        Ok(headers)
    }

    /// Where the list of all files is.
    pub(crate) fn list_url(&self) -> Result<Url> {
        let mut url = self.repository_url(&["files"])?;
        url.query_pairs_mut()
            .append_pair("Revision", &self.path.revision)
            .append_pair("Recursive", "True");
        Ok(url)
    }

    /// Where a file is.
    pub(crate) fn file_url(&self, name: &str) -> Result<Url> {
        let mut url = self.repository_url(&[])?;
        url.query_pairs_mut()
            .append_pair("Revision", &self.path.revision)
            .append_pair("FilePath", name);
        Ok(url)
    }

    fn repository_url(&self, behind: &[&str]) -> Result<Url> {
        let (owner, name) = (&*self.path.owner, &*self.path.name);
        let mut url = self.endpoint.clone();
        let no_path = |()| Error::new(ErrorKind::Invalid, "MODELSCOPE_ENDPOINT has no path");
        url.path_segments_mut()
            .map_err(no_path)?
            .pop_if_empty()
            .extend(["api", "v1", "models", owner, name, "repo"])
            .extend(behind);
        Ok(url)
    }
}

/// The meaning of a list that was refused.
pub(crate) fn list_error(error: Error) -> Error {
    let text = match error.kind() {
        ErrorKind::NotFound => format!(
            "ModelScope has no such public model or revision (404): check its name; if it is private, set {TOKEN}"
        ),
        ErrorKind::Denied => format!(
            "ModelScope denies access: if the model is private, set {TOKEN} to a token of an account that may read it"
        ),
        _ => return error,
    };
    Error::new(error.kind(), text)
}

/// The files of a list, of which `room` bytes may be kept, and whether there are no others.
pub(crate) fn parse_list(text: &[u8], room: u64) -> Result<(Vec<StatedFile>, bool)> {
    let wrong = |what: &str| Error::refused(format!("ModelScope's list of files {what}"));
    let mut answer = ListAnswer {
        room,
        count: 0,
        fault: None,
        message: String::new(),
        files: None,
    };
    let parsed = read_whole(text, &mut answer);
    if let Some(fault) = answer.fault {
        return Err(wrong(fault));
    }
    parsed.map_err(|_| wrong("is not JSON, or no list"))?;
    match (answer.files, &*answer.message) {
        (Some(files), _) => Ok((files, answer.count != LONGEST_LIST)),
        (None, "") => Err(wrong("has no `Files`")),
        // some refusals have the status of a success
        (None, message) => {
            let text = format!("ModelScope lists no files: {}", shown(message));
            Err(Error::new(ErrorKind::NotFound, text))
        }
    }
}

struct ListAnswer {
    room: u64,
    /// Entries, also of folders.
    count: usize,
    fault: Option<&'static str>,
    message: String,
    files: Option<Vec<StatedFile>>,
}

impl ObjectFields for ListAnswer {
    fn field<'de, M: MapAccess<'de>>(&mut self, key: &str, map: &mut M) -> Result<(), M::Error> {
        match key {
            "Message" => self.message = map.next_value::<ShortText>()?.0,
            "Data" => map.next_value_seed(Nested(&mut ListData(self)))?,
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

/// The object around the files.
struct ListData<'a>(&'a mut ListAnswer);

impl ObjectFields for ListData<'_> {
    fn field<'de, M: MapAccess<'de>>(&mut self, key: &str, map: &mut M) -> Result<(), M::Error> {
        match key {
            "Files" => map.next_value_seed(ListEntries(self.0)),
            _ => map.next_value::<IgnoredAny>().map(drop),
        }
    }
}

/// The array of files and folders.
struct ListEntries<'a>(&'a mut ListAnswer);

impl<'de> DeserializeSeed<'de> for ListEntries<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for ListEntries<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of files")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<(), S::Error> {
        let fail = |fault, answer: &mut ListAnswer| {
            answer.fault = Some(fault);
            serde::de::Error::custom(fault)
        };
        let (mut files, mut count) = (Vec::new(), 0);
        while let Some(entry) = seq.next_element::<ListEntry>()? {
            count += 1;
            if count > MOST_ENTRIES {
                return Err(fail("has more than a million entries", self.0));
            }
            // names that lead elsewhere are left out
            if entry.kind == "tree" || !entry.path.split('/').all(is_plain) {
                continue;
            }
            // twice, as a growing list has unused places
            let cost = 2 * size_of::<StatedFile>() + entry.path.len() + entry.sha256.len();
            match self.0.room.checked_sub(cost as u64) {
                Some(left) => self.0.room = left,
                None => return Err(fail("is longer than the memory for it", self.0)),
            }
            files.push(entry.into_file());
        }
        self.0.count = count;
        self.0.files = Some(files);
        Ok(())
    }
}

/// One entry of the array: empty texts for the fields that it does not have.
#[derive(Default)]
struct ListEntry {
    path: String,
    kind: String,
    sha256: String,
    size: Option<u64>,
}

impl ListEntry {
    fn into_file(self) -> StatedFile {
        let digest = format!("sha256:{}", self.sha256.to_ascii_lowercase());
        let digest = BlobDigest::parse(&digest);
        let blob = digest.zip(self.size);
        StatedFile {
            name: self.path,
            blob: blob.map(|(digest, len)| Blob { digest, len }),
            member: None,
        }
    }
}

impl ObjectFields for ListEntry {
    fn field<'de, M: MapAccess<'de>>(&mut self, key: &str, map: &mut M) -> Result<(), M::Error> {
        match key {
            "Path" => self.path = map.next_value::<ShortText>()?.0,
            "Type" => self.kind = map.next_value::<ShortText>()?.0,
            "Sha256" => self.sha256 = map.next_value::<ShortText>()?.0,
            "Size" => self.size = map.next_value()?,
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for ListEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut entry = Self::default();
        ReadObject(&mut entry).deserialize(deserializer)?;
        Ok(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855";

    #[test]
    fn places_have_a_server_a_revision_and_a_file() {
        let none = |_: &str| None;
        let parse = |rest: &str| ModelScopePath::parse(rest, &none).unwrap();
        let model = parse("Qwen/Qwen3-0.6B/");
        assert_eq!(model.shown(), "ms://Qwen/Qwen3-0.6B");
        assert_eq!(
            model.list_url().unwrap().as_str(),
            "https://modelscope.cn/api/v1/models/Qwen/Qwen3-0.6B/repo/files?Revision=master&Recursive=True"
        );
        let file = parse("a/b@v1.0/sub/c d&e.gguf");
        assert_eq!(file.shown(), "ms://a/b@v1.0/sub/c d&e.gguf");
        assert_eq!(
            file.file_url(file.file()).unwrap().as_str(),
            "https://modelscope.cn/api/v1/models/a/b/repo?Revision=v1.0&FilePath=sub%2Fc+d%26e.gguf"
        );
        assert_eq!(parse("a/b/v1.0/").shown(), "ms://a/b/v1.0/");
        for wrong in ["", "a", "a/", "a/b@", "../b", "a/b/../c", "a/b@.."] {
            let error = ModelScopePath::parse(wrong, &none).err().unwrap();
            assert!(error.to_string().contains("ms://owner/name"), "{error}");
        }
        for (endpoint, host) in [
            ("modelscope.ai", Some("modelscope.ai")),
            ("http://127.0.0.1:1/", Some("127.0.0.1")),
            ("ftp://h", None),
            ("https://name:word@h", None),
        ] {
            let get = |name: &str| (name == "MODELSCOPE_ENDPOINT").then(|| endpoint.to_owned());
            let parsed = ModelScopePath::parse("a/b", &get);
            let found = parsed.ok().map(|path| path.endpoint);
            assert_eq!(found.as_ref().and_then(Url::host_str), host, "{endpoint}");
        }
    }

    #[test]
    fn tokens_are_a_header_and_a_cookie_and_not_sent_in_the_clear() {
        let headers = |endpoint: &str, token: &str| {
            let get = |name: &str| match name {
                "MODELSCOPE_ENDPOINT" => Some(endpoint.to_owned()),
                TOKEN => Some(token.to_owned()),
                _ => None,
            };
            let path = ModelScopePath::parse("a/b", &get)?;
            path.headers(&RemoteOptions::default(), &get)
        };
        let sent = headers("https://h", " ms-1 \n").unwrap();
        assert_eq!(sent[AUTHORIZATION], "Bearer ms-1");
        assert_eq!(sent[COOKIE], "m_session_id=ms-1");
        assert!(sent[COOKIE].is_sensitive());
        assert!(headers("http://h", "ms-1").unwrap().is_empty());
        assert!(headers("https://h", "a; b=c").is_err());
    }

    #[test]
    fn lists_state_files_within_their_room() {
        let text = format!(
            r#"{{"Code":200,"Data":{{"Files":[{{"Path":"a.gguf","Name":"a.gguf","Type":"blob","Size":0,"Sha256":"{DIGEST}","Extra":{{"Path":1}}}},{{"Path":"sub","Type":"tree"}},{{"Path":"sub/../b"}},{{"Path":"sub/c.json","Size":3,"Sha256":""}}]}},"Message":"","Success":true}}"#
        );
        let (files, is_complete) = parse_list(text.as_bytes(), 10_000).unwrap();
        let found: Vec<_> = files
            .iter()
            .map(|file| (&*file.name, file.blob.as_ref().map(|blob| blob.len)))
            .collect();
        assert_eq!(found, [("a.gguf", Some(0)), ("sub/c.json", None)]);
        assert!(is_complete);
        let error = parse_list(text.as_bytes(), 100).unwrap_err();
        assert!(error.to_string().contains("memory"), "{error}");
        let entries = vec![r#"{"Path":"x","Type":"tree"}"#; LONGEST_LIST].join(",");
        let ended = format!(r#"{{"Data":{{"Files":[{entries}]}}}}"#);
        assert!(!parse_list(ended.as_bytes(), 0).unwrap().1);
        let refused = br#"{"Code":1,"Data":null,"Message":"no \u001b such","Success":false}"#;
        let error = parse_list(refused, 1000).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(!error.to_string().contains('\u{1b}'), "{error}");
        for wrong in [
            "",
            "[]",
            "{}",
            r#"{"Data":[]}"#,
            r#"{"Data":{"Files":{}}}"#,
            r#"{"Data":{"Files":[{"Size":-1}]}}"#,
        ] {
            assert!(parse_list(wrong.as_bytes(), 1000).is_err(), "{wrong}");
        }
    }
}
