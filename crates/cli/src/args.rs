//! The command-line arguments. clap generates the parser, the help texts, the manual pages and the completions from them.

mod check;
mod convert;
mod diff;
mod edit;
mod first_word;
mod fit;
mod load;
mod ls;
#[cfg(target_os = "linux")]
mod ppc;
mod quantise;
mod remember;
mod report;
mod template;
mod values;
#[cfg(target_os = "linux")]
mod warm;

use std::ffi::OsString;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use anamnesis::sink::SafetensorsSink;
use anamnesis::{CancelToken, Dtype, Format, Limits, OpenOptions};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum, ValueHint};
use globset::GlobMatcher;

pub(crate) use check::CheckArgs;
pub(crate) use convert::ConvertArgs;
pub(crate) use diff::{DiffArgs, DiffOrder};
pub(crate) use edit::EditArgs;
pub(crate) use fit::FitArgs;
pub(crate) use load::{LoadArgs, LoaderName};
pub(crate) use ls::{ListOrder, LsArgs};
#[cfg(target_os = "linux")]
pub(crate) use ppc::{
    LogLevel, PpcRegArgs, PpcRmArgs, PpcRunArgs, PpcStatusArgs, PpcVerb, RecordArgs,
};
pub(crate) use quantise::TypeArgument;
pub(crate) use remember::{PlanArgs, RememberArgs, WeightArgs};
pub(crate) use report::ReportArgs;
pub(crate) use template::{
    CompareArgs, MergeArgs, PredictArgs, PredictionArgs, ShowArgs, TemplateArgs, TemplateReadArgs,
    TemplateVerb,
};

#[cfg(target_os = "linux")]
pub(crate) use warm::WarmArgs;

use crate::paths::is_url;
use crate::version::version;
pub(crate) use values::{check_new_keys, typed_value};
use values::{dtype, format, name_pattern};

const OVERVIEW_EXAMPLES: &str = "\
Examples:
  anamnesis model.gguf
  anamnesis ls ~/models --arch 'qwen*'
  anamnesis convert model-fp8/ -o one.safetensors
  anamnesis edit model.gguf --set general.name='My model'
  anamnesis remember model-Q4_K_M.gguf -o model.safetensors
  anamnesis load model.safetensors
  anamnesis fit model.gguf --context 32K --memory 24GiB
  anamnesis diff llama/ llama-Q8_0.gguf
  anamnesis warm llama/ -- python serve.py llama/
  anamnesis check llama/
  anamnesis report model.gguf -o model.html
  anamnesis template predict llama/ -o llama.iot --tp 4
  anamnesis ppc run --dir llama/ --policy maio:llama.iot -- python serve.py llama/

Exit status: 0 success, 1 failure, 2 invalid arguments, 130 interrupted.";

const INSPECT_EXAMPLES: &str = "\
Examples:
  anamnesis model.gguf                                  show format, totals and tensors
  anamnesis inspect --tree model.safetensors            show a tree, equal layers on one line
  anamnesis inspect --filter '*.attn_*' model.gguf      list the matching tensors only
  anamnesis inspect --metadata=general.name model.gguf  print one metadata value
  anamnesis inspect --json checkpoint/ | jq .checkpoints[0].totals

Exit status: 0 success, 1 a file could not be read, 2 invalid arguments.";

