//! The arguments of `remember` and `plan`.

use std::path::PathBuf;

use anamnesis::Dtype;
use clap::{Args, ValueHint};
use globset::GlobMatcher;

use super::Opening;
use super::values::{bytes, name_pattern, output_dtype};

const EXAMPLES: &str = "\
Examples:
  anamnesis remember model-Q4_K_M.gguf -o model.safetensors
  anamnesis remember llama-fp8/ -o llama-bf16/ --shard-size 5GB
  anamnesis remember model.safetensors -o layer0.safetensors --filter 'model.layers.0.*'

Exit status: 0 done, 1 failed and nothing was left behind, 2 wrong usage, 130 interrupted.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Remember {
    /// A file, a directory, a shard index, any part of a split GGUF.
    #[arg(value_name = "SOURCE", value_hint = ValueHint::AnyPath)]
    pub(crate) source: PathBuf,
    /// The safetensors file to write; with --shard-size the directory.
    ///
    /// It appears under its name when it is whole. Without --overwrite a file that exists is kept.
    #[arg(long, short, value_name = "OUT", value_hint = ValueHint::AnyPath)]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) weights: Weights,
    /// Write a directory of files of at most this many bytes each, and their index (5GB, 500MiB).
    #[arg(long, value_name = "BYTES", value_parser = bytes, help_heading = "Output")]
    pub(crate) shard_size: Option<u64>,
    /// Replace files that exist.
    #[arg(long, help_heading = "Output")]
    pub(crate) overwrite: bool,
    /// Threads that decode; one per core if not given. The bytes do not depend on it.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        hide_default_value = true,
        help_heading = "Output"
    )]
    pub(crate) threads: usize,
    /// Print one JSON document when it is done.
    #[arg(long, short, help_heading = "Output")]
    pub(crate) json: bool,
    /// Read through the loader that suits, and write down which bytes were read in which order: an I/O template, as
    /// JSON if the name ends in .json.
    #[arg(long, value_name = "TEMPLATE", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub(crate) record: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// A file, a directory, a shard index, any part of a split GGUF.
    #[arg(value_name = "SOURCE", value_hint = ValueHint::AnyPath)]
    pub(crate) source: PathBuf,
    #[command(flatten)]
    pub(crate) weights: Weights,
    /// Show the decoder of each weight.
    #[arg(long, short, help_heading = "View")]
    pub(crate) long: bool,
    /// Print one JSON document, with every byte range.
    #[arg(long, short, help_heading = "View")]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

/// Which weights, and what they become.
#[derive(Debug, Args)]
#[command(next_help_heading = "Weights")]
pub(crate) struct Weights {
    /// What quantised weights become.
    #[arg(long, short, value_name = "DTYPE", value_parser = output_dtype(), default_value = "bf16")]
    pub(crate) dtype: Dtype,
    /// Cast plain tensors of floats to that dtype too; they stay as they are if not.
    #[arg(long)]
    pub(crate) cast: bool,
    /// Only weights whose whole name matches; may be repeated. Patterns are those of `inspect --filter`.
    #[arg(long, short, value_name = "GLOB", value_parser = name_pattern)]
    pub(crate) filter: Vec<GlobMatcher>,
    /// All but weights whose whole name matches; may be repeated.
    #[arg(long, short = 'x', value_name = "GLOB", value_parser = name_pattern)]
    pub(crate) exclude: Vec<GlobMatcher>,
    /// Round HQQ and MLX weights as their references do: after each operation, in the dtype of the scales.
    #[arg(long)]
    pub(crate) native_rounding: bool,
}
