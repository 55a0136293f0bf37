//! The arguments of `remember` and `plan`.

use std::path::PathBuf;

use anamnesis::{Names, OutputDtype};
use clap::{Args, ValueHint};
use globset::GlobMatcher;

use super::OpenArgs;
use super::values::{
    name_pattern, output_dtype, part, replacement, shard_size, tensor_names, threads,
};
use crate::name_filter::NameFilter;

const EXAMPLES: &str = "\
Examples:
  anamnesis remember model-Q4_K_M.gguf -o model.safetensors
  anamnesis remember lightning.ckpt -o weights.safetensors --strip-prefix state_dict.model
  anamnesis remember llama-fp8/ -o llama-bf16/                   a directory that clients open
  anamnesis remember llama-fp8/ -o llama-bf16/ --part $SLURM_ARRAY_TASK_ID/16
  anamnesis remember model.safetensors -o layer0.safetensors --filter 'model.layers.0.*'

Exit status: 0 success, 1 failure (no output file is left), 2 invalid arguments, 130 interrupted.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RememberArgs {
    /// File, directory, shard index, or any file of a split GGUF.
    #[arg(value_name = "SOURCE", value_hint = ValueHint::AnyPath)]
    pub(crate) source: PathBuf,
    /// Safetensors file or directory to write, or the URL of one in a bucket.
    ///
    /// A directory: OUT ends in `/`, exists as a directory, or the source is a directory or several files and OUT does not end
    /// in `.safetensors`. It gets shards with an index, and the configuration and tokenizer files of the source.
    /// The output appears under its name when it is complete.
    #[arg(long, short, value_name = "OUT", value_hint = ValueHint::AnyPath)]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) weights: WeightArgs,
    /// Write a directory of shards of at most BYTES tensor bytes each (5GB, 500MiB) [default: 5GB for a directory].
    #[arg(long, value_name = "BYTES", value_parser = shard_size, help_heading = "Output")]
    pub(crate) shard_size: Option<u64>,
    /// Make part I of N alone, from 1: every N-th file of an output directory. The last part that ends completes it.
    ///
    /// For jobs of many processes, each of which makes one part: they need the same source, options and directory, and a file system
    /// whose locks they all see. A part that is run again makes what is missing.
    #[arg(long, value_name = "I/N", value_parser = part, conflicts_with = "record", help_heading = "Output")]
    pub(crate) part: Option<(usize, usize)>,
    /// Copy Python files of the source to an output directory.
    ///
    /// They are code, which clients run with `trust_remote_code`, and are not copied by default.
    #[arg(long, help_heading = "Output")]
    pub(crate) code: bool,
    /// Also write output layers that share the weight of the input embedding.
    ///
    /// By default they are left out of a directory whose config.json ties them: clients restore them.
    #[arg(long, help_heading = "Output")]
    pub(crate) untie: bool,
    /// Remove PREFIX and the dot behind it from names that begin with it: `state_dict.model` of a Lightning checkpoint.
    #[arg(long, value_name = "PREFIX", help_heading = "Output")]
    pub(crate) strip_prefix: Option<String>,
    /// Rename tensors; may be repeated, in this order, after --strip-prefix.
    ///
    /// FROM is a whole name, a prefix that ends at a dot, or a pattern of the whole name, of which the n-th `*` of TO is what the
    /// n-th `*` has matched; an `=` in a name is written `\=`. A FROM that is for no tensor is an error.
    #[arg(long, value_name = "FROM=TO", value_parser = replacement, help_heading = "Output")]
    pub(crate) rename: Vec<(String, String)>,
    /// Replace existing files.
    ///
    /// In a directory: model.safetensors, its index and the files that this names, every model-…-of-….safetensors, and the
    /// files beside the tensors. Without it, an existing file with other bytes is an error and nothing is written.
    #[arg(long, help_heading = "Output")]
    pub(crate) overwrite: bool,
    /// Number of decoding threads [default: one per core].
    ///
    /// The output is the same for every number of threads.
    #[arg(
        long,
        value_name = "N",
        value_parser = threads(),
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
    /// Dtype of dequantised weights [default: bf16; of `remember` to a directory: auto].
    ///
    /// `auto` is the dtype that the source's config.json states, else the dtype of its unquantised tensors, else bf16.
    /// PyTorch's names are accepted too (bfloat16, float16, float32).
    #[arg(long, short, value_name = "DTYPE", value_parser = output_dtype())]
    pub(crate) dtype: Option<OutputDtype>,
    /// Also cast floating-point tensors that are not quantised.
    #[arg(long)]
    pub(crate) cast: bool,
    /// Include only weights whose full name matches; may be repeated. Syntax as in `inspect --filter`.
    #[arg(long, short, value_name = "GLOB", value_parser = name_pattern)]
    pub(crate) filter: Vec<GlobMatcher>,
    /// Exclude weights whose full name matches; may be repeated.
    #[arg(long, short = 'x', value_name = "GLOB", value_parser = name_pattern)]
    pub(crate) exclude: Vec<GlobMatcher>,
    /// Names of a GGUF's tensors: `stored`, or `hf`, the names of transformers, with its values, configuration and tokenizer
    /// [default: hf where the output is a directory and the architecture is known, else stored].
    #[arg(long, value_name = "NAMES", value_parser = tensor_names())]
    pub(crate) names: Option<Names>,
    /// Round HQQ, MLX and quanto weights after each operation, in the dtype of the scales, as their references do.
    #[arg(long)]
    pub(crate) native_rounding: bool,
}

impl WeightArgs {
    /// The patterns of names.
    pub(crate) fn name_filter(&self) -> NameFilter<'_> {
        NameFilter::new(&self.filter).excluding(&self.exclude)
    }
}
