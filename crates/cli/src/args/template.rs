//! The arguments of `template` and its verbs.

use std::path::PathBuf;

use anamnesis::predict::ReadOrder;
use anamnesis::template::parallel::Rule;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueHint};
use globset::GlobMatcher;

use super::OpenArgs;
use super::values::{gap, name_pattern, per_layer, workers};

#[derive(Debug, Args)]
pub(crate) struct TemplateArgs {
    #[command(subcommand)]
    pub(crate) verb: TemplateVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TemplateVerb {
    /// Predict each worker's reads from a checkpoint's headers.
    ///
    /// The rules by which vLLM, SGLang and Megatron split tensors across workers are built in.
    Predict(Box<PredictArgs>),
    /// Show the files and workers of a template.
    Show(ShowArgs),
    /// Show the differences between two templates; exit status 1 if there are any.
    Diff(CompareArgs),
    /// Show how many of the bytes in template B are also in template A, and whether in the same order.
    Coverage(CompareArgs),
    /// Merge templates of one model, or convert one between the binary and the JSON form.
    Merge(MergeArgs),
}

const PREDICT_EXAMPLES: &str = "\
Examples:
  anamnesis template predict qwen-72b/ -o qwen.iot --tp 4
  anamnesis template predict deepseek-v3/ -o r1.iot --tp 16 --ep 16 --order layer
  anamnesis template predict model.gguf -o m.iot --tp 2 --rule '*.attn_qkv.*=column'
  anamnesis template predict llama/ -o l.json --tp 2 --whole --parameter loader=vllm
  anamnesis template predict hf://Qwen/Qwen3-8B -o qwen.iot --tp 2    for a copy that is downloaded later

Exit status: 0 success, 1 a file could not be read or written, 2 invalid arguments.";

#[derive(Debug, Args)]
#[command(after_help = PREDICT_EXAMPLES)]
pub(crate) struct PredictArgs {
    /// File, directory, shard index, URL, or any file of a split GGUF.
    #[arg(value_name = "SOURCE", value_hint = ValueHint::AnyPath)]
    pub(crate) source: PathBuf,
    /// Template to write; as JSON if its name ends in .json.
    #[arg(long, short, value_name = "TEMPLATE", value_hint = ValueHint::FilePath)]
    pub(crate) output: PathBuf,

    #[command(flatten)]
    pub(crate) prediction: PredictionArgs,

    /// Run-time parameter of the service, part of its id; may be repeated. tp, pp, dp and ep are included.
    ///
    /// The id is computed from the parameters, the degrees of parallelism and the files.
    #[arg(long, value_name = "KEY=VALUE", value_parser = parameter, help_heading = "Output")]
    pub(crate) parameter: Vec<(String, String)>,
    /// Replace an existing template.
    #[arg(long, help_heading = "Output")]
    pub(crate) overwrite: bool,
    /// Print one JSON document that describes the written template.
    #[arg(long, short, help_heading = "Output")]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) opening: OpenArgs,
}

/// Options of a prediction, shared by `template predict` and `warm`.
#[derive(Debug, Args)]
pub(crate) struct PredictionArgs {
    /// Tensor parallelism: number of workers that share each matrix.
    #[arg(long, value_name = "N", value_parser = workers(), default_value_t = 1, help_heading = "Workers")]
    pub(crate) tp: u32,
    /// Pipeline parallelism: number of stages that share the layers, distributed as in vLLM.
    ///
    /// Ranks count through tp, then pp, then dp, across all nodes.
    #[arg(long, value_name = "N", value_parser = workers(), default_value_t = 1, help_heading = "Workers")]
    pub(crate) pp: u32,
    /// Data parallelism: number of replicas; they share nothing except experts.
    #[arg(long, value_name = "N", value_parser = workers(), default_value_t = 1, help_heading = "Workers")]
    pub(crate) dp: u32,
    /// Expert parallelism: number of workers of a stage (of tp × dp) that share the experts.
    ///
    /// Each expert is read in full by one of these workers. With 1, every worker reads its part of every expert.
    #[arg(long, value_name = "N", value_parser = workers(), default_value_t = 1, help_heading = "Workers")]
    pub(crate) ep: u32,
    /// Number of attention heads [default: from the model's configuration].
    #[arg(long, value_name = "N", value_parser = per_layer(), help_heading = "Workers")]
    pub(crate) heads: Option<u64>,
    /// Number of key/value heads [default: from the model's configuration].
    #[arg(long, value_name = "N", value_parser = per_layer(), help_heading = "Workers")]
    pub(crate) kv_heads: Option<u64>,
    /// Number of experts per layer [default: counted from the tensors].
    #[arg(long, value_name = "N", value_parser = per_layer(), help_heading = "Workers")]
    pub(crate) experts: Option<u64>,

