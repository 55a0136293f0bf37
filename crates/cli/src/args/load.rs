//! The arguments of `load`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use globset::GlobMatcher;

use super::OpenArgs;
use super::values::{depth, name_pattern, rounds, threads};

const EXAMPLES: &str = "\
Examples:
  anamnesis load model.safetensors                 choose a loader and measure it
  anamnesis load model.gguf --repeat 5             reuse the buffers: no page faults after round 1
  anamnesis load llama/ --cold --loader direct     measure the device with O_DIRECT
  anamnesis load model.safetensors --loader mmap   borrow mapped bytes from the page cache

Exit status: 0 success, 1 a file could not be read, 2 invalid arguments, 130 interrupted.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LoadArgs {
    /// File, directory, shard index, any file of a split GGUF, or URL.
    #[arg(value_name = "SOURCE", value_hint = ValueHint::AnyPath)]
    pub(crate) source: PathBuf,
    /// Loader to use.
    #[arg(long, value_enum, value_name = "NAME", default_value_t = LoaderName::Auto, help_heading = "Loading")]
    pub(crate) loader: LoaderName,
    /// Number of threads that read (pread, uring, direct) and decompress [default: one per core; uring, direct: at most four].
    #[arg(
        long,
        value_name = "N",
        value_parser = threads(),
        default_value_t = 0,
        hide_default_value = true,
        help_heading = "Loading"
    )]
    pub(crate) threads: usize,
    /// Number of concurrent reads (uring, direct) [default: 16], or the most requests at a time (remote) [default: 64].
    #[arg(long, value_name = "N", value_parser = depth(), help_heading = "Loading")]
    pub(crate) depth: Option<usize>,
    /// Borrow the bytes of mapped files instead of copying them, where they are in the page cache.
    #[arg(long, help_heading = "Loading")]
    pub(crate) borrow_mapped: bool,
    /// Load only tensors whose full name matches; may be repeated. Syntax as in `inspect --filter`.
    #[arg(long, short, value_name = "GLOB", value_parser = name_pattern, help_heading = "Loading")]
    pub(crate) filter: Vec<GlobMatcher>,
    /// Number of rounds; later rounds reuse the buffers of the first, as in a service that reloads.
    #[arg(
        long,
        value_name = "N",
        value_parser = rounds(),
        default_value_t = 1,
        help_heading = "Measuring"
    )]
    pub(crate) repeat: usize,
    /// Evict the files from the page cache before each round.
    ///
    /// Dirty pages and pages that another process maps stay; the column `cached before` shows their share.
    #[arg(long, help_heading = "Measuring")]
    pub(crate) cold: bool,
    /// Print one JSON document.
    #[arg(long, short, help_heading = "Measuring")]
    pub(crate) json: bool,
    /// Record the reads of the first round as an I/O template; as JSON if the name ends in .json.
    #[arg(long, value_name = "TEMPLATE", value_hint = ValueHint::FilePath, help_heading = "Recording")]
    pub(crate) record: Option<PathBuf>,
    /// Replace an existing template.
    #[arg(long, requires = "record", help_heading = "Recording")]
    pub(crate) overwrite: bool,
    #[command(flatten)]
    pub(crate) opening: OpenArgs,
}

/// Loaders, as the command line names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LoaderName {
    /// Choose by storage and page cache contents, and print the reason.
    Auto,
    /// Map the files and borrow their bytes; the measurement touches every page.
    Mmap,
    /// Read with a pool of threads.
    Pread,
    /// Read with io_uring through the page cache.
    Uring,
    /// Read with io_uring and O_DIRECT.
    Direct,
    /// Request URLs, many ranges at a time; the choice of `auto` for them.
    Remote,
}
