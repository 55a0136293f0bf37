//! The arguments of `ppc` and `record`.

use std::ffi::OsString;
use std::fmt::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

use anamnesis_maio::MaioConfig;
use clap::{Args, Subcommand, ValueEnum, ValueHint};

use super::values::{prefetch_threads, rate};

#[derive(Debug, Subcommand)]
pub(crate) enum PpcVerb {
    /// Run policies on the page cache events of a directory.
    ///
    /// With COMMAND, start it, run until it ends, and return its exit status. Without, run until SIGTERM or Ctrl-C.
    Run(Box<PpcRunArgs>),
    /// Show the status of the running `ppc run` processes.
    Status(PpcStatusArgs),
    /// Register a policy with a running `ppc run`, in place of the one that the directory has.
    Reg(PpcRegArgs),
    /// Remove the policy of a directory from a running `ppc run`.
    Rm(PpcRmArgs),
    /// Host process of a policy from a shared library; started by `ppc run`.
    #[command(hide = true)]
    Host,
}

const RUN_HELP: &str = "\
Policies:
  none                     receive events, prefetch and evict nothing
  eager                    prefetch every file of the directory at the first miss
  maio:T.iot[,OPTION]      follow template T.iot: prefetch the next accesses, evict after use
  maio:DIR[,OPTION]        follow each model's template in DIR; record it if there is none
  ./libpolicy.so[:CONFIG]  load a policy from a shared library (include/ppc.h)

Examples:
  anamnesis template predict models/llama -o llama.iot
  anamnesis ppc run --dir models/llama --policy maio:llama.iot -- python serve.py models/llama
  anamnesis ppc run --dir models --policy maio:/var/lib/templates

Requires root, or CAP_PERFMON and CAP_DAC_READ_SEARCH, for the kernel's events. Kernels before Linux 6.18 report every insertion into the page cache instead of misses.";

/// [`RUN_HELP`] with the options of `maio`.
fn run_long_help() -> String {
    let mut options = String::from("Options of maio:\n");
    for option in MaioConfig::OPTIONS {
        let item = format!("{}={}", option.key, option.values);
        let default = match option.default {
            "" => String::new(),
            default => format!(" [default: {default}]"),
        };
        // writing to a string cannot fail
        let _ = writeln!(options, "  {item}\n          {}{default}", option.meaning);
    }
    // in front of the examples, which belong at the end; from the policy's own list, so that help and parser agree
    RUN_HELP.replace("Examples:\n", &format!("{options}\nExamples:\n"))
}

#[derive(Debug, Args)]
#[command(after_help = RUN_HELP, after_long_help = run_long_help())]
pub(crate) struct PpcRunArgs {
    /// Directory whose files the policies control.
    #[arg(long, short, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) dir: PathBuf,
    /// Policy to run, as [DIR=]POLICY[:CONFIG]; with DIR, only for files below it. May be repeated.
    ///
    /// The deepest directory has precedence.
    #[arg(long, short, value_name = "POLICY", default_value = "none")]
    pub(crate) policy: Vec<String>,
    /// Command to start and run alongside.
    ///
    /// It is always started. Without access to events, the model is read as by `anamnesis warm`.
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
    /// Do not start COMMAND if a policy or the events are not available.
    #[arg(long, requires = "command")]
    pub(crate) require: bool,

    /// Event source [default: the best available].
    #[arg(long, value_name = "NAME", help_heading = "Events")]
    pub(crate) source: Option<String>,
    /// Write the events to FILE; `--source replay:FILE` replays them.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Events")]
    pub(crate) event_log: Option<PathBuf>,

    /// Join the control groups of PID: prefetched pages are charged to them and respect their limits.
    #[arg(long, value_name = "PID", help_heading = "Memory")]
    pub(crate) join: Option<u32>,
    /// Memory use above which prefetching stops and policies evict, in percent of the limit; `off` disables this.
    #[arg(long, value_name = "PERCENT", default_value = "90", value_parser = percent, help_heading = "Memory")]
    pub(crate) threshold: Threshold,

    /// Number of prefetch threads [default: 4].
    ///
    /// On devices with a read-ahead of 1 MiB or more, each prefetch list uses one thread.
    #[arg(long, value_name = "N", value_parser = prefetch_threads(), help_heading = "Device")]
    pub(crate) threads: Option<usize>,
    /// Maximum prefetch rate in bytes per second, such as 500MB [default: unlimited].
    #[arg(long, value_name = "BYTES", value_parser = rate, help_heading = "Device")]
    pub(crate) bandwidth: Option<u64>,

