//! Ollama's registry and its store on this machine: `ollama://[[host/]owner/]model[:tag][/file]`.
//!
//! Names and the layout of the store are the ones of `types/model/name.go` and `manifest/paths.go` of `ollama/ollama`:
//! `OLLAMA_MODELS`, or `~/.ollama/models`, has `manifests/HOST/OWNER/MODEL/TAG` and `blobs/sha256-…`. The registry speaks the protocol of
//! OCI's.

use std::path::PathBuf;

use super::RegistryPath;
use crate::error::{Error, ErrorKind, Result};

/// The registry and the owner of names that have none.
const HOST: &str = "registry.ollama.ai";
const OWNER: &str = "library";

/// The file that a model is opened as: its weights, as Ollama opens it.
const MODEL: &str = "model.gguf";

/// A place that an `ollama://` URL names.
pub(crate) struct OllamaPath {
    pub(crate) path: RegistryPath,
    /// The manifest in a store, below `manifests`.
    manifest: [String; 4],
}

impl OllamaPath {
    /// Parses what follows `ollama://`.
    pub(crate) fn parse(rest: &str) -> Result<Self> {
        let invalid = || {
            let what = "this names no model: write ollama://model:tag, ollama://owner/model:tag, or one of them with /file";
            Error::new(ErrorKind::Invalid, what)
        };
        // a port is part of a host, which has an owner and a model behind it
        let is_host = |first: &str| first.contains(['.', ':', '[']) || first == "localhost";
        let (host, rest) = match rest.split_once('/') {
            Some((first, behind))
                if is_host(first)
                    && behind
                        .split(':')
                        .next()
                        .is_some_and(|name| name.contains('/')) =>
            {
                (first, behind)
            }
            _ => (HOST, rest),
        };
        // a repository has no colon, so that the first one is in front of the tag
        let (name, behind) = rest.split_at(rest.find([':', '@']).unwrap_or(rest.len()));
        let name = name.trim_end_matches('/');
        let (owner, model) = name.split_once('/').unwrap_or((OWNER, name));
        if owner.is_empty() || model.is_empty() || model.contains('/') {
            return Err(invalid());
        }
        let behind = if behind.is_empty() { ":latest" } else { behind };
        let mut path = RegistryPath::parse(&format!("{host}/{owner}/{model}{behind}"))
            .map_err(|_| invalid())?;
        path.model = path.model.replacen("oci://", "ollama://", 1);
        if path.file.is_empty() {
            path.file = MODEL.to_owned();
        }
        path.is_folder = false;
        let manifest = [host, owner, model, &path.reference].map(str::to_owned);
        Ok(Self { path, manifest })
    }

    /// The manifest in the store on this machine, if it is there; a store has the weights alone as a model.
    pub(crate) fn stored(&self, variables: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
        if self.path.file != MODEL {
            return None;
        }
        let set = |name: &str| variables(name).filter(|value| !value.trim().is_empty());
        let own = || {
            Some(PathBuf::from(set("HOME").or_else(|| set("USERPROFILE"))?).join(".ollama/models"))
        };
        let store = set("OLLAMA_MODELS").map(PathBuf::from).or_else(own)?;
        let mut path = store.join("manifests");
        path.extend(&self.manifest);
        path.is_file().then_some(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_a_host_an_owner_and_a_tag() {
        for (rest, manifest, shown) in [
            (
                "qwen3",
                "https://registry.ollama.ai/v2/library/qwen3/manifests/latest",
                "ollama://registry.ollama.ai/library/qwen3:latest/model.gguf",
            ),
            (
                "me/qwen3:8b",
                "https://registry.ollama.ai/v2/me/qwen3/manifests/8b",
                "ollama://registry.ollama.ai/me/qwen3:8b/model.gguf",
            ),
            (
                "localhost:1/me/m:t/mmproj.gguf",
                "http://localhost:1/v2/me/m/manifests/t",
                "ollama://localhost:1/me/m:t/mmproj.gguf",
            ),
            (
                "llama3.2/",
                "https://registry.ollama.ai/v2/library/llama3.2/manifests/latest",
                "ollama://registry.ollama.ai/library/llama3.2:latest/model.gguf",
            ),
        ] {
            let found = OllamaPath::parse(rest).unwrap().path;
            assert_eq!(found.manifest_url(&found.reference).as_str(), manifest);
            assert_eq!(found.shown(), shown);
        }
        for wrong in [
            "",
            "/",
            "a/b/c/d:t",
            "../m",
            "m:",
            "m:../x",
            "a//b",
            "../a/b:t",
        ] {
            assert!(OllamaPath::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_store_has_the_manifest_of_a_model() {
        let folder = tempfile::tempdir().unwrap();
        let tag = folder
            .path()
            .join("manifests/registry.ollama.ai/library/qwen3/8b");
        std::fs::create_dir_all(tag.parent().unwrap()).unwrap();
        std::fs::write(&tag, "{}").unwrap();
        let get = |name: &str| {
            (name == "OLLAMA_MODELS").then(|| folder.path().to_str().unwrap().to_owned())
        };
        let stored = |rest: &str| OllamaPath::parse(rest).unwrap().stored(&get);
        assert_eq!(stored("qwen3:8b"), Some(tag));
        assert_eq!(
            (stored("qwen3"), stored("qwen3:8b/mmproj.gguf")),
            (None, None)
        );
    }
}