/// Inspect, dequantise and load tensor files (safetensors, GGUF, NPY, NPZ, PyTorch).
///
/// Input files are treated as untrusted: every header is verified, resource use is limited, and no code that a file
/// contains is run.
#[derive(Debug, Parser)]
#[command(name = "anamnesis", version = version(), after_help = OVERVIEW_EXAMPLES, max_term_width = 100)]
pub(crate) struct Cli {
    /// When to use colours; `auto` respects NO_COLOR and CLICOLOR_FORCE.
    #[arg(long, value_enum, default_value_t = Color::Auto, value_name = "WHEN", global = true, display_order = 100)]
    pub(crate) color: Color,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Show the format, totals, tensors and metadata of files: what a path without a verb does.
    #[command(visible_alias = "i")]
    Inspect(Box<InspectArgs>),
    /// List the models of directories, caches and buckets, one line each.
    #[command(alias = "list")]
    Ls(Box<LsArgs>),
    /// Copy tensors as they are stored: merge, split, rename, leave out, or write another container.
    Convert(Box<ConvertArgs>),
    /// Change metadata and names of tensors in files that exist, without writing the tensors where possible.
    Edit(Box<EditArgs>),
    /// Convert, dequantised: write the weights that quantised tensors stand for, as safetensors.
    #[command(visible_alias = "r")]
    Remember(Box<RememberArgs>),
    /// Load a checkpoint into memory and report speed and resource use.
    #[command(visible_alias = "l")]
    Load(Box<LoadArgs>),
    /// Show what `remember` would read and write, without writing it.
    Plan(Box<PlanArgs>),
    /// Estimate the memory of a model: weights and cache, by the rule of an engine.
    #[command(visible_alias = "f")]
    Fit(Box<FitArgs>),
    /// Show what differs between two checkpoints of any formats: tensors, values, configuration.
    #[command(visible_alias = "d")]
    Diff(Box<DiffArgs>),
    /// Read a model into the page cache, before a program or alongside it (Linux).
    ///
    /// Needs no privileges. Reads what a worker will read, in that order, within the memory of its control group.
    #[cfg(target_os = "linux")]
    Warm(Box<WarmArgs>),
    /// Check whether files are whole and values sane.
    Check(Box<CheckArgs>),
    /// Write a page that shows a model: sizes, layers, memory, findings, statistics, metadata.
    Report(Box<ReportArgs>),
    /// Record which bytes of a model a program reads, as an I/O template (Linux).
    #[cfg(target_os = "linux")]
    Record(Box<RecordArgs>),
    /// Prefetch and evict model files in the page cache, by policy (Linux).
    #[cfg(target_os = "linux")]
    #[command(subcommand)]
    Ppc(PpcVerb),
    /// Predict, show, compare and merge I/O templates.
    ///
    /// An I/O template lists which bytes of a model each worker of an inference service reads, in which order.
    #[command(visible_alias = "t")]
    Template(TemplateArgs),
    /// Print a completion script for a shell.
    Completions(CompletionsArgs),
    /// Print the manual pages or write them to a directory.
    Man(ManArgs),
}

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// If standard output is a terminal.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

#[derive(Debug, Args)]
#[command(after_help = INSPECT_EXAMPLES)]
pub(crate) struct InspectArgs {
    /// Files, directories, shard indexes (*.index.json), URLs or glob patterns; `-` is standard input.
    ///
    /// Any file of a split GGUF opens the whole split. A directory opens the checkpoint in it. URLs (https://,
    /// s3://bucket/prefix, hf://owner/name, ms://owner/name, oci://registry/repository:tag, ollama://model:tag) are read where they are.
    /// Patterns that the shell did not expand are expanded, unless a file of that exact name exists.
    #[arg(required_unless_present = "metadata", value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) paths: Vec<PathBuf>,

    /// Show the tensors as a tree of their dotted names, with subtotals.
    ///
    /// Numbered siblings with equal contents (layers.0 to layers.31) are combined into one line: its sizes are totals, those
    /// below it are of one sibling.
    #[arg(long, short, help_heading = "View")]
    pub(crate) tree: bool,
    /// With --tree, show every numbered sibling on its own line.
    #[arg(long, short, requires = "tree", help_heading = "View")]
    pub(crate) all: bool,
    /// Show the tensors as a list, one line each: the default, except on a terminal.
    ///
    /// On a terminal the default is a tree of as many levels as fit on the screen, unless tensors are sorted or hashed.
    #[arg(long, conflicts_with = "tree", help_heading = "View")]
    pub(crate) list: bool,
    /// Show the overview only, without tensors.
    #[arg(long, short, visible_alias = "no-tensors", conflicts_with_all = ["tree", "list", "sort"], help_heading = "View")]
    pub(crate) summary: bool,
    /// Show each model at or below a directory or a prefix, as `ls` finds them: the overview of each, unless an option for its
    /// tensors is given.
    #[arg(long, help_heading = "View")]
    pub(crate) recursive: bool,
    /// Show the metadata instead of the tensors; with KEY, print the value of that key.
    ///
    /// The list shortens long strings and arrays. The value of a KEY is printed in full and without
    /// anything else: a string unchanged (escaped on a terminal), an array with one element per line. With --json, the document
    /// is complete and KEY only adds the full value. A word after `--metadata ` that names an existing
    /// path, or the only remaining PATH, is a PATH; --metadata=KEY is always a key.
    #[arg(long, short, value_name = "KEY", num_args = 0..=1, help_heading = "View")]
    pub(crate) metadata: Option<Option<String>>,
    /// Print one JSON document.
    #[arg(long, short, help_heading = "View")]
    pub(crate) json: bool,

