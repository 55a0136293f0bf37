//! The Hugging Face hub: `hf://owner/name[@revision][/file]`, its tokens, and its cache on this machine.

use std::path::{Component, Path, PathBuf};

use reqwest::header::HeaderValue;
use serde_json::Value;
use url::Url;

use crate::error::{Error, ErrorKind, Result};

/// What the environment says about the hub.
#[derive(Clone, Debug)]
pub(crate) struct HubSettings {
    pub(crate) endpoint: Url,
    pub(crate) token: Option<HeaderValue>,
    pub(crate) offline: bool,
    /// Where huggingface_hub keeps what it downloads.
    cache: Option<PathBuf>,
}

impl HubSettings {
    /// From variables that `get` returns: those of the environment.
    pub(crate) fn from_variables(get: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        let set = |name: &str| get(name).filter(|value| !value.trim().is_empty());
        let endpoint = set("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_owned());
        let endpoint = Url::parse(&format!("{}/", endpoint.trim_end_matches('/')))
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https"))
            .ok_or_else(|| Error::new(ErrorKind::Invalid, "HF_ENDPOINT is no http or https URL"))?;
        let home = set("HF_HOME").map(PathBuf::from).or_else(|| {
            let cache = set("XDG_CACHE_HOME").map(PathBuf::from);
            let user = || {
                set("HOME")
                    .or_else(|| set("USERPROFILE"))
                    .map(PathBuf::from)
            };
            Some(
                cache
                    .or_else(|| Some(user()?.join(".cache")))?
                    .join("huggingface"),
            )
        });
        let flag = |name: &str| {
            set(name).is_some_and(|value| {
                matches!(&*value.to_ascii_uppercase(), "1" | "ON" | "YES" | "TRUE")
            })
        };
        let stored = || {
            let path = set("HF_TOKEN_PATH")
                .map(PathBuf::from)
                .or_else(|| Some(home.as_ref()?.join("token")))?;
            let is_short =
                std::fs::metadata(&path).is_ok_and(|meta| meta.is_file() && meta.len() <= 4096);
            is_short
                .then(|| std::fs::read_to_string(path).ok())
                .flatten()
        };
        let token = set("HF_TOKEN")
            .or_else(|| stored().filter(|_| !flag("HF_HUB_DISABLE_IMPLICIT_TOKEN")))
            .filter(|token| !token.trim().is_empty())
            .map(|token| {
                let mut value = HeaderValue::from_str(&format!("Bearer {}", token.trim()))
                    .map_err(|_| {
                        Error::new(
                            ErrorKind::Invalid,
                            "the token of the hub holds characters that no token has",
                        )
                    })?;
                value.set_sensitive(true);
                Ok(value)
            })
            .transpose()?;
        let cache = set("HF_HUB_CACHE")
            .map(PathBuf::from)
            .or_else(|| Some(home?.join("hub")));
        Ok(Self {
            endpoint,
            token,
            offline: flag("HF_HUB_OFFLINE"),
            cache,
        })
    }
}

/// A place on the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HubPath {
    owner: String,
    name: String,
    pub(crate) revision: String,
    /// Empty for the repository.
    pub(crate) file: String,
}

impl HubPath {
    /// Parses what follows `hf://`.
    pub(crate) fn parse(rest: &str) -> Result<Self> {
        let invalid = |what: &str| {
            let text = format!(
                "{what}: write hf://owner/name, hf://owner/name@revision, or hf://owner/name/file"
            );
            Error::new(ErrorKind::Invalid, text)
        };
        let mut parts = rest.splitn(3, '/');
        let owner = parts.next().unwrap_or_default();
        let repository = parts.next().unwrap_or_default();
        let file = parts.next().unwrap_or_default().trim_end_matches('/');
        let (name, revision) = repository.split_once('@').unwrap_or((repository, "main"));
        let is_name = |text: &str| {
            !text.is_empty()
                && !text.starts_with('.')
                && text
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        };
        if matches!(owner, "datasets" | "spaces") {
            return Err(invalid("only repositories of models are opened"));
        }
        if !is_name(owner) || !is_name(name) {
            return Err(invalid("this names no repository"));
        }
        if revision.is_empty() || !revision.split('/').all(is_name) {
            return Err(invalid("this names no revision"));
        }
        let is_plain =
            |part: &str| !matches!(part, "" | "." | "..") && !part.contains(['\\', '\0']);
        if !file.is_empty() && !file.split('/').all(is_plain) {
            return Err(invalid("this names no file"));
        }
        Ok(Self {
            owner: owner.to_owned(),
            name: name.to_owned(),
            revision: revision.to_owned(),
            file: file.to_owned(),
        })
    }

