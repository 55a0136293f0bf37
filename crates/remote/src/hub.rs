//! The Hugging Face hub: `hf://owner/name[@revision][/file]`, its tokens, and its cache on this machine.

pub(crate) mod blobs;
mod cache;
mod listing;

use std::path::PathBuf;

use anamnesis_os::whole_file;
use reqwest::header::HeaderValue;
use url::Url;

use crate::error::{Error, ErrorKind, Result};
use crate::names::{has_ending, is_plain};

pub(crate) use listing::{all_files_of_index, parse_listing};

/// The settings of the hub in the environment.
#[derive(Clone, Debug)]
pub(crate) struct HubSettings {
    pub(crate) endpoint: Url,
    pub(crate) token: Option<HeaderValue>,
    /// Where huggingface_hub keeps what it downloads.
    cache: Option<PathBuf>,
}

impl HubSettings {
    /// From variables that `get` returns: the environment's.
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
        let stored = || {
            let path = set("HF_TOKEN_PATH")
                .map(PathBuf::from)
                .or_else(|| Some(home.as_ref()?.join("token")))?;
            // tokens are short, and another file at this path is not read into memory
            String::from_utf8(whole_file::read(&path, 4096).ok()?).ok()
        };
        let token = set("HF_TOKEN")
            // the variable switches off the stored token alone
            .or_else(|| stored().filter(|_| !is_set(get, "HF_HUB_DISABLE_IMPLICIT_TOKEN")))
            .filter(|token| !token.trim().is_empty())
            .map(|token| {
                let mut value = HeaderValue::from_str(&format!("Bearer {}", token.trim()))
                    .map_err(|_| {
                        Error::new(
                            ErrorKind::Invalid,
                            "the token of the hub holds characters that no token has",
                        )
                    })?;
                // not shown where headers are logged
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
            cache,
        })
    }
}

/// Whether a revision names one commit for ever.
pub(crate) fn is_commit(revision: &str) -> bool {
    // a SHA-1 of git
    revision.len() == 40 && revision.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Whether a variable is set to what huggingface_hub reads as true.
fn is_set(get: &dyn Fn(&str) -> Option<String>, name: &str) -> bool {
    let value = get(name).map(|value| value.trim().to_ascii_uppercase());
    matches!(value.as_deref(), Some("1" | "ON" | "YES" | "TRUE"))
}

/// Whether no request may be sent to the hub.
pub(crate) fn is_offline(get: &dyn Fn(&str) -> Option<String>) -> bool {
    is_set(get, "HF_HUB_OFFLINE")
}

/// A place on the hub, or on another one with repositories of the same names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HubPath {
    pub(crate) owner: String,
    pub(crate) name: String,
    pub(crate) revision: String,
    /// Empty for the repository.
    pub(crate) file: String,
    /// Whether a slash at the end says that it is a folder.
    pub(crate) is_folder: bool,
}

impl HubPath {
    /// Parses what follows `hf://`.
    pub(crate) fn parse(rest: &str) -> Result<Self> {
        Self::parse_as("hf", "main", rest)
    }

    /// Parses what follows the scheme; `branch` is the default one.
    pub(crate) fn parse_as(scheme: &str, branch: &str, rest: &str) -> Result<Self> {
        let invalid = |what: &str| {
            let text = format!(
                "{what}: write {scheme}://owner/name, {scheme}://owner/name@revision, or {scheme}://owner/name/file"
            );
            Error::new(ErrorKind::Invalid, text)
        };
        let mut parts = rest.splitn(3, '/');
        let owner = parts.next().unwrap_or_default();
        let repository = parts.next().unwrap_or_default();
        let file = parts.next().unwrap_or_default().trim_end_matches('/');
        let (name, revision) = repository.split_once('@').unwrap_or((repository, branch));
        let is_name = |text: &str| {
            !text.is_empty()
                // `..` would lead out of the repository
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
        if !file.is_empty() && !file.split('/').all(is_plain) {
            return Err(invalid("this names no file"));
        }
        Ok(Self {
            owner: owner.to_owned(),
            name: name.to_owned(),
            revision: revision.to_owned(),
            file: file.to_owned(),
            is_folder: rest.ends_with('/'),
        })
    }

    /// Whether the last part names a file and no folder.
    pub(crate) fn is_file(&self) -> bool {
        !self.is_folder && has_ending(&self.file)
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
}

fn join(endpoint: &Url, parts: &[&str]) -> Result<Url> {
    let mut url = endpoint.clone();
    url.path_segments_mut()
        .map_err(|()| Error::new(ErrorKind::Invalid, "HF_ENDPOINT is no http or https URL"))?
        .pop_if_empty()
        .extend(parts);
    Ok(url)
}

#[cfg(test)]
mod tests;
