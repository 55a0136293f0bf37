//! The form of an output: one file or a directory, and the paths that are refused because they would replace the source.

use std::path::Path;

use anamnesis_os::files::{is_same, is_within, resolved, same_in};

use crate::base::error::{Error, Result};
use crate::engine::sink::{Container, Sharding};
use crate::read::checkpoint::Checkpoint;
use crate::read::source::files::url;

/// Bytes of tensors per file of a directory, unless the caller sets another number: what transformers writes.
pub(in crate::engine) const SHARD_BYTES: u64 = 5_000_000_000;

/// Endings of formats that are not written: an output of this name would be taken for one of them.
static OTHER_FORMATS: &[&str] = &[
    "ggml", "bin", "pt", "pth", "ckpt", "pkl", "onnx", "h5", "msgpack", "json", "zip", "tar",
    "mlmodel", "tflite", "distcp",
];

/// Whether an output path means a file or a directory, for a checkpoint and a size of shards that the caller has set.
///
/// The files are of this `container`, or of the one that the path's ending names.
///
/// A directory: a path that ends in a separator, an existing directory, a URL without an ending, a size of shards, or a source that is a directory
/// or several files. A name that ends in `.safetensors` is a file, for which a size of shards is an error.
pub(in crate::engine) fn sharding(
    checkpoint: &Checkpoint,
    path: &Path,
    shard_bytes: Option<u64>,
    container: Option<&'static Container>,
) -> Result<Sharding> {
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or("");
    let extension = extension.to_ascii_lowercase();
    let is_directory = url(path).map_or_else(|| is_local_directory(path), is_prefix);
    let named = Container::for_extension(&extension);
    let is_written = named.is_some_and(|named| container.is_none_or(|wanted| *wanted == *named));
    let is_other = named.is_some() || OTHER_FORMATS.contains(&&*extension);
    if !is_directory && !is_written && is_other {
        let wanted = container.map_or("safetensors", |container| container.name);
        return Err(Error::invalid_argument(format!(
            "the output is a {wanted} file, and its name ends in .{extension}: name it NAME.{wanted}, or NAME/ for a directory"
        ))
        .in_file(path));
    }
    // after the check of the name: `model.bin` with a size of shards would become a directory of that name
    if let Some(bytes) = shard_bytes {
        if !is_directory && named.is_some() {
            let what = format!(
                "a size of shards makes a directory, and the output has the name of a .{extension} file: name it NAME/, or leave the size out"
            );
            return Err(Error::invalid_argument(what).in_file(path));
        }
        return Ok(Sharding::Shards(bytes));
    }
    if is_directory {
        return Ok(Sharding::Shards(SHARD_BYTES));
    }
    if is_written {
        return Ok(Sharding::SingleFile);
    }
    let is_checkpoint_directory = checkpoint
        .path()
        .is_some_and(|source| checkpoint.files().is_directory(source));
    Ok(
        if is_checkpoint_directory || checkpoint.sources().len() > 1 {
            Sharding::Shards(SHARD_BYTES)
        } else {
            Sharding::SingleFile
        },
    )
}

fn is_local_directory(path: &Path) -> bool {
    let last = path.as_os_str().as_encoded_bytes().last();
    last.is_some_and(|b| std::path::is_separator(*b as char)) || path.is_dir()
}

/// Whether a URL means a directory: a bucket, or a key that ends in a slash or without an ending, as for reading.
fn is_prefix(url: &str) -> bool {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let key = rest.split_once('/').map_or("", |(_, key)| key);
    key.is_empty() || key.ends_with('/') || Path::new(key).extension().is_none()
}

/// Refuses an output that would replace the source: the same file or directory, also by a link, or a path inside a source
/// that is a directory.
pub(in crate::engine) fn check_not_source(
    checkpoint: &Checkpoint,
    path: &Path,
    sharding: &Sharding,
) -> Result<()> {
    let refused = |source: &Path| {
        let what = format!(
            "the output would be written into its own source, {}: choose another path",
            source.display()
        );
        Err(Error::invalid_argument(what).in_file(path))
    };
    let output_url = url(path).map(|url| url.trim_end_matches('/'));
    // a URL and a local path are never within each other
    if checkpoint.files().is_local() != output_url.is_none() {
        return Ok(());
    }
    if let Some(output) = output_url {
        for source in checkpoint
            .catalog()
            .files
            .iter()
            .filter_map(|file| file.path.as_deref())
        {
            let replaced = match sharding {
                Sharding::SingleFile => source == Path::new(output),
                Sharding::Shards(_) => source.parent() == Some(Path::new(output)),
            };
            if replaced {
                return refused(source);
            }
        }
        return Ok(());
    }
    // through links, since the output may not exist yet while its directory is a link to the source
    let output = resolved(path);
    if let Some(source) = checkpoint.path().filter(|source| source.is_dir()) {
        // also one file: readers of the directory would find it beside the files of the source
        if is_within(&output, source) {
            return refused(&resolved(source));
        }
    }
    let sources = checkpoint.catalog().files.iter();
    let mut sources = sources.filter_map(|file| file.path.as_deref());
    let replaced = match sharding {
        Sharding::SingleFile => sources
            .map(resolved)
            .find(|source| *source == output || is_same(source, &output)),
        // also a link of a source, which may have the name of an output, and a source on another mount of the directory
        Sharding::Shards(_) => same_in(&output, &mut sources),
    };
    replaced.map_or(Ok(()), |path| refused(&path))
}

/// The stem of the files in an output directory: the source's where a client finds files by it, else `model`.
pub(in crate::engine) fn file_stem(checkpoint: &Checkpoint) -> &'static str {
    // adapters of peft, components of diffusers, and the variants of diffusers that are opened by `variant=`
    static STEMS: &[&str] = &[
        "adapter_model",
        // before the shorter stem with which it begins
        "diffusion_pytorch_model.fp16",
        "diffusion_pytorch_model",
        "model.fp16",
    ];
    let files = &checkpoint.catalog().files;
    let first = files.first().and_then(|file| file.path.as_deref());
    let name = first
        .and_then(Path::file_name)
        .and_then(|name| name.to_str());
    let name = name.unwrap_or("");
    let of_source = STEMS.iter().find(|stem| {
        name.strip_prefix(**stem)
            .is_some_and(|rest| rest.starts_with(['.', '-']))
    });
    of_source.copied().unwrap_or("model")
}
