//! The models of an Ollama store, of whose layout (`manifests/registry/owner/name/tag`, `blobs/sha256-…`) a caller may name a
//! manifest: a JSON text that lists the blobs of a model by their digests.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::limits::{Budget, Limits};
use crate::read::catalog::quote;
use crate::read::json::{JsonReader, Tree};

use super::file_system::NamedPath;
use super::regular::read_named;

/// The directory of the manifests in a store.
pub(crate) const MANIFESTS: &str = "manifests";
/// The directory of the blobs in a store.
pub(crate) const BLOBS: &str = "blobs";

/// The type of the layer that is the model; others are its template, licence, adapter and projector.
const MODEL: &str = "application/vnd.ollama.image.model";

/// The blob of the model whose manifest a path names; `None` for any other path.
///
/// By the path first, as this is called for every path that is opened.
pub(crate) fn blob_of(path: &Path) -> Result<Option<PathBuf>> {
    let Some(store) = store_of(path) else {
        return Ok(None);
    };
    if !store.join(BLOBS).is_dir() {
        return Ok(None);
    }
    let read = || {
        let limits = Limits {
            // a manifest has some lines
            memory: 4 << 20,
            ..Limits::default()
        };
        let budget = Budget::new(limits);
        let named = NamedPath::below(store, path);
        let (text, _charge) = read_named(named, &budget, "the manifest")?;
        blob_name(&text, &budget)
    };
    let name = read().map_err(|e: Error| e.in_file(path))?;
    Ok(Some(store.join(BLOBS).join(name)))
}

/// The store that a path is a manifest of.
fn store_of(path: &Path) -> Option<&Path> {
    let bytes = path.as_os_str().as_encoded_bytes();
    // nearly no path has the word in it, and this is a part of opening every small file
    let mut rests = (0..bytes.len()).filter(|&at| bytes[at] == MANIFESTS.as_bytes()[0]);
    let has_word = rests.any(|at| bytes[at..].starts_with(MANIFESTS.as_bytes()));
    if !has_word {
        return None;
    }
    let mut above = path.ancestors().skip(1);
    let manifests = above.find(|path| path.file_name().is_some_and(|name| name == MANIFESTS))?;
    manifests.parent()
}

/// Whether a directory is the one of the manifests of a store, or one in it.
pub(crate) fn is_of_manifests(directory: &Path) -> bool {
    // any manifest in it has the store's path
    let store = directory.join("manifest");
    store_of(&store).is_some_and(|store| store.join(BLOBS).is_dir())
}

/// The name of the blob of the model that a manifest names.
fn blob_name(text: &[u8], budget: &Budget) -> Result<String> {
    let malformed = |what: String| Error::malformed(what).in_format("manifest");
    let text =
        std::str::from_utf8(text).map_err(|_| malformed("the manifest is not UTF-8".to_owned()))?;
    let reader = JsonReader::new(budget, "the manifest");
    let manifest = reader.parse(text, Tree(&reader), |e| {
        malformed(format!("not a manifest of Ollama: {e}"))
    })?;
    let layers = manifest.get("layers").and_then(Value::as_array);
    let layers = layers.ok_or_else(|| malformed("the manifest has no layers".to_owned()))?;
    let mut models = layers
        .iter()
        .filter(|layer| layer.get("mediaType").and_then(Value::as_str) == Some(MODEL));
    let model = match (models.next(), models.next()) {
        (Some(model), None) => model,
        (None, _) => {
            return Err(Error::new(ErrorKind::UnknownFormat {
                looks_like: format!("a manifest of Ollama without a layer of the type {MODEL}"),
            }));
        }
        _ => {
            return Err(Error::unsupported(
                "the manifest names several blobs of one model; open them by their paths",
            ));
        }
    };
    let digest = model.get("digest").and_then(Value::as_str).unwrap_or("");
    let is_hex = |text: &str| text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
    match digest.strip_prefix("sha256:") {
        // the name is joined to a path, and must not lead out of the store
        Some(hex) if is_hex(hex) => Ok(format!("sha256-{hex}")),
        _ => Err(malformed(format!(
            "the digest {} of the model is none",
            quote(digest)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Result<String, String> {
        let budget = Budget::new(Limits::default());
        blob_name(text.as_bytes(), &budget).map_err(|e| e.to_string())
    }

    #[test]
    fn a_manifest_names_the_blob_of_its_model() {
        let digest = "a".repeat(64);
        let layer = |kind: &str, digest: &str| {
            format!(
                "{{\"mediaType\":\"application/vnd.ollama.image.{kind}\",\"digest\":\"{digest}\"}}"
            )
        };
        let manifest = |layers: &[String]| format!("{{\"layers\":[{}]}}", layers.join(","));
        let own = layer("model", &format!("sha256:{digest}"));
        let template = layer("template", "sha256:bb");
        let found = named(&manifest(&[template.clone(), own.clone()]));
        assert_eq!(found, Ok(format!("sha256-{digest}")));
        for (layers, why) in [
            (vec![template], "without a layer"),
            (vec![own.clone(), own], "several blobs"),
            (vec![layer("model", "sha256:../../etc/passwd")], "is none"),
            (vec![layer("model", &digest)], "is none"),
        ] {
            let error = named(&manifest(&layers)).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        for text in ["", "[]", "{}", "{\"layers\":{}}"] {
            assert!(named(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_store_is_found_by_the_path_of_a_manifest() {
        let store = |path: &'static str| store_of(Path::new(path));
        assert_eq!(
            store("o/models/manifests/registry.ollama.ai/library/m/latest"),
            Some(Path::new("o/models"))
        );
        assert_eq!(store("manifests/a"), Some(Path::new("")));
        assert_eq!(store("o/manifests"), None);
        assert_eq!(store("o/manifests-2/a"), None);
    }
}
