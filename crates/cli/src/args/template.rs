//! The arguments of `template` and its verbs.

use std::path::PathBuf;

use anamnesis::Order;
use anamnesis::template::parallel::Rule;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueHint};
use globset::GlobMatcher;

use super::Opening;
use super::values::{bytes, name_pattern};

#[derive(Debug, Args)]
pub(crate) struct Template {
    #[command(subcommand)]
    pub(crate) verb: TemplateVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TemplateVerb {
    /// Say from a checkpoint's headers which worker will read which of its bytes.
    Predict(Box<Predict>),
    /// Show what a template holds.
    Show(Show),
    /// Show what two templates differ in. Status 1 if they do.
    Diff(Compared),
    /// Show how much of what B reads A reads too, and whether in the same order.
    Coverage(Compared),
    /// Make one template of several of the same model, or write one in its other form.
    Merge(Merge),
}

const PREDICT_EXAMPLES: &str = "\
Examples:
  anamnesis template predict qwen-72b/ -o qwen.iot --tp 4
  anamnesis template predict deepseek-v3/ -o r1.iot --tp 16 --ep 16 --order layer
  anamnesis template predict model.gguf -o m.iot --tp 2 --rule '*.attn_qkv.*=column'
  anamnesis template predict llama/ -o l.json --tp 2 --whole --parameter loader=vllm

Exit status: 0 done, 1 a file could not be read or written, 2 wrong usage.";

#[derive(Debug, Args)]
#[command(after_help = PREDICT_EXAMPLES)]
pub(crate) struct Predict {
    /// A file, a directory, a shard index, any part of a split GGUF.
    #[arg(value_name = "SOURCE", value_hint = ValueHint::AnyPath)]
    pub(crate) source: PathBuf,
    /// The template to write; as JSON if its name ends in .json.
    #[arg(long, short, value_name = "TEMPLATE", value_hint = ValueHint::FilePath)]
    pub(crate) output: PathBuf,

    /// Tensor parallelism: workers that share each matrix.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Workers")]
    pub(crate) tp: u32,
    /// Pipeline parallelism: stages that share the layers.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Workers")]
    pub(crate) pp: u32,
    /// Data parallelism: copies that share nothing but experts.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Workers")]
    pub(crate) dp: u32,
    /// Expert parallelism: among how many of a stage's workers (tp × dp) whole experts are dealt out. Every worker
    /// has its part of every expert if it is 1.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Workers")]
    pub(crate) ep: u32,
    /// Attention heads; what the model's configuration says if not given.
    #[arg(long, value_name = "N", help_heading = "Workers")]
    pub(crate) heads: Option<u64>,
    /// Heads of keys and values; what the model's configuration says if not given.
    #[arg(long, value_name = "N", help_heading = "Workers")]
    pub(crate) kv_heads: Option<u64>,
    /// Experts of a layer; as many as the tensors tell if not given.
    #[arg(long, value_name = "N", help_heading = "Workers")]
    pub(crate) experts: Option<u64>,

    /// How tensors of such names are split, before the built-in rules; may be repeated, the first that matches counts.
    ///
    /// RULE is replicated, column (by outputs), row (by inputs), vocab, kv (heads of keys or values), qkv (fused) or
    /// gate-up (fused). In the pattern `*` is any text and `?` one character.
    #[arg(long, value_name = "PATTERN=RULE", value_parser = rule, help_heading = "Reading")]
    pub(crate) rule: Vec<(String, Rule)>,
    /// Workers read all of each tensor that they have a part of, as frameworks do that cut what they have read.
    #[arg(long, help_heading = "Reading")]
    pub(crate) whole: bool,
    /// The order of reads: as bytes lie in the files, layer after layer, or by name.
    #[arg(long, value_name = "BY", value_parser = order(), default_value = "file", help_heading = "Reading")]
    pub(crate) order: Order,
    /// Only tensors whose whole name matches; may be repeated. Patterns are those of `inspect --filter`.
    #[arg(long, short, value_name = "GLOB", value_parser = name_pattern, help_heading = "Reading")]
    pub(crate) filter: Vec<GlobMatcher>,
    /// Read gaps of up to so many bytes along. 4095 leaves out no page that would not be read anyway.
    #[arg(long, value_name = "BYTES", value_parser = bytes, help_heading = "Reading")]
    pub(crate) gap: Option<u64>,

    /// A run-time parameter of the service, which its id depends on; may be repeated. tp, pp, dp and ep are there.
    #[arg(long, value_name = "KEY=VALUE", value_parser = parameter, help_heading = "Output")]
    pub(crate) parameter: Vec<(String, String)>,
    /// Replace a template that exists.
    #[arg(long, help_heading = "Output")]
    pub(crate) overwrite: bool,
    /// Print one JSON document about what was written.
    #[arg(long, short, help_heading = "Output")]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

/// How templates are read.
#[derive(Debug, Args)]
pub(crate) struct Reading {
    /// Lift the limits on what a template may make this program spend. For templates you made yourself.
    #[arg(long)]
    pub(crate) no_limits: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// A template, in either form.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) template: PathBuf,
    /// Show every access of the worker with this rank.
    #[arg(long, short, value_name = "RANK")]
    pub(crate) group: Option<u32>,
    /// Print the template's JSON form.
    #[arg(long, short, conflicts_with = "group")]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) reading: Reading,
}

#[derive(Debug, Args)]
pub(crate) struct Compared {
    /// A template, in either form.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) a: PathBuf,
    /// Another one.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) b: PathBuf,
    /// Print one JSON document.
    #[arg(long, short)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) reading: Reading,
}

#[derive(Debug, Args)]
pub(crate) struct Merge {
    /// Templates, in either form. Of a worker that several have, the first says the order.
    #[arg(required = true, value_name = "TEMPLATE", value_hint = ValueHint::FilePath)]
    pub(crate) templates: Vec<PathBuf>,
    /// The template to write; as JSON if its name ends in .json.
    #[arg(long, short, value_name = "TEMPLATE", value_hint = ValueHint::FilePath)]
    pub(crate) output: PathBuf,
    /// Replace a template that exists.
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Print one JSON document about what was written.
    #[arg(long, short)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) reading: Reading,
}

fn order() -> impl TypedValueParser<Value = Order> {
    PossibleValuesParser::new(["file", "layer", "name"])
        .map(|name| name.parse().expect("one of the three"))
}

fn rule(text: &str) -> Result<(String, Rule), String> {
    let (pattern, rule) = pair(text, "PATTERN=RULE")?;
    Ok((
        pattern,
        rule.parse()
            .map_err(|e: anamnesis::template::Error| e.kind().to_string())?,
    ))
}

fn parameter(text: &str) -> Result<(String, String), String> {
    pair(text, "KEY=VALUE")
}

fn pair(text: &str, form: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    pair.map(|(key, value)| (key.to_owned(), value.to_owned()))
        .ok_or_else(|| format!("not of the form {form}"))
}