    /// List and count only tensors whose full name matches; may be repeated.
    ///
    /// `*` matches any text including dots, `?` one character, `[a-z]` a character class, `{q,k,v}` alternatives. One match
    /// suffices.
    #[arg(long, short, value_name = "GLOB", value_parser = name_pattern, help_heading = "Tensors")]
    pub(crate) filter: Vec<GlobMatcher>,
    /// Sort the tensors [default: file order].
    #[arg(long, value_enum, value_name = "BY", help_heading = "Tensors")]
    pub(crate) sort: Option<SortKey>,
    /// Reverse the order.
    #[arg(long, short, help_heading = "Tensors")]
    pub(crate) reverse: bool,
    /// Add the SHA-256 of each tensor's values; reads all bytes.
    ///
    /// The hash is over the values in C order, little endian and uncompressed; quantisation blocks are hashed as stored. Equal
    /// values have equal hashes in every format and byte order.
    #[arg(long, help_heading = "Tensors")]
    pub(crate) hash: bool,

    #[command(flatten)]
    pub(crate) opening: OpenArgs,
}

/// How files are opened, shared by every verb that reads a checkpoint.
#[derive(Debug, Args)]
#[command(next_help_heading = "Opening")]
pub(crate) struct FileArgs {
    /// Open only the named file, even if it is part of a split GGUF.
    #[arg(long)]
    pub(crate) single: bool,
    /// Read files instead of mapping them, for files that change and for network file systems.
    #[arg(long)]
    pub(crate) no_map: bool,
    /// Disable the limits on memory and work per file; only for trusted files.
    #[arg(long)]
    pub(crate) no_limits: bool,
    /// Read NumPy void items of DTYPE's width as DTYPE (BF16 for V2); may be repeated.
    ///
    /// NumPy writes `V2` for the bfloat16 of ml_dtypes. One DTYPE for each width.
    #[arg(long, value_name = "DTYPE", value_parser = dtype(), hide_possible_values = true, ignore_case = true)]
    pub(crate) void_as: Vec<Dtype>,
    /// Keep objects of unknown classes in a pickle as class name and plain state, without calling anything, and read the
    /// tensors around them.
    ///
    /// Such as `argparse.Namespace`, or the callbacks of a training framework. Nothing is called or imported; a tensor that an
    /// unknown class or function makes is refused. A warning lists the classes and counts their objects.
    #[arg(long)]
    pub(crate) opaque: bool,
    /// Ignore what is not known about stored weights (tensors, settings and markers beside them), and copy integers that no
    /// scheme claims. The only value is `plain`.
    #[arg(long, value_name = "plain", value_parser = ["plain"], hide_possible_values = true)]
    pub(crate) assume: Option<String>,
    /// Read files as this format instead of detecting it.
    #[arg(long, value_name = "NAME", value_parser = format())]
    pub(crate) format: Option<&'static Format>,
    /// Send no request: read URLs from the caches on this machine, or fail.
    #[cfg(feature = "remote")]
    #[arg(long)]
    pub(crate) offline: bool,
    /// Keep what opening reads of URLs in DIR, and compare it with the server by one request a file from then on [default: the
    /// variable ANAMNESIS_HEADER_CACHE].
    ///
    /// With --offline it is read without a request.
    #[cfg(feature = "remote")]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) header_cache: Option<PathBuf>,
    /// Send this header to the hosts of http(s) URLs, such as 'Authorization: Bearer TOKEN'; may be repeated.
    ///
    /// It follows no redirect to another host. Other users of the machine see arguments: the variable ANAMNESIS_TOKENS has tokens
    /// (HOST=TOKEN, several with spaces between them), and ~/.netrc logins, which are sent to their host by https.
    #[cfg(feature = "remote")]
    #[arg(long, value_name = "NAME: VALUE")]
    pub(crate) header: Vec<String>,
    /// Counts of requests, over all checkpoints that a run opens.
    #[cfg(feature = "remote")]
    #[arg(skip)]
    counters: anamnesis::remote::RequestCounters,
}

