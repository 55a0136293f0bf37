//! The arguments of `check`.

use std::path::PathBuf;

use anamnesis::check::{FindingLevel, rules};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueHint};
use globset::GlobMatcher;

use super::FileArgs;
use super::values::{name_pattern, threads};

const EXAMPLES: &str = "\
Examples:
  anamnesis check model.safetensors               what cannot be right
  anamnesis check --headers llama/                index and headers only
  anamnesis check --manifest SHA256SUMS llama/    compare with a list of digests
  anamnesis check --write llama.json llama/       make such a list
  anamnesis check --against hf://Qwen/Qwen3-8B qwen3/    compare with the hub's digests
  anamnesis check --stats --json model.gguf | jq '.models[0].tensors[].values.std'

Exit status: 0 nothing above a note, 1 findings, 2 a model could not be read,
nothing was looked at, or invalid arguments.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CheckArgs {
    /// Files, directories, shard indexes, URLs or glob patterns, as for `inspect`.
    #[arg(value_name = "MODEL", required = true, value_hint = ValueHint::AnyPath)]
    pub(crate) models: Vec<PathBuf>,
    /// Check each model at or below a directory or a prefix, as `ls` finds them.
    #[arg(long)]
    pub(crate) recursive: bool,

    /// Compare with the digests in FILE: lines of sha256sum, sha512sum or llama-gguf-hash, digests with `sha256:`, or the JSON of
    /// --write.
    ///
    /// Without it, what is next to the files is used: lists such as SHA256SUMS, names of blobs in the hub's cache, and what its
    /// client writes about a download (`.cache/huggingface/download/*.metadata`).
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "headers", help_heading = "Digests")]
    pub(crate) manifest: Option<PathBuf>,
    /// Compare with the digests that the Hugging Face hub states of the files of URL (hf://owner/name[@revision][/folder]), or
    /// ModelScope (ms://owner/name[@revision][/folder]), or a registry (oci://registry/repository:tag).
    ///
    /// One request of the hub or ModelScope. A file of the model that the repository does not have is a finding; its files that are not here are named.
    #[cfg(feature = "remote")]
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url, conflicts_with_all = ["headers", "manifest"], help_heading = "Digests")]
    pub(crate) against: Option<String>,
    /// Write the digests of all files to FILE; of all tensors too, if its name ends in .json.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "headers", help_heading = "Digests")]
    pub(crate) write: Option<PathBuf>,
    /// Replace the file of --write if it exists. A file of a model is never replaced, unless it is a list of digests.
    #[arg(long, requires = "write", help_heading = "Digests")]
    pub(crate) overwrite: bool,

    /// Show statistics of each weight's values: minimum, maximum, mean, deviation, zeros, percentiles.
    ///
    /// Percentiles need a screen of 120 columns.
    #[arg(long, conflicts_with = "headers", help_heading = "Rules")]
    pub(crate) stats: bool,
    /// Read headers only, which takes seconds for any size; no tensor is called sound then.
    #[arg(long, help_heading = "Rules")]
    pub(crate) headers: bool,
    /// The level from which on a finding makes the exit status 1.
    #[arg(long, value_name = "LEVEL", value_parser = level(), default_value = "warning", help_heading = "Rules")]
    pub(crate) fail_on: FindingLevel,
    /// Leave out the findings of RULE; may be repeated.
    #[arg(long, value_name = "RULE", value_parser = rule(), hide_possible_values = true, help_heading = "Rules")]
    pub(crate) allow: Vec<String>,
    /// Report the findings of RULE alone; may be repeated.
    #[arg(long, value_name = "RULE", value_parser = rule(), hide_possible_values = true, help_heading = "Rules")]
    pub(crate) only: Vec<String>,
    /// Look only at tensors whose full name matches; may be repeated. Files are checked as a whole.
    #[arg(long, short, value_name = "GLOB", value_parser = name_pattern, help_heading = "Rules")]
    pub(crate) filter: Vec<GlobMatcher>,
    /// Threads [default: one per core]; findings do not depend on it.
    #[arg(
        long,
        value_name = "N",
        value_parser = threads(),
        default_value_t = 0,
        hide_default_value = true,
        help_heading = "Rules"
    )]
    pub(crate) threads: usize,

    /// Print one JSON document.
    #[arg(long, short, help_heading = "View")]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) opening: FileArgs,
}

fn level() -> impl TypedValueParser<Value = FindingLevel> {
    // from the most severe on, as `--help` lists them; clap refuses other words, so that the last arm is `note`
    PossibleValuesParser::new(["error", "warning", "note"]).map(|name| match &*name {
        "error" => FindingLevel::Error,
        "warning" => FindingLevel::Warning,
        _ => FindingLevel::Note,
    })
}

fn rule() -> impl TypedValueParser<Value = String> {
    // from the library's own table, so that a new rule can be named without a change here
    PossibleValuesParser::new(rules().iter().map(|rule| rule.id))
}
