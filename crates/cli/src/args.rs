//! The arguments: one place for parsing, help, manual page and completions.

mod load;
#[cfg(target_os = "linux")]
mod ppc;
mod remember;
mod template;
mod values;

use std::path::{Path, PathBuf};

use anamnesis::{Dtype, Format, Limits, OpenOptions};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum, ValueHint};
use globset::GlobMatcher;

pub(crate) use load::{Load, LoaderName};
#[cfg(target_os = "linux")]
pub(crate) use ppc::{Ppc, PpcRun, PpcStatus, Record};
pub(crate) use remember::{Plan, Remember, Weights};
pub(crate) use template::{Compared, Merge, Predict, Reading, Show, Template, TemplateVerb};

use crate::version::version;
use values::{dtype, format, name_pattern};

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
        let limits = if self.no_limits {
            Limits::none()
        } else {
            Limits::default()
        };
        let options = OpenOptions::new()
            .limits(limits)
            .map(!self.no_map)
            .single(self.single);
        let options = self
            .void_as
            .iter()
            .fold(options, |options, dtype| options.void_as(*dtype));
        self.format
            .iter()
            .fold(options, |options, format| options.format(format))
    }
}

impl Cli {
    /// Parses the program's arguments.
    pub(crate) fn read() -> Result<Self, clap::Error> {
        let mut cli = Self::try_parse()?;
        if let Verb::Inspect(inspect) = &mut cli.verb {
            inspect.tell_key_from_path(
                std::env::args_os().any(|word| word.to_string_lossy().starts_with("--metadata=")),
            );
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
        let Some(Some(word)) = &self.metadata else {
            return;
        };
        if !surely_key && (self.paths.is_empty() || Path::new(word).exists()) {
            self.paths.insert(0, PathBuf::from(word));
            self.metadata = Some(None);
        }
    }
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