    /// Whether the last part names a file and no folder.
    pub(crate) fn is_file(&self) -> bool {
        let last = self.file.rsplit('/').next().unwrap_or_default();
        last.contains('.')
    }

    /// Where the file is at this revision.
    pub(crate) fn resolve_url(&self, endpoint: &Url, revision: &str) -> Result<Url> {
        let mut parts = vec![&*self.owner, &self.name, "resolve", revision];
        parts.extend(self.file.split('/'));
        join(endpoint, &parts)
    }

    /// Where the commit and the names of the files are.
    pub(crate) fn listing_url(&self, endpoint: &Url) -> Result<Url> {
        let parts = [
            "api",
            "models",
            &self.owner,
            &self.name,
            "revision",
            &self.revision,
        ];
        join(endpoint, &parts)
    }

    /// Where huggingface_hub has put this file, or this repository if it is there as a whole.
    pub(crate) fn cached(&self, settings: &HubSettings) -> Option<PathBuf> {
        let folder = format!("models--{}--{}", self.owner, self.name);
        let repository = settings.cache.as_ref()?.join(folder);
        let is_commit =
            |text: &str| text.len() == 40 && text.bytes().all(|b| b.is_ascii_hexdigit());
        let commit = if is_commit(&self.revision) {
            self.revision.clone()
        } else {
            let path = repository.join("refs").join(&self.revision);
            let text = std::fs::read_to_string(path).ok()?;
            let text = text.trim();
            is_commit(text).then(|| text.to_owned())?
        };
        let place = repository.join("snapshots").join(commit).join(&self.file);
        if self.is_file() {
            return is_whole(&place).then_some(place);
        }
        is_whole_checkpoint(&place).then_some(place)
    }
}

/// Whether a file is there, and if it is an index, all files that it lists as well.
fn is_whole(path: &Path) -> bool {
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    if !name.ends_with(".index.json") {
        return path.is_file();
    }
    let Some(folder) = path.parent() else {
        return false;
    };
    let index = std::fs::read(path)
        .ok()
        .and_then(|text| serde_json::from_slice::<Value>(&text).ok());
    let files = index
        .as_ref()
        .and_then(|index| index.get("weight_map")?.as_object());
    files.is_some_and(|files| {
        files.values().all(|file| {
            let file = file.as_str().map(Path::new);
            file.is_some_and(|file| {
                let mut parts = file.components();
                let plain = matches!(
                    (parts.next(), parts.next()),
                    (Some(Component::Normal(_)), None)
                );
                plain && folder.join(file).is_file()
            })
        })
    })
}

/// Whether a folder of the cache holds a checkpoint with all its files. Single files are downloaded as well, so that a folder
/// may hold a part of it.
fn is_whole_checkpoint(folder: &Path) -> bool {
    let indexes = [
        "model.safetensors.index.json",
        "pytorch_model.bin.index.json",
    ];
    if let Some(index) = indexes
        .iter()
        .map(|name| folder.join(name))
        .find(|path| path.exists())
    {
        return is_whole(&index);
    }
    ["model.safetensors", "pytorch_model.bin"]
        .iter()
        .any(|name| folder.join(name).is_file())
}

fn join(endpoint: &Url, parts: &[&str]) -> Result<Url> {
    let mut url = endpoint.clone();
    url.path_segments_mut()
        .map_err(|()| Error::new(ErrorKind::Invalid, "HF_ENDPOINT is no http or https URL"))?
        .pop_if_empty()
        .extend(parts);
    Ok(url)
}

