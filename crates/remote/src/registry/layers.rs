//! The files of a model by the media types of its layers.
//!
//! ModelPack: <https://github.com/modelpack/model-spec/blob/main/docs/spec.md>. Docker's model artefacts:
//! <https://github.com/docker/model-spec/blob/main/spec.md> and the types of `docker/model-runner`. ModelKits:
//! <https://kitops.org/docs/modelkit/spec/>, layers `application/vnd.kitops.modelkit.KIND.v1.tar`. Ollama:
//! `server/internal/manifest/manifest.go` of `ollama/ollama`.

use std::collections::HashMap;

use super::Blob;
use super::manifest::Layer;
use crate::error::{Error, ErrorKind, Result, shown};
use crate::names::is_plain;

/// Where files of a model are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LayerFiles {
    /// A blob is a file of this path.
    File(String, Blob),
    /// A blob is an archive of files.
    Archive(Blob),
}

/// Names of files whose layers name none, by media type. A name without an ending's dot stays as it is; several files of one
/// type are numbered.
static NAMES: &[(&str, &str)] = &[
    ("application/vnd.docker.ai.gguf.v3", "model.gguf"),
    ("application/vnd.docker.ai.safetensors", "model.safetensors"),
    ("application/vnd.docker.ai.mmproj", "mmproj.gguf"),
    (
        "application/vnd.docker.ai.chat.template.jinja",
        "chat_template.jinja",
    ),
    ("application/vnd.docker.ai.license", "LICENSE"),
    ("application/vnd.cncf.model.weight.v1.gguf", "model.gguf"),
    (
        "application/vnd.cncf.model.weight.v1.safetensors",
        "model.safetensors",
    ),
    ("application/vnd.ollama.image.model", "model.gguf"),
    ("application/vnd.ollama.image.projector", "mmproj.gguf"),
    ("application/vnd.ollama.image.adapter", "adapter.gguf"),
    ("application/vnd.ollama.image.draft", "draft.gguf"),
    ("application/vnd.ollama.image.template", "template"),
    ("application/vnd.ollama.image.system", "system"),
    ("application/vnd.ollama.image.params", "params.json"),
    ("application/vnd.ollama.image.messages", "messages.json"),
    ("application/vnd.ollama.image.license", "LICENSE"),
];

/// Kinds of layers without files of a model.
static APART: &[&str] = &[".dataset.", ".doc.", ".docs.", ".code."];

/// The files and archives of a model.
pub(crate) fn files_of(layers: Vec<Layer>) -> Result<Vec<LayerFiles>> {
    let mut counts: HashMap<&'static str, (usize, usize)> = HashMap::new();
    for layer in &layers {
        if let (None, Some(name)) = (&layer.path, default_name(&layer.media_type)) {
            counts.entry(name).or_default().1 += 1;
        }
    }
    let unknown = layers.first().map(|layer| shown(&layer.media_type));
    let mut files = Vec::new();
    for Layer {
        media_type,
        blob,
        path,
    } in layers
    {
        let plain = media_type.split(';').next().unwrap_or_default().trim();
        let is_apart = APART.iter().any(|kind| plain.contains(kind));
        if is_compressed(plain) {
            if is_apart {
                continue;
            }
            let layer = path
                .as_deref()
                .map_or_else(|| blob.digest.to_string(), shown);
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "the layer {layer} is compressed ({}), so that no part of it can be read by itself: pull the model, or pack it \
                     without compression",
                    shown(plain)
                ),
            ));
        }
        if plain.ends_with(".tar") {
            // an archive of data may be longer than the model, and its names cost a round trip
            if !plain.contains(".dataset.") {
                files.push(LayerFiles::Archive(blob));
            }
            continue;
        }
        let name = match (path, default_name(plain)) {
            (Some(path), _) => checked(&path)?,
            (None, Some(name)) => {
                let (number, count) = counts.entry(name).or_default();
                *number += 1;
                numbered(name, *number, *count)
            }
            // a layer that names no file has none
            (None, None) => continue,
        };
        files.push(LayerFiles::File(name, blob));
    }
    if files.is_empty() {
        let what = match unknown {
            Some(kind) => format!(
                "the manifest has no files of a model: its layers are of other kinds ({kind})"
            ),
            None => "the manifest has no layers".to_owned(),
        };
        return Err(Error::new(ErrorKind::Unsupported, what));
    }
    Ok(files)
}

fn default_name(media_type: &str) -> Option<&'static str> {
    let plain = media_type.split(';').next().unwrap_or_default().trim();
    let found = NAMES.iter().find(|(known, _)| *known == plain);
    found.map(|(_, name)| *name)
}

fn is_compressed(media_type: &str) -> bool {
    ["+gzip", "+zstd", ".gzip", ".zstd", ".tar.gz", "+gz", "+zst"]
        .iter()
        .any(|ending| media_type.ends_with(ending))
}

/// The name of one of several files of a kind; shards as `save_pretrained` and `gguf-split` name them.
fn numbered(name: &str, number: usize, count: usize) -> String {
    match (count, name.split_once('.')) {
        (0 | 1, _) => name.to_owned(),
        (_, Some((stem, ending))) => format!("{stem}-{number:05}-of-{count:05}.{ending}"),
        (_, None) => format!("{name}-{number}"),
    }
}

/// A path below the model: of a layer, or of a member of an archive.
pub(super) fn checked(path: &str) -> Result<String> {
    let mut parts = path.split('/').filter(|part| !matches!(*part, "" | "."));
    let parts: Vec<&str> = parts.by_ref().collect();
    if parts.is_empty() || !parts.iter().all(|part| is_plain(part)) {
        return Err(Error::refused(format!(
            "the registry's model has a file of the name {}, which leads out of it",
            shown(path)
        )));
    }
    Ok(parts.join("/"))
}
