//! The arguments: one place for parsing, help, manual page and completions.

#[cfg(target_os = "linux")]
mod ppc;
mod template;

use std::path::{Path, PathBuf};

use anamnesis::format::FORMATS;
use anamnesis::{Dtype, Format, Limits, OpenOptions};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum, ValueHint};
use globset::{Glob, GlobMatcher};

#[cfg(target_os = "linux")]
pub(crate) use ppc::{Ppc, PpcRun, PpcStatus, Record};

pub(crate) use template::{Compared, Merge, Predict, Reading, Show, Template, TemplateVerb};

use crate::version::version;

const EXAMPLES: &str = "\
Examples:
  anamnesis inspect model.gguf                      what is in it
  anamnesis inspect --tree model.safetensors        by dotted name, like layers as one
  anamnesis inspect --filter '*.attn_*' model.gguf  only some of it
  anamnesis inspect --metadata=general.name model.gguf
  anamnesis inspect --json checkpoint/ | jq .checkpoints[0].totals

Exit status: 0 done, 1 a file could not be read, 2 wrong usage.";

/// Inspect tensor files (safetensors, GGUF, NPY, NPZ, PyTorch) without trusting them.
///
/// Reads headers only, believes nothing it has not checked, and never runs what a file contains.
#[derive(Debug, Parser)]
#[command(name = "anamnesis", version = version(), after_help = EXAMPLES, max_term_width = 100)]
pub(crate) struct Cli {
    /// When to use colours. NO_COLOR and CLICOLOR_FORCE count under `auto`.
    #[arg(long, value_enum, default_value_t = Color::Auto, value_name = "WHEN", global = true, display_order = 100)]
    pub(crate) color: Color,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Show what files hold: format, totals, tensors, metadata.
    #[command(visible_alias = "i")]
    Inspect(Box<Inspect>),
    /// Bring quantised weights back to full precision, as safetensors.
    #[command(visible_alias = "r")]
    Remember(Box<Remember>),
    /// Load a checkpoint into memory, and show what that took.
    #[command(visible_alias = "l")]
    Load(Box<Load>),
    /// Show what `remember` would read and make, weight by weight.
    Plan(Box<Plan>),
    /// Record which bytes of a model a program reads, as an I/O template.
    #[cfg(target_os = "linux")]
    Record(Box<Record>),
    /// Drive the page cache while models load.
    #[cfg(target_os = "linux")]
    #[command(subcommand)]
    Ppc(Ppc),
    /// Predict, show and compare I/O templates: which worker of a service reads which bytes of a model, in which order.
    #[command(visible_alias = "t")]
    Template(Template),
    /// Print a completion script for a shell.
    Completions(Completions),
    /// Print the manual pages, or write them to a directory.
    Man(Man),
}

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Inspect {
    /// Files, directories, shard indexes (….index.json), patterns; `-` for standard input.
    ///
    /// Any part of a split GGUF brings the others. A directory is opened as the checkpoint in it. A
    /// pattern that the shell did not expand is expanded; a path that exists counts as it is.
    #[arg(required_unless_present = "metadata", value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) paths: Vec<PathBuf>,

    /// Show the tensors as a tree of their dotted names, with subtotals.
    ///
    /// Numbered siblings that hold the same (layers.0 … layers.31) become one line.
    #[arg(long, short, help_heading = "View")]
    pub(crate) tree: bool,
    /// With --tree: show every numbered sibling.
    #[arg(long, short, requires = "tree", help_heading = "View")]
    pub(crate) all: bool,
    /// Show the head only, no tensors.
    #[arg(long, short, visible_alias = "no-tensors", conflicts_with_all = ["tree", "sort"], help_heading = "View")]
    pub(crate) summary: bool,
    /// Show the metadata in place of the tensors; with KEY print the whole value of one key.
    ///
    /// Long texts and arrays are shortened in the list. The value of one key is printed whole and
    /// alone: a text as it is, an array with one element per line. With --json nothing is left out;
    /// KEY only makes that value whole. A word behind the option that is a path, or that is needed as
    /// one, is taken for a PATH; --metadata=KEY is always a key.
    #[arg(long, short, value_name = "KEY", num_args = 0..=1, help_heading = "View")]
    pub(crate) metadata: Option<Option<String>>,
    /// Print one JSON document.
    #[arg(long, short, help_heading = "View")]
    pub(crate) json: bool,

    /// Only tensors whose whole name matches; may be repeated. Totals count these alone.
    ///
    /// `*` any text, `?` one character, `[a-z]` a class, `{q,k,v}` alternatives.
    #[arg(long, short, value_name = "GLOB", value_parser = name_pattern, help_heading = "Tensors")]
    pub(crate) filter: Vec<GlobMatcher>,
    /// Order of the tensors; that of the file if not given. Numbers in names count as numbers,
    /// sizes begin with the largest.
    #[arg(long, value_enum, value_name = "BY", help_heading = "Tensors")]
    pub(crate) sort: Option<Sort>,
    /// Turn the order around.
    #[arg(long, short, help_heading = "Tensors")]
    pub(crate) reverse: bool,
    /// Add the SHA-256 of each tensor's values (C order, little endian; blocks as stored).
    ///
    /// Reads all bytes. Equal values have equal hashes, whatever the file's format and byte order.
    #[arg(long, help_heading = "Tensors")]
    pub(crate) hash: bool,

    #[command(flatten)]
    pub(crate) opening: Opening,
}