    /// Least severe messages to print: error, warn, info, debug or trace.
    ///
    /// A policy from a shared library prints its standard output and standard error as `info`, and lines of its log by their levels.
    #[arg(
        long,
        value_name = "LEVEL",
        value_enum,
        hide_possible_values = true,
        default_value = "warn",
        help_heading = "View"
    )]
    pub(crate) log: LogLevel,
    /// Suppress the messages at the start and the end.
    #[arg(long, short, help_heading = "View")]
    pub(crate) quiet: bool,
}

/// The least severe messages that are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// A memory threshold as a share of the limit; `None` is `off`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Threshold(pub(crate) Option<f64>);

pub(super) fn percent(text: &str) -> Result<Threshold, String> {
    if text == "off" {
        return Ok(Threshold(None));
    }
    let number: f64 = text
        .trim_end_matches('%')
        .parse()
        .map_err(|_| "expected a number from 1 to 100, or `off`")?;
    // 0 would prefetch nothing, which is `--policy none`; NaN is in no range
    if !(1.0..=100.0).contains(&number) {
        return Err("expected a number from 1 to 100, or `off`".into());
    }
    Ok(Threshold(Some(number / 100.0)))
}

#[derive(Debug, Args)]
pub(crate) struct PpcStatusArgs {
    /// Show only the runtime in process PID.
    #[arg(value_name = "PID")]
    pub(crate) pid: Option<u32>,
    /// Print one JSON document.
    #[arg(long, short, conflicts_with = "prometheus")]
    pub(crate) json: bool,
    /// Print the metrics of all runtimes in the Prometheus text format, with their processes as labels.
    #[arg(long)]
    pub(crate) prometheus: bool,
    /// Serve them over HTTP at /metrics of ADDR, such as 127.0.0.1:9464, until SIGTERM or Ctrl-C.
    ///
    /// They are sent to every client, without a password or encryption.
    #[arg(
        long,
        value_name = "ADDR",
        requires = "prometheus",
        conflicts_with = "pid"
    )]
    pub(crate) listen: Option<SocketAddr>,
}

#[derive(Debug, Args)]
pub(crate) struct PpcRegArgs {
    /// Directory whose files the policy controls.
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) dir: PathBuf,
    /// Policy, as POLICY[:CONFIG] of `ppc run`.
    #[arg(value_name = "POLICY")]
    pub(crate) policy: String,
    /// Process of the runtime; needed if several are running.
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct PpcRmArgs {
    /// Directory whose policy is removed.
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) dir: PathBuf,
    /// Process of the runtime; needed if several are running.
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
}

const RECORD_HELP: &str = "\
Examples:
  anamnesis record -o llama.iot -- python serve.py models/llama
  anamnesis record -o llama.iot --dir models/llama --workers env:LOCAL_RANK -- torchrun --nproc-per-node 4 serve.py
  anamnesis record -o llama.iot --dir models/llama --pid 4242

Requires root, or CAP_PERFMON and CAP_DAC_READ_SEARCH, for the kernel's events. Without them, use `--source shim:PIPE`, `load --record` or `remember --record`.";

#[derive(Debug, Args)]
#[command(after_help = RECORD_HELP)]
pub(crate) struct RecordArgs {
    /// Template to write.
    #[arg(long, short, value_name = "T.iot", value_hint = ValueHint::FilePath)]
    pub(crate) out: PathBuf,
    /// Directory of the model [default: taken from the arguments of COMMAND].
    #[arg(long, short, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) dir: Option<PathBuf>,
    /// Record process PID and its descendants, until it ends or Ctrl-C.
    #[arg(long, value_name = "PID", conflicts_with = "command")]
    pub(crate) pid: Option<u32>,
    /// How processes map to workers: auto, bytes, order, env, env:NAME or accelerator.
    ///
    /// `env:NAME`: by an environment variable; `env`: by LOCAL_RANK or RANK; `accelerator`: by the accelerator that a process
    /// holds; `order`: by start; `bytes`: by what they read.
    #[arg(long, value_name = "RULE", default_value = "auto")]
    pub(crate) workers: String,
    /// Event source [default: the best available].
    #[arg(long, value_name = "NAME")]
    pub(crate) source: Option<String>,
    /// Keep cached pages of the model; the recording may then be incomplete.
    #[arg(long, conflicts_with = "pid")]
    pub(crate) warm: bool,
    /// Write only observed accesses, without completing tensors from the headers.
    #[arg(long)]
    pub(crate) raw: bool,
    /// Run-time parameter of the service, part of its id; may be repeated.
    #[arg(long = "parameter", value_name = "KEY=VALUE")]
    pub(crate) parameters: Vec<String>,
    /// Replace an existing template.
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Print one JSON document.
    #[arg(long, short)]
    pub(crate) json: bool,
    /// Command to start and record until it ends.
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}
