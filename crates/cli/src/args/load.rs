//! The arguments of `load`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use globset::GlobMatcher;

use super::Opening;
use super::values::name_pattern;

const EXAMPLES: &str = "\
Examples:
  anamnesis load model.safetensors                       which loader suits, and how fast it is
  anamnesis load model.gguf --repeat 5                   the same memory again: no page faults
  anamnesis load llama/ --cold --loader direct           from the device
  anamnesis load model.safetensors --loader mmap         lent by the page cache

Exit status: 0 done, 1 a file could not be read, 2 wrong usage, 130 interrupted.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Load {
    /// A file, a directory, a shard index, any part of a split GGUF.
    #[arg(value_name = "SOURCE", value_hint = ValueHint::AnyPath)]
    pub(crate) source: PathBuf,
    /// How bytes are brought.
    #[arg(long, value_enum, value_name = "NAME", default_value_t = LoaderName::Auto, help_heading = "Loading")]
    pub(crate) loader: LoaderName,
    /// Threads that read (pread) and that unpack; one per core if not given.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        hide_default_value = true,
        help_heading = "Loading"
    )]
    pub(crate) threads: usize,
    /// Reads in flight (uring, direct); 16 if not given.
    #[arg(long, value_name = "N", help_heading = "Loading")]
    pub(crate) depth: Option<usize>,
    /// The mapped file will do: nothing is copied where it is in the page cache.
    #[arg(long, help_heading = "Loading")]
    pub(crate) lend: bool,
    /// Only tensors whose whole name matches; may be repeated. Patterns are those of `inspect --filter`.
    #[arg(long, short, value_name = "GLOB", value_parser = name_pattern, help_heading = "Loading")]
    pub(crate) filter: Vec<GlobMatcher>,
    /// Load so many times, into the memory of the first time.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        help_heading = "Measuring"
    )]
    pub(crate) repeat: usize,
    /// Drop the files from the page cache before each time (what is mapped elsewhere or not written yet stays).
    #[arg(long, help_heading = "Measuring")]
    pub(crate) cold: bool,
    /// Print one JSON document.
    #[arg(long, short, help_heading = "Measuring")]
    pub(crate) json: bool,
    /// Write down which bytes were read in which order the first time: an I/O template, as JSON if the name ends in
    /// .json.
    #[arg(long, value_name = "TEMPLATE", value_hint = ValueHint::FilePath, help_heading = "Recording")]
    pub(crate) record: Option<PathBuf>,
    /// Replace a template that exists.
    #[arg(long, requires = "record", help_heading = "Recording")]
    pub(crate) overwrite: bool,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

/// Ways to bring bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LoaderName {
    /// Whichever suits what can be seen of the files.
    Auto,
    /// Lend the mapped file.
    Mmap,
    /// Threads that read.
    Pread,
    /// Reads in flight by io_uring.
    Uring,
    /// Reads in flight by io_uring, past the page cache.
    Direct,
}