/// How files are opened: the same for every verb.
#[derive(Debug, Args)]
#[command(next_help_heading = "Opening")]
pub(crate) struct Opening {
    /// Open only the file that is named, even if it is one part of a split.
    #[arg(long)]
    pub(crate) single: bool,
    /// Read files instead of mapping them: for files that change, and network file systems.
    #[arg(long)]
    pub(crate) no_map: bool,
    /// Lift the limits on what a file may make this program spend. For files you made yourself.
    #[arg(long)]
    pub(crate) no_limits: bool,
    /// Read numpy's raw void items of this width as DTYPE (BF16 for V2); may be repeated.
    #[arg(long, value_name = "DTYPE", value_parser = dtype(), hide_possible_values = true)]
    pub(crate) void_as: Vec<Dtype>,
    /// Read as this format, whatever the first bytes look like.
    #[arg(long, value_name = "NAME", value_parser = format())]
    pub(crate) format: Option<&'static Format>,
}

impl Opening {
    pub(crate) fn options(&self) -> OpenOptions {
        let limits = if self.no_limits { Limits::none() } else { Limits::default() };
        let options = OpenOptions::new().limits(limits).map(!self.no_map).single(self.single);
        let options = self.void_as.iter().fold(options, |options, dtype| options.void_as(*dtype));
        self.format.iter().fold(options, |options, format| options.format(format))
    }
}

impl Cli {
    /// Parses the program's arguments.
    pub(crate) fn read() -> Result<Self, clap::Error> {
        let mut cli = Self::try_parse()?;
        if let Verb::Inspect(inspect) = &mut cli.verb {
            inspect
                .tell_key_from_path(std::env::args_os().any(|word| word.to_string_lossy().starts_with("--metadata=")));
            if inspect.paths.is_empty() {
                let what = "`--metadata=KEY` needs the PATH of the file whose key is meant";
                return Err(Self::command().error(ErrorKind::MissingRequiredArgument, what));
            }
        }
        Ok(cli)
    }
}

impl Inspect {
    /// `--metadata KEY PATH` and `--metadata PATH` look alike to a parser.
    fn tell_key_from_path(&mut self, surely_key: bool) {
        let Some(Some(word)) = &self.metadata else { return };
        if !surely_key && (self.paths.is_empty() || Path::new(word).exists()) {
            self.paths.insert(0, PathBuf::from(word));
            self.metadata = Some(None);
        }
    }
}

const REMEMBER_EXAMPLES: &str = "\
Examples:
  anamnesis remember model-Q4_K_M.gguf -o model.safetensors
  anamnesis remember llama-fp8/ -o llama-bf16/ --shard-size 5GB
  anamnesis remember model.safetensors -o layer0.safetensors --filter 'model.layers.0.*'

Exit status: 0 done, 1 failed and nothing was left behind, 2 wrong usage, 130 interrupted.";

#[derive(Debug, Args)]
#[command(after_help = REMEMBER_EXAMPLES)]
pub(crate) struct Remember {
    /// A file, a directory, a shard index, any part of a split GGUF.
    #[arg(value_name = "SOURCE", value_hint = ValueHint::AnyPath)]
    pub(crate) source: PathBuf,
    /// The safetensors file to write; with --shard-size the directory.
    ///
    /// It appears under its name when it is whole. Without --overwrite a file that exists is kept.
    #[arg(long, short, value_name = "OUT", value_hint = ValueHint::AnyPath)]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) weights: Weights,
    /// Write a directory of files of at most this many bytes each, and their index (5GB, 500MiB).
    #[arg(long, value_name = "BYTES", value_parser = bytes, help_heading = "Output")]
    pub(crate) shard_size: Option<u64>,
    /// Replace files that exist.
    #[arg(long, help_heading = "Output")]
    pub(crate) overwrite: bool,
    /// Threads that decode; one per core if not given. The bytes do not depend on it.
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, help_heading = "Output")]
    pub(crate) threads: usize,
    /// Print one JSON document when it is done.
    #[arg(long, short, help_heading = "Output")]
    pub(crate) json: bool,
    /// Read through the loader that suits, and write down which bytes were read in which order: an I/O template, as
    /// JSON if the name ends in .json.
    #[arg(long, value_name = "TEMPLATE", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub(crate) record: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