    /// Split tensors whose name matches PATTERN by RULE; may be repeated, the first match applies.
    ///
    /// These rules precede the built-in ones. RULE is replicated, column (split by outputs), row (split by inputs),
    /// vocab, kv (key/value heads), qkv (fused) or gate-up (fused). In PATTERN, `*` matches any text and `?` one
    /// character.
    #[arg(long, value_name = "PATTERN=RULE", value_parser = rule, help_heading = "Reading")]
    pub(crate) rule: Vec<(String, Rule)>,
    /// Read each tensor in full on every worker that needs a part of it.
    ///
    /// This is what frameworks do that split tensors after reading them.
    #[arg(long, help_heading = "Reading")]
    pub(crate) whole: bool,
    /// Order of the accesses: by file offset, by layer, or by tensor name.
    ///
    /// `file`: by file and offset; `layer`: embeddings, layers in numeric order, norm, head; `name`: sorted by name.
    #[arg(long, value_name = "BY", value_parser = order(), default_value = "file", help_heading = "Reading")]
    pub(crate) order: ReadOrder,
    /// Include only tensors whose full name matches; may be repeated. Syntax as in `inspect --filter`.
    #[arg(long, short, value_name = "GLOB", value_parser = name_pattern, help_heading = "Reading")]
    pub(crate) filter: Vec<GlobMatcher>,
    /// Join accesses that are at most BYTES apart [default: 0].
    ///
    /// 4095 joins accesses without reading additional 4096-byte pages. Exact slices of very many experts need it (DeepSeek with
    /// --tp 16 alone): without it they exceed the default limits of template readers.
    #[arg(long, value_name = "BYTES", value_parser = gap, help_heading = "Reading")]
    pub(crate) gap: Option<u64>,
}

/// How templates are read, shared by the verbs of `template`.
#[derive(Debug, Args)]
pub(crate) struct TemplateReadArgs {
    /// Disable the limits on memory and work per template; only for trusted templates.
    #[arg(long)]
    pub(crate) no_limits: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Template in binary or JSON form.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) template: PathBuf,
    /// Show every access of the worker with rank RANK.
    #[arg(long, short, value_name = "RANK")]
    pub(crate) group: Option<u32>,
    /// Print the template in its JSON form.
    #[arg(long, short, conflicts_with = "group")]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) reading: TemplateReadArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Template in binary or JSON form.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) a: PathBuf,
    /// Template to compare with, in binary or JSON form.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) b: PathBuf,
    /// Print one JSON document.
    #[arg(long, short)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) reading: TemplateReadArgs,
}

#[derive(Debug, Args)]
pub(crate) struct MergeArgs {
    /// Templates in binary or JSON form.
    ///
    /// If several contain the same worker, the first one's order is kept.
    #[arg(required = true, value_name = "TEMPLATE", value_hint = ValueHint::FilePath)]
    pub(crate) templates: Vec<PathBuf>,
    /// Template to write; as JSON if its name ends in .json.
    #[arg(long, short, value_name = "TEMPLATE", value_hint = ValueHint::FilePath)]
    pub(crate) output: PathBuf,
    /// Replace an existing template.
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Print one JSON document that describes the written template.
    #[arg(long, short)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) reading: TemplateReadArgs,
}

fn order() -> impl TypedValueParser<Value = ReadOrder> {
    PossibleValuesParser::new(["file", "layer", "name"])
        .map(|name| name.parse().expect("a possible value of --order"))
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
    // the first `=` divides: values may contain further ones, keys and patterns do not
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    pair.map(|(key, value)| (key.to_owned(), value.to_owned()))
        .ok_or_else(|| format!("expected {form}"))
}
