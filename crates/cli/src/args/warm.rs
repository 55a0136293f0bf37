//! The arguments of `warm`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::OpenArgs;
use super::ppc::{Threshold, percent};
use super::template::PredictionArgs;
use super::values::{prefetch_threads, rate};

const WARM_HELP: &str = "\
Examples:
  anamnesis warm models/llama
  anamnesis warm models/llama -- python serve.py models/llama
  anamnesis warm hf://org/name --wait -- vllm serve org/name
  anamnesis warm models/llama --tp 4 --rank $RANK -- python worker.py
  anamnesis warm llama.iot --dir models/llama

Requires no privileges. Nothing is evicted, and reading stops when the memory of the control group or the machine is full.

Exit status: 0 success, also if memory was full; 1 a file could not be read; 2 invalid arguments; 130 interrupted; that of COMMAND if it was started.";

#[derive(Debug, Args)]
#[command(after_help = WARM_HELP)]
pub(crate) struct WarmArgs {
    /// Model (file, directory, shard index, hf://owner/name in the hub's cache), directory of several models, or template (.iot, .json).
    #[arg(value_name = "SOURCE", value_hint = ValueHint::AnyPath)]
    pub(crate) source: PathBuf,
    /// Command to start and run alongside.
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
    /// Start COMMAND when reading is complete or memory is full.
    #[arg(long, requires = "command")]
    pub(crate) wait: bool,
    /// Directory of a template's model [default: from the arguments of COMMAND, else the template's own].
    #[arg(long, short, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) dir: Option<PathBuf>,
    /// Read for the worker with rank RANK only; may be repeated [default: all workers].
    #[arg(long, value_name = "RANK")]
    pub(crate) rank: Vec<u32>,

    #[command(flatten)]
    pub(crate) prediction: PredictionArgs,

    /// Memory use above which nothing is read, in percent of the limit; `off` disables this.
    #[arg(long, value_name = "PERCENT", default_value = "90", value_parser = percent, help_heading = "Memory")]
    pub(crate) threshold: Threshold,
    /// Number of threads [default: 4; 1 on devices with a read-ahead of 1 MiB or more].
    #[arg(long, value_name = "N", value_parser = prefetch_threads(), help_heading = "Device")]
    pub(crate) threads: Option<usize>,
    /// Maximum rate in bytes per second, such as 500MB [default: unlimited].
    #[arg(long, value_name = "BYTES", value_parser = rate, help_heading = "Device")]
    pub(crate) bandwidth: Option<u64>,
    /// Print one JSON document.
    #[arg(long, short, help_heading = "View")]
    pub(crate) json: bool,
    /// Suppress the summary.
    #[arg(long, short, help_heading = "View")]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) opening: OpenArgs,
}