const LOAD_EXAMPLES: &str = "\
Examples:
  anamnesis load model.safetensors                       which loader suits, and how fast it is
  anamnesis load model.gguf --repeat 5                   the same memory again: no page faults
  anamnesis load llama/ --cold --loader direct           from the device
  anamnesis load model.safetensors --loader mmap         lent by the page cache

Exit status: 0 done, 1 a file could not be read, 2 wrong usage, 130 interrupted.";

#[derive(Debug, Args)]
#[command(after_help = LOAD_EXAMPLES)]
pub(crate) struct Load {
    /// A file, a directory, a shard index, any part of a split GGUF.
    #[arg(value_name = "SOURCE", value_hint = ValueHint::AnyPath)]
    pub(crate) source: PathBuf,
    /// How bytes are brought.
    #[arg(long, value_enum, value_name = "NAME", default_value_t = LoaderName::Auto, help_heading = "Loading")]
    pub(crate) loader: LoaderName,
    /// Threads that read (pread) and that unpack; one per core if not given.
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, help_heading = "Loading")]
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
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Measuring")]
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

#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// A file, a directory, a shard index, any part of a split GGUF.
    #[arg(value_name = "SOURCE", value_hint = ValueHint::AnyPath)]
    pub(crate) source: PathBuf,
    #[command(flatten)]
    pub(crate) weights: Weights,
    /// Show the decoder of each weight.
    #[arg(long, short, help_heading = "View")]
    pub(crate) long: bool,
    /// Print one JSON document, with every byte range.
    #[arg(long, short, help_heading = "View")]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

/// Which weights, and what they become.
#[derive(Debug, Args)]
#[command(next_help_heading = "Weights")]
pub(crate) struct Weights {
    /// What quantised weights become.
    #[arg(long, short, value_name = "DTYPE", value_parser = output_dtype(), default_value = "bf16")]
    pub(crate) dtype: Dtype,
    /// Cast plain tensors of floats to that dtype too; they stay as they are if not.
    #[arg(long)]
    pub(crate) cast: bool,
    /// Only weights whose whole name matches; may be repeated. Patterns are those of `inspect --filter`.
    #[arg(long, short, value_name = "GLOB", value_parser = name_pattern)]
    pub(crate) filter: Vec<GlobMatcher>,
    /// All but weights whose whole name matches; may be repeated.
    #[arg(long, short = 'x', value_name = "GLOB", value_parser = name_pattern)]
    pub(crate) exclude: Vec<GlobMatcher>,
    /// Round HQQ and MLX weights as their references do: after each operation, in the dtype of the scales.
    #[arg(long)]
    pub(crate) native_rounding: bool,
}

/// Orders of tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// By name; numbers count as numbers.
    Name,
    /// Largest first.
    Size,
    /// By dtype, then as in the file.
    Dtype,
    /// As the bytes lie in the files.
    Offset,
    /// By file, then as in the file.
    File,
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Write one file per page here, instead of all pages to standard output.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) out: Option<PathBuf>,
}

fn name_pattern(text: &str) -> Result<GlobMatcher, String> {
    Glob::new(text).map(|glob| glob.compile_matcher()).map_err(|e| e.kind().to_string())
}

fn output_dtype() -> impl TypedValueParser<Value = Dtype> {
    PossibleValuesParser::new(["bf16", "f16", "f32"])
        .map(|name| Dtype::from_name(&name.to_ascii_uppercase()).expect("one of the three"))
}

/// A number of bytes: `5000000`, `5GB`, `4.5GiB`.
fn bytes(text: &str) -> Result<u64, String> {
    const UNITS: &[(&str, u64)] = &[
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
        ("KB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
        ("B", 1),
        ("", 1),
    ];
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len()));
    let unit = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim()));
    let (_, unit) = unit.ok_or("a number and KB, MB, GB, KiB, MiB or GiB, such as 5GB")?;
    let number: f64 = number.parse().map_err(|_| "not a number")?;
    let bytes = number * *unit as f64;
    if !(1.0..1e18).contains(&bytes) {
        return Err("between 1 byte and 10¹⁸".to_owned());
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // inside the range above
    Ok(bytes as u64)
}

fn dtype() -> impl TypedValueParser<Value = Dtype> {
    PossibleValuesParser::new(Dtype::all().map(Dtype::name))
        .map(|name| Dtype::from_name(&name).expect("one of the possible values"))
}

fn format() -> impl TypedValueParser<Value = &'static Format> {
    PossibleValuesParser::new(FORMATS.iter().map(|f| f.name))
        .map(|name| Format::from_name(&name).expect("one of the possible values"))
}
