//! The type of each tensor of a quantised GGUF: the file type that a user names, the mixture of types that it stands for, and what
//! takes its place where a row is no multiple of the block.
//!
//! Source: `src/llama-quant.cpp` of llama.cpp (commit 86a2835): `llama_tensor_get_type`, `tensor_allows_quantization`; `llama.h`
//! (`llama_ftype`) for the numbers. Types are named as ggml names them, such as `Q4_K`.

mod mixture;
mod quantised;

use crate::base::error::{Error, Remedy, Result};
use crate::read::catalog::quote;
use crate::read::format::gguf::FileType;

pub(crate) use mixture::{MixtureFacts, is_value};
pub(crate) use quantised::{is_always_f32, is_quantised};

use mixture::Counters;

/// The name of the input embedding in a GGUF.
pub(crate) const TOKEN_EMBD: &str = "token_embd.weight";
/// The name of the embedding of each layer (Gemma 3n).
pub(super) const PER_LAYER_TOKEN_EMBD: &str = "per_layer_token_embd.weight";
/// The name of the output layer in a GGUF.
pub(crate) const OUTPUT: &str = "output.weight";

/// ggml's name of a type that tensors are quantised to, in any case of letters.
///
/// # Errors
/// If there is no such type.
pub(crate) fn tensor_type(name: &str) -> Result<&'static str> {
    let own = name.to_ascii_uppercase();
    let own = TENSOR_TYPES.iter().copied().find(|known| *known == own);
    own.ok_or_else(|| {
        let all = TENSOR_TYPES.join(", ");
        Error::invalid_argument(format!(
            "{} is no type of tensors that is made: {all}",
            quote(name)
        ))
    })
}

/// All types that tensors are quantised to.
static TENSOR_TYPES: &[&str] = &[
    "F32", "F16", "BF16", "Q1_0", "Q2_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K",
    "Q4_K", "Q5_K", "Q6_K", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S",
    "IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0", "MXFP4", "NVFP4",
];

/// A tensor to be written, as ggml sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GgmlTensor<'t> {
    /// Its name in the source, which the rules are for.
    pub(crate) name: &'t str,
    /// Its sizes, innermost first, without the sizes of 1 at the end.
    pub(crate) sizes: &'t [u64],
}

/// The choices of a user for the whole file.
pub(crate) struct TypeChoices {
    pub(crate) file_type: &'static FileType,
    /// One type for all weights, without the mixture.
    pub(crate) pure: bool,
    pub(crate) token_embedding: Option<&'static str>,
    pub(crate) output: Option<&'static str>,
}

/// The types of the tensors of a file, asked for in the order in which it has them.
pub(crate) struct TypeChooser<'c> {
    choices: TypeChoices,
    facts: MixtureFacts<'c>,
    counters: Counters,
}

impl<'c> TypeChooser<'c> {
    pub(crate) fn new(choices: TypeChoices, facts: MixtureFacts<'c>) -> Self {
        Self {
            choices,
            facts,
            counters: Counters::default(),
        }
    }

    /// Whether the type that is chosen for a name decides.
    pub(crate) fn follows_names(&self) -> bool {
        !self.choices.file_type.is_plain()
    }

    /// The type of the next tensor that is quantised; `named` is the one that was chosen for its name.
    ///
    /// # Errors
    /// If no type fits the width, or the name of an expert's layer has no number.
    pub(crate) fn next(
        &mut self,
        tensor: GgmlTensor<'_>,
        named: Option<&'static str>,
    ) -> Result<&'static str> {
        let TypeChoices {
            file_type,
            pure,
            token_embedding,
            output,
        } = &self.choices;
        let is_embedding = tensor.name == TOKEN_EMBD || tensor.name == PER_LAYER_TOKEN_EMBD;
        // a type for one of the two layers is taken as it is, whatever its width
        match (token_embedding, output) {
            (Some(kind), _) if is_embedding => {
                let is_named = tensor.name == PER_LAYER_TOKEN_EMBD && named.is_some();
                if !is_named {
                    return Ok(kind);
                }
            }
            (_, Some(kind)) if tensor.name == OUTPUT => return Ok(kind),
            _ => {}
        }
        if file_type.is_plain() {
            return Ok(file_type.tensor_type);
        }
        let kind = match named {
            Some(kind) => kind,
            None if *pure => file_type.tensor_type,
            None => mixture::choose(file_type, &self.facts, *output, &mut self.counters, tensor)?,
        };
        fitting(kind, tensor)
    }
}

/// Whether weights of this type of this file need importance weights: the search of the type has no other ones, or the file is
/// too coarse without.
pub(crate) fn needs_importance(kind: &str, file_type: &FileType, name: &str) -> bool {
    if matches!(name, TOKEN_EMBD | PER_LAYER_TOKEN_EMBD | OUTPUT) {
        return false;
    }
    match kind {
        "IQ3_XXS" | "IQ2_XXS" | "IQ2_XS" | "IQ2_S" | "IQ1_M" | "IQ1_S" => true,
        "Q2_K" => file_type.name == "Q2_K_S",
        _ => false,
    }
}

/// The type, or the one in its place if a row is no multiple of its block.
fn fitting(kind: &'static str, tensor: GgmlTensor<'_>) -> Result<&'static str> {
    let width = tensor.sizes.first().copied().unwrap_or(1);
    let fits = |kind: &str| width.is_multiple_of(block_len(kind));
    if fits(kind) {
        return Ok(kind);
    }
    let instead = match kind {
        "IQ1_S" | "IQ1_M" | "IQ2_XXS" | "IQ2_XS" | "IQ2_S" | "IQ3_XXS" | "IQ3_S" | "IQ4_XS" => {
            "IQ4_NL"
        }
        "Q2_0" | "Q2_K" | "Q3_K" | "TQ1_0" | "TQ2_0" => "Q4_0",
        "Q4_K" => "Q5_0",
        "Q5_K" => "Q5_1",
        "Q6_K" => "Q8_0",
        "Q1_0" | "NVFP4" => {
            let what = format!(
                "tensor {}: {kind} has blocks of {} elements, its rows have {width}, and no other type takes its place",
                quote(tensor.name),
                block_len(kind)
            );
            return Err(Error::unsupported(what).with_remedy(Remedy::AnotherType));
        }
        small => small,
    };
    Ok(if fits(instead) { instead } else { "F16" })
}

/// Elements of a block; 1 of a type without blocks.
fn block_len(kind: &str) -> u64 {
    anamnesis_kernel::BlockFormat::from_name(kind).map_or(1, |block| block.block_len.into())
}

/// The number of the layer that a name begins with: `blk.7.`.
pub(crate) fn layer_of(name: &str) -> Option<u64> {
    let (number, _) = name.strip_prefix("blk.")?.split_once('.')?;
    number.parse().ok()
}