/// The commit and the names of the files in one folder of a repository.
pub(crate) fn parse_listing(text: &[u8], folder: &str) -> Result<(String, Vec<String>)> {
    let wrong = |what: &str| Error::refused(format!("the hub's list of files {what}"));
    let listing: Value = serde_json::from_slice(text).map_err(|_| wrong("is not JSON"))?;
    let commit = listing
        .get("sha")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if commit.is_empty() || commit.len() > 64 || !commit.bytes().all(|b| b.is_ascii_alphanumeric())
    {
        return Err(wrong("names no commit"));
    }
    let files = listing
        .get("siblings")
        .and_then(Value::as_array)
        .ok_or_else(|| wrong("has no `siblings`"))?;
    if files.len() > 1_000_000 {
        return Err(wrong("has more than a million files"));
    }
    let prefix = if folder.is_empty() {
        String::new()
    } else {
        format!("{folder}/")
    };
    let names = files.iter().filter_map(|file| {
        let name = file.get("rfilename")?.as_str()?.strip_prefix(&prefix)?;
        // those of other folders are left out
        let plain = !matches!(name, "" | "." | "..") && !name.contains(['/', '\\', '\0']);
        plain.then(|| name.to_owned())
    });
    Ok((commit.to_owned(), names.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &str)]) -> HubSettings {
        let get = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        HubSettings::from_variables(&get).unwrap()
    }

    #[test]
    fn paths() {
        let parsed = HubPath::parse("org/model@refs/x/sub/a b.gguf");
        // a revision with a slash cannot be told from a file
        assert_eq!(parsed.unwrap().file, "x/sub/a b.gguf");
        let file = HubPath::parse("org/model@v1.0/sub/a b.gguf").unwrap();
        assert_eq!(
            (&*file.revision, &*file.file, file.is_file()),
            ("v1.0", "sub/a b.gguf", true)
        );
        let endpoint = settings(&[]).endpoint;
        assert_eq!(
            file.resolve_url(&endpoint, "abc").unwrap().as_str(),
            "https://huggingface.co/org/model/resolve/abc/sub/a%20b.gguf"
        );
        let repository = HubPath::parse("org/model").unwrap();
        assert_eq!(
            (&*repository.revision, repository.is_file()),
            ("main", false)
        );
        assert_eq!(
            repository.listing_url(&endpoint).unwrap().as_str(),
            "https://huggingface.co/api/models/org/model/revision/main"
        );
        for wrong in [
            "",
            "org",
            "org/",
            "/model",
            "../model",
            "org/..",
            "org/m@",
            "org/m/../x",
            "org/m/a//b",
            "datasets/o/n",
            "o?x/n",
            "o/n@..",
            "o/n/a\\b",
        ] {
            assert!(HubPath::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_environment_decides() {
        let own = settings(&[
            ("HF_ENDPOINT", "http://127.0.0.1:9/hub/"),
            ("HF_TOKEN", " t \n"),
            ("HF_HUB_OFFLINE", "1"),
            ("HF_HOME", "/nowhere"),
        ]);
        assert_eq!(own.endpoint.as_str(), "http://127.0.0.1:9/hub/");
        assert_eq!(own.token.unwrap(), "Bearer t");
        assert!(own.offline);
        assert_eq!(own.cache.unwrap(), Path::new("/nowhere/hub"));
        let none = settings(&[
            ("HF_TOKEN", ""),
            ("HF_HOME", "/nowhere"),
            ("HF_HUB_OFFLINE", "0"),
        ]);
        assert!(none.token.is_none() && !none.offline);
        assert!(HubSettings::from_variables(&|_| Some("ftp://h".to_owned())).is_err());
    }

    #[test]
    fn listings_name_the_files_of_one_folder() {
        let text = br#"{"sha": "abc", "siblings": [{"rfilename": "a.gguf"}, {"rfilename": "sub/b.gguf"}, {"rfilename": ".."}, {"rfilename": "sub/../../c"}, {}]}"#;
        assert_eq!(
            parse_listing(text, "").unwrap(),
            ("abc".to_owned(), vec!["a.gguf".to_owned()])
        );
        assert_eq!(parse_listing(text, "sub").unwrap().1, ["b.gguf"]);
        for wrong in [
            "",
            "{}",
            r#"{"sha": "a/b", "siblings": []}"#,
            r#"{"sha": "abc"}"#,
            "[]",
        ] {
            assert!(parse_listing(wrong.as_bytes(), "").is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_snapshot_counts_if_it_is_whole() {
        let home = std::env::temp_dir().join(format!("anamnesis-hub-{}", std::process::id()));
        let commit = "0123456789012345678901234567890123456789";
        let repository = home.join("hub/models--org--model");
        let snapshot = repository.join("snapshots").join(commit);
        std::fs::create_dir_all(&snapshot).unwrap();
        std::fs::create_dir_all(repository.join("refs")).unwrap();
        std::fs::write(repository.join("refs/main"), commit).unwrap();
        let settings = settings(&[("HF_HOME", home.to_str().unwrap())]);
        let cached = |path: &str| HubPath::parse(path).unwrap().cached(&settings);
        assert_eq!(cached("org/model"), None);
        std::fs::write(
            snapshot.join("model.safetensors.index.json"),
            r#"{"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}"#,
        )
        .unwrap();
        std::fs::write(snapshot.join("1.safetensors"), "").unwrap();
        assert_eq!(cached("org/model"), None);
        assert_eq!(cached("org/model/model.safetensors.index.json"), None);
        assert_eq!(
            cached("org/model/1.safetensors"),
            Some(snapshot.join("1.safetensors"))
        );
        assert_eq!(cached("org/model@other/1.safetensors"), None);
        std::fs::write(snapshot.join("2.safetensors"), "").unwrap();
        assert_eq!(cached("org/model"), Some(snapshot.join("")));
        assert_eq!(
            cached(&format!("org/model@{commit}")),
            Some(snapshot.join(""))
        );
        std::fs::remove_dir_all(home).unwrap();
    }
}
