//! The arguments of `diff`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use globset::GlobMatcher;

use super::OpenArgs;
use super::values::{distance, name_pattern, replacement};

const EXAMPLES: &str = "\
Examples:
  anamnesis diff llama/ llama-finetuned/              what a training run changed
  anamnesis diff qwen2/ qwen2-Q8_0.gguf               what a quantisation costs, tensor by tensor
  anamnesis diff a.safetensors b.safetensors --quiet  the status alone
  anamnesis diff a/ b.gguf --nmse 1e-4 --no-config    the same within a tolerance
  anamnesis diff old.pth new/ --rename module.=model. names that are known to be others

Exit status: 0 the same, 1 they differ, 2 a side could not be read, no tensor
was compared, or invalid arguments, 130 interrupted.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DiffArgs {
    /// The first checkpoint: a file, directory, shard index or URL, as for `inspect`.
    #[arg(value_name = "A", value_hint = ValueHint::AnyPath)]
    pub(crate) a: PathBuf,
    /// The second checkpoint.
    #[arg(value_name = "B", value_hint = ValueHint::AnyPath)]
    pub(crate) b: PathBuf,

    /// Values alone decide: not names of the other format, nor dtypes and layouts that mean the same.
    ///
    /// Not either: other names of a tensor with the same bytes, dtypes that hold the same values, dimensions of one element.
    #[arg(long, help_heading = "Comparison")]
    pub(crate) values: bool,
    /// Tensors whose |a-b|² / |a|² is at most X count as equal; implies --values.
    #[arg(long, value_name = "X", value_parser = distance, help_heading = "Comparison")]
    pub(crate) nmse: Option<f64>,
    /// Tensors whose largest |a-b| is at most X count as equal; implies --values.
    #[arg(long, value_name = "X", value_parser = distance, help_heading = "Comparison")]
    pub(crate) max_abs: Option<f64>,
    /// Metadata decides too, and is listed: __metadata__ of safetensors, the keys of a GGUF.
    #[arg(long, help_heading = "Comparison")]
    pub(crate) metadata: bool,
    /// Leave out config.json, which decides where both sides have one.
    #[arg(long, help_heading = "Comparison")]
    pub(crate) no_config: bool,
    /// Rename tensors of A for the comparison: a prefix, or a pattern with `*`; may be repeated, the first that fits counts.
    ///
    /// Without a `*`, FROM is a whole name or a prefix that ends at a dot. With one, it is a pattern for whole names, and each `*` of TO
    /// stands for the text of the same `*` of FROM.
    #[arg(long, value_name = "FROM=TO", value_parser = replacement, help_heading = "Comparison")]
    pub(crate) rename: Vec<(String, String)>,

    /// Compare headers only: names, dtypes and shapes.
    #[arg(long, conflicts_with_all = ["values", "nmse", "max_abs"], help_heading = "Tensors")]
    pub(crate) quick: bool,
    /// Compare only tensors whose full name on either side matches; may be repeated. Syntax as in `inspect --filter`.
    #[arg(long, short, value_name = "GLOB", value_parser = name_pattern, help_heading = "Tensors")]
    pub(crate) filter: Vec<GlobMatcher>,
    /// Leave out tensors whose full name on either side matches; may be repeated.
    #[arg(long, short = 'x', value_name = "GLOB", value_parser = name_pattern, help_heading = "Tensors")]
    pub(crate) exclude: Vec<GlobMatcher>,

    /// Sort the tensors [default: file order].
    #[arg(long, value_enum, value_name = "BY", help_heading = "View")]
    pub(crate) sort: Option<DiffOrder>,
    /// Show the counts, without the tensors.
    #[arg(long, conflicts_with_all = ["all", "sort"], help_heading = "View")]
    pub(crate) stat: bool,
    /// List all tensors, also equal ones [default: the first 20 that differ].
    #[arg(long, short, help_heading = "View")]
    pub(crate) all: bool,
    /// Print nothing, and stop at the first difference.
    #[arg(long, short, conflicts_with_all = ["json", "all", "stat", "sort"], help_heading = "View")]
    pub(crate) quiet: bool,
    /// Print one JSON document.
    #[arg(long, short, help_heading = "View")]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) opening: OpenArgs,
}

/// Sort keys for tensors that differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DiffOrder {
    /// By nmse, largest first.
    Nmse,
    /// By name, digits compared as numbers.
    Name,
    /// By stored size, largest first.
    Size,
}
