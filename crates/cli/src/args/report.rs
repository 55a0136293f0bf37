//! The arguments of `report`.

use std::path::PathBuf;

use anamnesis::fit::CacheType;
use clap::{Args, ValueHint};

use super::FileArgs;
use super::values::{cache_types, count, memory_size};

const EXAMPLES: &str = "\
Examples:
  anamnesis report model.gguf -o model.html
  anamnesis report qwen3-30b-fp8/ -o qwen3.html --memory 48GiB
  anamnesis report --stats llama/ -o llama.html   read the values too
  anamnesis report hf://owner/name -o name.html
  anamnesis report model.safetensors -o - | gzip > model.html.gz

Exit status: 0 the page was written, whatever was found; 1 nothing of the model
could be read, or the page not be written; 2 invalid arguments.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReportArgs {
    /// File, directory, shard index, URL, or any file of a split GGUF; `-` is standard input.
    #[arg(value_name = "MODEL", value_hint = ValueHint::AnyPath)]
    pub(crate) model: PathBuf,
    /// Page to write; `-` is standard output.
    ///
    /// It is written under another name and renamed.
    #[arg(long, short, value_name = "PAGE", value_hint = ValueHint::FilePath)]
    pub(crate) output: PathBuf,
    /// Replace an existing file.
    #[arg(long)]
    pub(crate) overwrite: bool,

    /// Read all bytes, and show the findings of `check`; of a model that cannot be opened whole, show the rest.
    #[arg(long, help_heading = "Values")]
    pub(crate) check: bool,
    /// Like --check, with statistics of each weight's values: minimum, maximum, mean, deviation, zeros, percentiles.
    #[arg(long, help_heading = "Values")]
    pub(crate) stats: bool,

    /// Memory of a device, drawn as a line: the curves say which context fits.
    #[arg(long, short, value_name = "SIZE", value_parser = memory_size, help_heading = "Memory")]
    pub(crate) memory: Option<u64>,
    /// Sequences at once.
    #[arg(long, short, value_name = "N", value_parser = count, default_value = "1", help_heading = "Memory")]
    pub(crate) batch: u64,
    /// Type of the cache, or of keys and values, as for `fit` [default: the model's dtype; f16 for llama.cpp].
    #[arg(long, value_name = "TYPE[,TYPE]", value_parser = cache_types, help_heading = "Memory")]
    pub(crate) kv: Option<(CacheType, CacheType)>,

    #[command(flatten)]
    pub(crate) opening: FileArgs,
}

impl ReportArgs {
    /// Whether values are read.
    pub(crate) fn checks(&self) -> bool {
        self.check || self.stats
    }
}
