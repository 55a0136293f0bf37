//! The arguments of `ppc` and `record`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use super::values::bytes;

#[derive(Debug, Subcommand)]
pub(crate) enum Ppc {
    /// Listen for page cache misses below a directory, and let policies answer them.
    Run(Box<PpcRun>),
    /// Show how the runtimes of this machine are doing.
    Status(PpcStatus),
    /// The process of one policy of a shared library.
    #[command(hide = true)]
    Host,
}

const RUN: &str = "\
Policies:
  none               listen, and leave everything to the kernel
  eager              at the first miss bring every file of the directory
  maio:T.iot[,…]     follow this template: bring what comes next, let go of what was read
  maio:DIR[,…]       follow the service's template in DIR; record it if there is none
  ./libpolicy.so[:…] a shared library (include/ppc.h); what follows the colon is its configuration

Examples:
  anamnesis template predict models/llama -o llama.iot
  anamnesis ppc run --dir models/llama --policy maio:llama.iot -- python serve.py models/llama
  anamnesis ppc run --dir models --policy maio:/var/lib/templates

Needs CAP_PERFMON (or root) for the kernel's events, on Linux 6.18 or later; on older kernels more is told than misses.
With a command, the exit status is the command's.";

#[derive(Debug, Args)]
#[command(after_help = RUN)]
pub(crate) struct PpcRun {
    /// The directory whose files policies decide for.
    #[arg(long, short, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) dir: PathBuf,
    /// Who decides: [DIR=]POLICY[:CONFIG]; with DIR, below this directory only. May be repeated.
    #[arg(long, short, value_name = "POLICY", default_value = "none")]
    pub(crate) policy: Vec<String>,
    /// Start this, say so to the policies, and end with it.
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,

    /// Who tells what happens: the best that this machine permits if not given.
    #[arg(long, value_name = "NAME", help_heading = "Events")]
    pub(crate) source: Option<String>,
    /// Keep what is told in this file, to be told again with --source replay:FILE.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Events")]
    pub(crate) log: Option<PathBuf>,

    /// Be in the control groups of this process, which is charged for what is brought, and has its limits.
    #[arg(long, value_name = "PID", help_heading = "Memory")]
    pub(crate) join: Option<u32>,
    /// Share of the memory that may be used above which nothing is brought and policies are asked what to let go;
    /// `off`: memory is not looked at.
    #[arg(long, value_name = "PERCENT", default_value = "90", value_parser = percent, help_heading = "Memory")]
    pub(crate) threshold: Threshold,

    /// Threads that read; four if not given, of which a list has one where the device reads 1 MiB ahead or more.
    #[arg(long, value_name = "N", help_heading = "Device")]
    pub(crate) threads: Option<usize>,
    /// Bytes per second that are brought at most, such as 500MB.
    #[arg(long, value_name = "BYTES", value_parser = bytes, help_heading = "Device")]
    pub(crate) bandwidth: Option<u64>,

    /// Say nothing at the beginning and the end.
    #[arg(long, short, help_heading = "View")]
    pub(crate) quiet: bool,
}

/// A share of memory, or none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Threshold(pub(crate) Option<f64>);

fn percent(text: &str) -> Result<Threshold, String> {
    if text == "off" {
        return Ok(Threshold(None));
    }
    let number: f64 = text
        .trim_end_matches('%')
        .parse()
        .map_err(|_| "a number from 1 to 100, or off")?;
    if !(1.0..=100.0).contains(&number) {
        return Err("from 1 to 100, or off".into());
    }
    Ok(Threshold(Some(number / 100.0)))
}

#[derive(Debug, Args)]
pub(crate) struct PpcStatus {
    /// The runtime of this process only.
    #[arg(value_name = "PID")]
    pub(crate) pid: Option<u32>,
    /// Print one JSON document.
    #[arg(long, short, conflicts_with = "prometheus")]
    pub(crate) json: bool,
    /// Print Prometheus' text; needs PID if there are several.
    #[arg(long)]
    pub(crate) prometheus: bool,
}

const RECORD: &str = "\
Examples:
  anamnesis record -o llama.iot -- python serve.py models/llama
  anamnesis record -o llama.iot --dir models/llama --workers env:LOCAL_RANK -- torchrun --nproc-per-node 4 serve.py
  anamnesis record -o llama.iot --dir models/llama --pid 4242

Needs CAP_PERFMON (or root) for the kernel's events.";

#[derive(Debug, Args)]
#[command(after_help = RECORD)]
pub(crate) struct Record {
    /// The template that is written.
    #[arg(long, short, value_name = "T.iot", value_hint = ValueHint::FilePath)]
    pub(crate) out: PathBuf,
    /// The model's directory; found among the command's arguments if not given.
    #[arg(long, short, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) dir: Option<PathBuf>,
    /// Record this process and those that it starts, until it ends or Ctrl-C.
    #[arg(long, value_name = "PID", conflicts_with = "command")]
    pub(crate) pid: Option<u32>,
    /// Which process is which worker: auto, bytes, order, env, env:NAME, accelerator.
    #[arg(long, value_name = "RULE", default_value = "auto")]
    pub(crate) workers: String,
    /// Who tells what happens: the best that this machine permits if not given.
    #[arg(long, value_name = "NAME")]
    pub(crate) source: Option<String>,
    /// Leave in memory what is there of the model: a recording may lack what is read of it.
    #[arg(long, conflicts_with = "pid")]
    pub(crate) warm: bool,
    /// Only what was seen; what the catalog says of the tensors is not added.
    #[arg(long)]
    pub(crate) raw: bool,
    /// A run-time parameter of the service, which becomes part of its id; may be repeated.
    #[arg(long = "parameter", value_name = "KEY=VALUE")]
    pub(crate) parameters: Vec<String>,
    /// Replace the template.
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Print one JSON document.
    #[arg(long, short)]
    pub(crate) json: bool,
    /// Start this, and record until it ends.
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}
