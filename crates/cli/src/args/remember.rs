//! The arguments of `remember` and `plan`.

use std::path::PathBuf;

use anamnesis::Dtype;
use clap::{Args, ValueHint};
use globset::GlobMatcher;

use super::OpenArgs;
use super::values::{bytes, name_pattern, output_dtype};

const EXAMPLES: &str = "\
Examples:
  anamnesis remember model-Q4_K_M.gguf -o model.safetensors
  anamnesis remember llama-fp8/ -o llama-bf16/ --shard-size 5GB
  anamnesis remember model.safetensors -o layer0.safetensors --filter 'model.layers.0.*'

Exit status: 0 success, 1 failure (no output file is left), 2 invalid arguments, 130 interrupted.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RememberArgs {
    /// File, directory, shard index, or any file of a split GGUF.
    #[arg(value_name = "SOURCE", value_hint = ValueHint::AnyPath)]
    pub(crate) source: PathBuf,
    /// Safetensors file to write; with --shard-size, a directory.
    ///
    /// The output is written under a temporary name and renamed when it is complete.
    #[arg(long, short, value_name = "OUT", value_hint = ValueHint::AnyPath)]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) weights: WeightArgs,
    /// Write a directory of shards of at most BYTES tensor bytes each (5GB, 500MiB), with an index.
    #[arg(long, value_name = "BYTES", value_parser = bytes, help_heading = "Output")]
    pub(crate) shard_size: Option<u64>,
    /// Replace existing files.
    #[arg(long, help_heading = "Output")]
    pub(crate) overwrite: bool,
    /// Number of decoding threads [default: one per core].
    ///
    /// The output is the same for every number of threads.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        hide_default_value = true,
        help_heading = "Output"
    )]
    pub(crate) threads: usize,
    /// Print one JSON document.
    #[arg(long, short, help_heading = "Output")]
    pub(crate) json: bool,
    /// Record the reads as an I/O template; as JSON if the name ends in .json.
    #[arg(long, value_name = "TEMPLATE", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub(crate) record: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) opening: OpenArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// File, directory, shard index, or any file of a split GGUF.
    #[arg(value_name = "SOURCE", value_hint = ValueHint::AnyPath)]
    pub(crate) source: PathBuf,
    #[command(flatten)]
    pub(crate) weights: WeightArgs,
    /// Also show the decoder of each weight.
    #[arg(long, short, help_heading = "View")]
    pub(crate) long: bool,
    /// Print one JSON document, including every byte range.
    #[arg(long, short, help_heading = "View")]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) opening: OpenArgs,
}

/// The weights to dequantise, and their dtype.
#[derive(Debug, Args)]
#[command(next_help_heading = "Weights")]
pub(crate) struct WeightArgs {
    /// Dtype of dequantised weights.
    #[arg(long, short, value_name = "DTYPE", value_parser = output_dtype(), default_value = "bf16")]
    pub(crate) dtype: Dtype,
    /// Also cast floating-point tensors that are not quantised.
    #[arg(long)]
    pub(crate) cast: bool,
    /// Include only weights whose full name matches; may be repeated. Syntax as in `inspect --filter`.
    #[arg(long, short, value_name = "GLOB", value_parser = name_pattern)]
    pub(crate) filter: Vec<GlobMatcher>,
    /// Exclude weights whose full name matches; may be repeated.
    #[arg(long, short = 'x', value_name = "GLOB", value_parser = name_pattern)]
    pub(crate) exclude: Vec<GlobMatcher>,
    /// Round HQQ and MLX weights after each operation, in the dtype of the scales, as their references do.
    #[arg(long)]
    pub(crate) native_rounding: bool,
}
