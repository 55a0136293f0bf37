//! The arguments of `convert`.

use std::path::PathBuf;

use anamnesis::OutputDtype;
use anamnesis::sink::Container;
use clap::{Args, ValueHint};
use globset::GlobMatcher;

use super::OpenArgs;
use super::quantise::QuantiseArgs;
use super::values::{
    MetadataArgument, container, metadata_value, name_pattern, replacement, shard_size,
    stored_or_output_dtype, threads, workers,
};
use crate::name_filter::NameFilter;

const EXAMPLES: &str = "\
Examples:
  anamnesis convert model-fp8/ -o one.safetensors                    merge shards; FP8 stays FP8
  anamnesis convert model/ -o sharded/ --shard-size 1GB              shard anew
  anamnesis convert model/ -o layer0.safetensors --filter 'model.layers.0.*'
  anamnesis convert big.gguf -o parts/ --shard-size 2GB              split a GGUF; -o one.gguf merges it
  anamnesis convert x.ckpt -o y.safetensors --filter 'state_dict.*' --strip-prefix state_dict
  anamnesis convert in.npz -o out.safetensors
  anamnesis convert qwen3/ -o qwen3.gguf --type q4_k_m               a GGUF, as llama.cpp makes it
  anamnesis convert model-fp8/ -o model-bf16/ --dtype bf16           dequantise, as `remember` does

Exit status: 0 success, 1 failure (no output file is left), 2 invalid arguments, 130 interrupted.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ConvertArgs {
    /// Files, directories, shard indexes, or any file of a split GGUF; several are one model.
    #[arg(value_name = "SOURCE", required = true, value_hint = ValueHint::AnyPath)]
    pub(crate) sources: Vec<PathBuf>,
    /// File or directory to write, or the URL of one in a bucket.
    ///
    /// A file merges, a directory may split: OUT ends in `/`, exists as a directory, --shard-size is set, or the source is a
    /// directory or several files and OUT has no ending. A directory gets the configuration and tokenizer files of the source.
    /// The output appears under its name when it is complete.
    #[arg(long, short, value_name = "OUT", value_hint = ValueHint::AnyPath)]
    pub(crate) output: PathBuf,
    /// Container to write [default: by the ending of OUT, else as the source; safetensors for PyTorch].
    #[arg(long, value_name = "CONTAINER", value_parser = container(), help_heading = "Output")]
    pub(crate) to: Option<&'static Container>,
    /// Dtype of weights [default: stored, which copies quantised weights as they are].
    ///
    /// Another one dequantises them, as `remember` does: `auto`, bf16, f16, f32.
    #[arg(long, short, value_name = "DTYPE", value_parser = stored_or_output_dtype(), help_heading = "Weights")]
    pub(crate) dtype: Option<OutputDtype>,
    /// Also cast floating-point tensors that are not quantised, to the DTYPE of --dtype.
    #[arg(long, requires = "dtype", help_heading = "Weights")]
    pub(crate) cast: bool,
    /// Include only tensors and weights whose full name matches; may be repeated. Syntax as in `inspect --filter`.
    ///
    /// A weight is copied with all of its stored parts if one of them matches.
    #[arg(long, short, value_name = "GLOB", value_parser = name_pattern, help_heading = "Weights")]
    pub(crate) filter: Vec<GlobMatcher>,
    /// Exclude tensors and weights whose full name matches; may be repeated.
    ///
    /// A pattern that matches some stored parts of a weight, and not all of them, is refused.
    #[arg(long, short = 'x', value_name = "GLOB", value_parser = name_pattern, help_heading = "Weights")]
    pub(crate) exclude: Vec<GlobMatcher>,
    /// Write one worker's share of N tensor-parallel workers; a share that would begin inside of a block is refused.
    #[arg(long, value_name = "N", value_parser = workers(), requires = "rank", help_heading = "Weights")]
    pub(crate) tp: Option<u32>,
    /// The number of that worker, from 0.
    #[arg(long, value_name = "R", value_parser = workers(), requires = "tp", help_heading = "Weights")]
    pub(crate) rank: Option<u32>,
    /// Remove PREFIX and the dot behind it from names that begin with it, before --rename.
    #[arg(long, value_name = "PREFIX", help_heading = "Names and metadata")]
    pub(crate) strip_prefix: Option<String>,
    /// Rename tensors; may be repeated, in this order.
    ///
    /// FROM is a whole name, a prefix that ends at a dot, or a pattern of the whole name, of which the n-th `*` of TO is what the
    /// n-th `*` has matched; an `=` in a name is written `\=`. Names of modules in configurations are renamed too. A FROM that is for no tensor is an error.
    #[arg(long, value_name = "FROM=TO", value_parser = replacement, help_heading = "Names and metadata")]
    pub(crate) rename: Vec<(String, String)>,
    /// Put PREFIX and a dot in front of all names, after --rename.
    #[arg(long, value_name = "PREFIX", help_heading = "Names and metadata")]
    pub(crate) add_prefix: Option<String>,
    /// Set a metadata value; may be repeated.
    ///
    /// TYPE is for new keys of a GGUF: u8, i8, u16, i16, u32, i32, u64, i64, f32, f64, bool, str, or `[TYPE]` with a JSON array. A
    /// key that exists keeps its type.
    #[arg(long, value_name = "KEY[:TYPE]=VALUE", value_parser = metadata_value, help_heading = "Names and metadata")]
    pub(crate) metadata: Vec<MetadataArgument>,
    /// Leave a metadata key out; may be repeated.
    #[arg(long, value_name = "KEY", help_heading = "Names and metadata")]
    pub(crate) drop_metadata: Vec<String>,
    /// Write a directory of files of at most BYTES tensor bytes each (5GB, 500MiB) [default: 5GB for a directory].
    #[arg(long, value_name = "BYTES", value_parser = shard_size, help_heading = "Output")]
    pub(crate) shard_size: Option<u64>,
    /// Alignment of tensors in a GGUF, in bytes [default: as the source, else 32].
    #[arg(long, value_name = "N", help_heading = "Output")]
    pub(crate) alignment: Option<u32>,
    /// Write BF16 and FP8 to NumPy as items without a type (`V2`, `V1`).
    #[arg(long, help_heading = "Output")]
    pub(crate) void: bool,
    /// Copy Python files of the source to an output directory.
    #[arg(long, help_heading = "Output")]
    pub(crate) code: bool,
    /// Also write output layers that share the weight of the input embedding to a directory.
    #[arg(long, help_heading = "Output")]
    pub(crate) untie: bool,
    /// Replace existing files: see `remember --overwrite`.
    #[arg(long, help_heading = "Output")]
    pub(crate) overwrite: bool,
    /// Number of copying threads [default: one per core].
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
    pub(crate) quantise: QuantiseArgs,
    #[command(flatten)]
    pub(crate) opening: OpenArgs,
}

impl ConvertArgs {
    /// The patterns of names.
    pub(crate) fn name_filter(&self) -> NameFilter<'_> {
        NameFilter::new(&self.filter).excluding(&self.exclude)
    }
}