/// How files are opened, and what is reported about URLs.
#[derive(Debug, Args)]
#[command(next_help_heading = "Opening")]
pub(crate) struct OpenArgs {
    #[command(flatten)]
    pub(crate) files: FileArgs,
    /// Report on standard error what was requested for URLs: requests, round trips, bytes, times, repetitions.
    ///
    /// Bytes are requested, received, used and uploaded; times are those to the first byte. With --json, the document has the
    /// same as the field `requests`.
    #[cfg(feature = "remote")]
    #[arg(long)]
    pub(crate) stats: bool,
}

impl Deref for OpenArgs {
    type Target = FileArgs;

    fn deref(&self) -> &FileArgs {
        &self.files
    }
}

impl OpenArgs {
    /// The requests so far; `None` without `--stats`.
    #[cfg(feature = "remote")]
    pub(crate) fn request_stats(&self) -> Option<anamnesis::remote::RequestStats> {
        self.stats.then(|| self.counters.stats())
    }

    /// The sink, which writes to buckets under the options of the arguments.
    #[cfg(feature = "remote")]
    pub(crate) fn remote_sink(
        &self,
        sink: SafetensorsSink,
        token: &CancelToken,
    ) -> SafetensorsSink {
        let (mut remote, token) = (self.remote(), token.clone());
        let is_cancelled = move || token.is_cancelled();
        remote.cancel = Some(anamnesis::remote::CancelCheck::new(is_cancelled));
        sink.remote(remote)
    }

    #[cfg(not(feature = "remote"))]
    pub(crate) fn remote_sink(&self, sink: SafetensorsSink, _: &CancelToken) -> SafetensorsSink {
        sink
    }
}

impl FileArgs {
    /// Options of requests to URLs.
    #[cfg(feature = "remote")]
    fn remote(&self) -> anamnesis::remote::RemoteOptions {
        let mut remote = anamnesis::remote::RemoteOptions::default();
        remote.offline = self.offline;
        self.header
            .iter()
            .for_each(|header| remote.headers.add(header));
        remote.header_cache = self.header_cache.clone().or_else(|| {
            let variable = std::env::var_os("ANAMNESIS_HEADER_CACHE");
            // an empty variable is how shells unset one for a single command; it must not make the working directory
            // the cache
            variable.filter(|dir| !dir.is_empty()).map(PathBuf::from)
        });
        // clones share one count, so that `--stats` covers every checkpoint that a run opens
        remote.counters = Some(self.counters.clone());
        remote
    }

    /// Files whose header was read from the cache of headers and not compared with a server's.
    #[cfg(feature = "remote")]
    pub(crate) fn uncompared_headers(&self) -> u64 {
        // with a network, every cached header is compared before it is used
        if self.offline {
            self.counters.stats().cached_headers
        } else {
            0
        }
    }

    pub(crate) fn limits(&self) -> Limits {
        if self.no_limits {
            Limits::none()
        } else {
            Limits::default()
        }
    }

    pub(crate) fn options(&self) -> OpenOptions {
        let options = OpenOptions::new();
        #[cfg(feature = "remote")]
        let options = options.remote(self.remote());
        let options = options
            .limits(self.limits())
            .mmap(!self.no_map)
            .single(self.single)
            .opaque(self.opaque)
            .assume_plain(self.assume.is_some());
        let options = self
            .void_as
            .iter()
            .fold(options, |options, dtype| options.void_as(*dtype));
        self.format
            .iter()
            .fold(options, |options, format| options.format(format))
    }
}

