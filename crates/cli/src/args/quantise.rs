//! The arguments of `convert` that make a quantised GGUF.

use std::path::PathBuf;

use anamnesis::sink::{GgufType, GgufValue};
use anamnesis::{Dtype, FileType};
use clap::{Args, ValueHint};

/// The file type, or `copy` for tensors that keep theirs.
pub(crate) type TypeArgument = Option<&'static FileType>;

#[derive(Debug, Args)]
#[command(next_help_heading = "Quantisation")]
pub(crate) struct QuantiseArgs {
    /// Make a GGUF of this file type, byte for byte as llama.cpp does, of a GGUF or a Hugging Face checkpoint: `q4_k_m`, `q8_0`,
    /// `iq4_xs`, `f16`, …; `auto` keeps the dtype of a checkpoint, `copy` the types of a GGUF.
    #[arg(
        long = "type",
        value_name = "TYPE",
        value_parser = file_type,
        conflicts_with_all = [
            "dtype", "cast", "filter", "exclude", "tp", "strip_prefix", "rename", "add_prefix", "metadata", "drop_metadata",
            "shard_size", "alignment", "void", "code", "untie", "to", "record",
        ]
    )]
    pub(crate) file_type: Option<TypeArgument>,
    /// Importance matrix of llama-imatrix, in either form: which columns matter.
    #[arg(long, value_name = "FILE", requires = "file_type", value_hint = ValueHint::FilePath)]
    pub(crate) imatrix: Option<PathBuf>,
    /// Use only the entries of --imatrix whose name has TEXT in it; may be repeated.
    #[arg(long, value_name = "TEXT", requires = "imatrix")]
    pub(crate) include_weights: Vec<String>,
    /// Leave out the entries of --imatrix whose name has TEXT in it; may be repeated.
    #[arg(long, value_name = "TEXT", requires = "imatrix")]
    pub(crate) exclude_weights: Vec<String>,
    /// Give all weights one type, without the mixture of the file type.
    #[arg(long, requires = "file_type")]
    pub(crate) pure: bool,
    /// Type of `output.weight`.
    #[arg(long, value_name = "TYPE", requires = "file_type")]
    pub(crate) output_tensor_type: Option<String>,
    /// Type of `token_embd.weight`.
    #[arg(long, value_name = "TYPE", requires = "file_type")]
    pub(crate) token_embedding_type: Option<String>,
    /// Type of the tensors in whose names the regular expression is found; may be repeated, and the first one decides.
    #[arg(long, value_name = "REGEX=TYPE", requires = "file_type", value_parser = pattern_type)]
    pub(crate) tensor_type: Vec<(String, String)>,
    /// Keep the type of `output.weight`.
    #[arg(long, requires = "file_type")]
    pub(crate) leave_output_tensor: bool,
    /// Quantise weights again that are quantised already.
    #[arg(long, requires = "file_type")]
    pub(crate) allow_requantize: bool,
    /// Write as many files as the GGUF has, each with the same tensors: OUT-00001-of-0000N.gguf and so on.
    #[arg(long, requires = "file_type")]
    pub(crate) keep_split: bool,
    /// Leave out these layers, by their numbers from 0.
    #[arg(
        long,
        value_name = "N,N,…",
        requires = "file_type",
        value_delimiter = ','
    )]
    pub(crate) prune_layers: Vec<u64>,
    /// The float that weights of a Hugging Face checkpoint are rounded to before they are quantised: auto (its own), f32, f16, bf16.
    #[arg(long, value_name = "DTYPE", requires = "file_type", value_parser = via)]
    pub(crate) via: Option<ViaArgument>,
    /// llama.cpp's name of the pre-tokenizer of a Hugging Face checkpoint, such as `qwen2`. Default: recognised by its steps.
    #[arg(long, value_name = "NAME", requires = "file_type")]
    pub(crate) tokenizer_pre: Option<String>,
    /// Set a key: TYPE is int (written as u32), float, bool or str; may be repeated.
    #[arg(long, value_name = "KEY=TYPE:VALUE", requires = "file_type", value_parser = override_value)]
    pub(crate) override_kv: Vec<(String, GgufValue)>,
}

fn file_type(text: &str) -> Result<TypeArgument, String> {
    if ["auto", "copy"]
        .iter()
        .any(|word| text.eq_ignore_ascii_case(word))
    {
        return Ok(None);
    }
    FileType::from_name(text).map(Some).ok_or_else(|| {
        let names = FileType::all()
            .iter()
            .map(|file_type| file_type.name.to_ascii_lowercase());
        format!(
            "expected one of {}, auto, copy",
            names.collect::<Vec<_>>().join(", ")
        )
    })
}

/// The dtype of `--via`; `None` for the checkpoint's own.
pub(crate) type ViaArgument = Option<Dtype>;

fn via(text: &str) -> Result<ViaArgument, String> {
    match text.to_ascii_lowercase().as_str() {
        "auto" => Ok(None),
        "f32" => Ok(Some(Dtype::F32)),
        "f16" => Ok(Some(Dtype::F16)),
        "bf16" => Ok(Some(Dtype::BF16)),
        _ => Err("expected auto, f32, f16 or bf16".to_owned()),
    }
}

fn pattern_type(text: &str) -> Result<(String, String), String> {
    match text.rsplit_once('=') {
        Some((pattern, kind)) if !pattern.is_empty() && !kind.is_empty() => {
            Ok((pattern.to_owned(), kind.to_owned()))
        }
        _ => Err("expected REGEX=TYPE, such as `attn_v=q8_0`".to_owned()),
    }
}

/// `KEY=TYPE:VALUE`, as llama-quantize writes it: integers become unsigned ones of 32 bits.
fn override_value(text: &str) -> Result<(String, GgufValue), String> {
    let parts = text
        .split_once('=')
        .and_then(|(key, value)| Some((key, value.split_once(':')?)));
    let (key, (kind, value)) = parts
        .filter(|(key, _)| !key.is_empty())
        .ok_or("expected KEY=TYPE:VALUE, such as `general.name=str:model`")?;
    let parsed = match kind {
        "int" => {
            let number = value.strip_prefix('-').unwrap_or(value);
            GgufValue::parse(GgufType::U32, number)
        }
        "float" => GgufValue::parse(GgufType::F32, value),
        "bool" => GgufValue::parse(GgufType::Bool, value),
        "str" if value.len() > 127 => return Err("texts have at most 127 bytes here".to_owned()),
        "str" => GgufValue::parse(GgufType::Text, value),
        _ => return Err(format!("{kind} is none of int, float, bool and str")),
    };
    let parsed = parsed.map_err(|e| e.kind().to_string())?;
    Ok((key.to_owned(), parsed))
}
