//! The arguments of `ls`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use globset::GlobMatcher;

use super::OpenArgs;
use super::values::{any_case_pattern, memory_size, name_pattern, threads};

const EXAMPLES: &str = "\
Examples:
  anamnesis ls ~/models                               one line for each model of a tree
  anamnesis ls ~/.cache/huggingface/hub ~/.ollama     caches and stores
  anamnesis ls s3://bucket/models/ --arch 'qwen*' --larger 10GiB
  anamnesis ls --has '*.lora_A.*' --json | jq -r .path
  anamnesis ls ~/models --quant 'Q4_K*' --sort size --reverse

Exit status: 0 success, 1 a model could not be opened, or none was found,
2 a path is not there or invalid arguments.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LsArgs {
    /// Directories, hub caches, Ollama stores, buckets, prefixes and single models [default: the working directory].
    ///
    /// Only headers are read. Directories below are searched; hidden ones and links to directories are not. A repository of the
    /// hub's cache is one line, of the revision in refs/main.
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) paths: Vec<PathBuf>,
    /// List every snapshot of the repositories in a hub cache.
    #[arg(long, short)]
    pub(crate) all: bool,
    /// Models that are opened at once [default: one per core, 32 of a bucket]; the output does not depend on it.
    #[arg(long, value_name = "N", value_parser = threads(), default_value_t = 0, hide_default_value = true)]
    pub(crate) threads: usize,

    /// Only models that have a tensor or a weight whose full name matches; each of several must match.
    #[arg(long, value_name = "GLOB", value_parser = name_pattern, help_heading = "Filters")]
    pub(crate) has: Vec<GlobMatcher>,
    /// Only models of a matching architecture, in any case; may be repeated.
    #[arg(long, value_name = "GLOB", value_parser = any_case_pattern, help_heading = "Filters")]
    pub(crate) arch: Vec<GlobMatcher>,
    /// Only models of a matching dtype, scheme or label, in any case: 'Q4_K*', gptq, bf16; may be repeated.
    #[arg(long, value_name = "GLOB", value_parser = any_case_pattern, help_heading = "Filters")]
    pub(crate) quant: Vec<GlobMatcher>,
    /// Only models whose files have this many bytes or more: 10GiB.
    #[arg(long, alias = "min-size", value_name = "SIZE", value_parser = memory_size, help_heading = "Filters")]
    pub(crate) larger: Option<u64>,

    /// Sort the lines, which takes memory for all of them [default: by path, as they are found].
    #[arg(long, value_enum, value_name = "BY", help_heading = "View")]
    pub(crate) sort: Option<ListOrder>,
    /// Reverse the order of --sort.
    #[arg(long, short, requires = "sort", help_heading = "View")]
    pub(crate) reverse: bool,
    /// Print one JSON object per line.
    #[arg(long, short, group = "form", help_heading = "View")]
    pub(crate) json: bool,
    /// Print comma-separated values with a header.
    #[arg(long, group = "form", help_heading = "View")]
    pub(crate) csv: bool,
    /// Write a Parquet file instead of printing.
    #[arg(long, value_name = "FILE", group = "form", value_hint = ValueHint::FilePath, help_heading = "View")]
    pub(crate) parquet: Option<PathBuf>,
    /// Replace the file of --parquet if it exists.
    #[arg(long, requires = "parquet", help_heading = "View")]
    pub(crate) overwrite: bool,

    #[command(flatten)]
    pub(crate) opening: OpenArgs,
}

/// Orders of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ListOrder {
    /// By path.
    Path,
    /// By size, largest first.
    Size,
    /// By number of parameters, largest first.
    Parameters,
    /// By context, longest first.
    Context,
    /// By architecture.
    Architecture,
}