impl Verb {
    /// How the verb opens files, if it does.
    pub(crate) fn files(&self) -> Option<&FileArgs> {
        match self {
            Self::Check(args) => Some(&args.opening),
            Self::Report(args) => Some(&args.opening),
            _ => self.opening().map(|opening| &opening.files),
        }
    }

    /// How the verb opens checkpoints and reports about URLs, if it does.
    pub(crate) fn opening(&self) -> Option<&OpenArgs> {
        match self {
            Self::Inspect(args) => Some(&args.opening),
            Self::Ls(args) => Some(&args.opening),
            Self::Convert(args) => Some(&args.opening),
            Self::Remember(args) => Some(&args.opening),
            Self::Load(args) => Some(&args.opening),
            Self::Plan(args) => Some(&args.opening),
            Self::Fit(args) => Some(&args.opening),
            Self::Diff(args) => Some(&args.opening),
            #[cfg(target_os = "linux")]
            Self::Warm(args) => Some(&args.opening),
            Self::Template(TemplateArgs {
                verb: TemplateVerb::Predict(args),
            }) => Some(&args.opening),
            _ => None,
        }
    }
}

impl Cli {
    /// Parses arguments, of which the first is the program's name.
    pub(crate) fn read(words: &[OsString]) -> Result<Self, clap::Error> {
        let mut cli = first_word::parse(words)?;
        if let Verb::Inspect(inspect) = &mut cli.verb {
            inspect.resolve_metadata_word(
                // clap does not report which of the two forms was written
                words
                    .iter()
                    .any(|word| word.to_string_lossy().starts_with("--metadata=")),
            );
            // clap requires no PATH where `--metadata` is given, since its word may turn out to be the PATH
            if inspect.paths.is_empty() {
                let message = "`--metadata=KEY` needs a PATH";
                return Err(Self::command().error(ErrorKind::MissingRequiredArgument, message));
            }
        }
        Ok(cli)
    }
}

impl InspectArgs {
    /// Whether the tensors are left out.
    pub(crate) fn is_summary(&self) -> bool {
        let is_list =
            self.tree || self.list || self.sort.is_some() || !self.filter.is_empty() || self.hash;
        self.summary || (self.recursive && !is_list)
    }

    /// Whether a terminal shows as much of the tree as fits.
    pub(crate) fn is_fitted(&self) -> bool {
        let is_ordered = self.sort.is_some() || self.reverse || self.hash;
        !self.list && !self.tree && !is_ordered
    }

    /// Decides whether the word after `--metadata` is a key or a path. clap cannot: `--metadata KEY PATH` and
    /// `--metadata PATH` have the same form. `has_equals` means that `--metadata=KEY` was written, which is a key.
    fn resolve_metadata_word(&mut self, has_equals: bool) {
        let Some(Some(word)) = &self.metadata else {
            return;
        };
        // existence decides: keys of metadata are hardly ever names of files, and a PATH is useless if nothing is there
        let is_path = |word: &Path| is_url(word) || word.exists();
        if !has_equals && (self.paths.is_empty() || is_path(Path::new(word))) {
            self.paths.insert(0, PathBuf::from(word));
            self.metadata = Some(None);
        }
    }
}

/// Sort keys for tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SortKey {
    /// By name, digits compared as numbers.
    Name,
    /// By stored size, largest first.
    Size,
    /// By dtype.
    Dtype,
    /// By file and offset.
    Offset,
    /// By file.
    File,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Shell to generate the script for.
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Write one file per page to DIR instead of printing all pages.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) out: Option<PathBuf>,
    /// Print one page in Markdown instead: all verbs and options.
    #[arg(long, conflicts_with = "out")]
    pub(crate) markdown: bool,
    /// Replace the files in DIR that exist.
    #[arg(long, requires = "out")]
    pub(crate) overwrite: bool,
}
