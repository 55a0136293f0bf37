//! Sharded checkpoints: many shards with the names and headers of a mixture of experts, whose data are holes of the file, and six
//! shards of random weights.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde_json::json;

use crate::generate::{self, TensorSpec, safetensors};
use crate::report::options::Options;

/// The directory of the checkpoint that is loaded: 1 GB in six shards.
pub const LOADED: &str = "load-1gb";
const LOADED_SHARDS: u64 = 6;
const LOADED_TENSORS: u64 = 20;
/// 8 923 136 bytes of F32 a tensor: 120 of them are 1.07 GB.
const LOADED_SHAPE: [u64; 2] = [1024, 2178];

/// Experts of a shard: three projections each, so that a header has about 97 KB, as the headers of DeepSeek's shards have.
const EXPERTS: u64 = 259;

/// Generates all files of the section that do not exist.
pub fn files(options: &Options) -> Result<(), String> {
    for name in ["model.safetensors", "model.gguf", "model.npz", "model.pth"] {
        generate::file(options, name)?;
    }
    let many = |shards: u64| {
        let specs = (0..shards).map(|shard| {
            let experts = (0..EXPERTS).flat_map(move |expert| {
                ["gate_proj", "up_proj", "down_proj"].map(|part| {
                    let name = format!("model.layers.{shard}.mlp.experts.{expert}.{part}.weight");
                    TensorSpec::new(name, &[64, 32])
                })
            });
            experts.collect()
        });
        directory(options, &format!("shards-{shards}"), specs.collect(), false)
    };
    many(64)?;
    many(200)?;
    // smaller where files are: the sum of bytes is compared all the same
    let shape = if options.small {
        [16, 2178]
    } else {
        LOADED_SHAPE
    };
    let specs = (0..LOADED_SHARDS).map(|shard| {
        let tensors = (0..LOADED_TENSORS)
            .map(|i| TensorSpec::new(format!("layers.{shard}.{i}.weight"), &shape));
        tensors.collect()
    });
    directory(options, LOADED, specs.collect(), true)
}

/// Writes one shard for each list of tensors, and the index; under another name first.
fn directory(
    options: &Options,
    name: &str,
    shards: Vec<Vec<TensorSpec>>,
    random: bool,
) -> Result<(), String> {
    let (path, partial) = (
        options.files().join(name),
        options.files().join(format!("{name}.partial")),
    );
    if path.exists() {
        return Ok(());
    }
    eprintln!("generating {}", path.display());
    let write = || {
        fs::create_dir_all(&partial)?;
        let mut index = serde_json::Map::new();
        for (i, tensors) in shards.iter().enumerate() {
            let file = format!("model-{:05}-of-{:05}.safetensors", i + 1, shards.len());
            shard(&partial.join(&file), tensors, random.then_some(i as u64))?;
            index.extend(tensors.iter().map(|spec| (spec.name.clone(), json!(file))));
        }
        let index = json!({"metadata": {}, "weight_map": index});
        fs::write(
            partial.join("model.safetensors.index.json"),
            index.to_string(),
        )?;
        fs::write(partial.join("config.json"), "{}")?;
        fs::rename(&partial, &path)
    };
    write().map_err(|e: io::Error| format!("cannot generate {name}: {e}"))
}

/// F32 tensors: random weights with this seed, or a hole of the file.
fn shard(path: &Path, tensors: &[TensorSpec], seed: Option<u64>) -> io::Result<()> {
    let mut to = BufWriter::with_capacity(1 << 20, File::create(path)?);
    if let Some(seed) = seed {
        safetensors::write_seeded(&mut to, tensors, seed)?;
        return to.flush();
    }
    let len = safetensors::write_header(&mut to, tensors)?;
    to.into_inner()
        .map_err(io::IntoInnerError::into_error)?
        .set_len(len)
}
