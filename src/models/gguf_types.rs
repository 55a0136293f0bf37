//! The type of each tensor of a quantised GGUF: the file type that a user names, the mixture of types that it stands for, and what
//! takes its place where a row is no multiple of the block.
//!
//! Source: `src/llama-quant.cpp` of llama.cpp (commit 86a2835): `llama_tensor_get_type`, `tensor_allows_quantization`; `llama.h`
//! (`llama_ftype`) for the numbers. Types are named as ggml names them, such as `Q4_K`.

mod mixture;
mod quantised;

use crate::base::error::{Error, Remedy, Result};
use crate::read::catalog::quote;

pub(crate) use mixture::{MixtureFacts, is_value};
pub(crate) use quantised::is_quantised;

use mixture::Counters;

/// The name of the input embedding in a GGUF.
pub(crate) const TOKEN_EMBD: &str = "token_embd.weight";
/// The name of the embedding of each layer (Gemma 3n).
pub(super) const PER_LAYER_TOKEN_EMBD: &str = "per_layer_token_embd.weight";
/// The name of the output layer in a GGUF.
pub(crate) const OUTPUT: &str = "output.weight";

/// The name of a choice of types, such as `q4_k_m`: `general.file_type` of the GGUF.
///
/// ```
/// use anamnesis::FileType;
///
/// let q4_k = FileType::from_name("q4_k").unwrap();
/// assert_eq!((q4_k.name, q4_k.number, q4_k.tensor_type), ("Q4_K_M", 15, "Q4_K"));
/// ```
#[derive(Debug, PartialEq, Eq)]
pub struct FileType {
    /// Its name, in capitals.
    pub name: &'static str,
    /// Its number, `general.file_type`.
    pub number: u32,
    /// ggml's type of most of its weights.
    pub tensor_type: &'static str,
}

impl FileType {
    /// The file type of this name, in any case of letters. `Q3_K`, `Q4_K` and `Q5_K` are the `_M` ones, as for llama-quantize.
    pub fn from_name(name: &str) -> Option<&'static Self> {
        let name = name.to_ascii_uppercase();
        let name = match &*name {
            "Q3_K" | "Q4_K" | "Q5_K" => [&*name, "_M"].concat(),
            _ => name,
        };
        FILE_TYPES.iter().find(|row| row.name == name)
    }

    /// All file types, by their numbers.
    pub fn all() -> &'static [Self] {
        FILE_TYPES
    }

    /// The file type that llama.cpp guesses for a file most of whose tensors have this type.
    pub(crate) fn of_most(kind: &str) -> Option<&'static Self> {
        // the middle one where there are several; two types are called otherwise than the file types that begin with them
        let name = match kind {
            "Q3_K" | "Q4_K" | "Q5_K" => return Self::from_name(kind),
            "MXFP4" => "MXFP4_MOE",
            other => other,
        };
        FILE_TYPES.iter().find(|row| row.name == name)
    }

    /// Whether weights keep or get whole numbers of bytes for an element: no tensor gets a type of its own.
    fn is_plain(&self) -> bool {
        matches!(self.tensor_type, "F32" | "F16" | "BF16")
    }
}

macro_rules! file_types {
    ($($number:literal $name:literal $kind:literal),* $(,)?) => {
        &[$(FileType { name: $name, number: $number, tensor_type: $kind }),*]
    };
}

/// `IQ2_S` really has the type below it, and `IQ2_M` the one of its name. 39 (NVFP4) is the type of tensors, not of a file.
static FILE_TYPES: &[FileType] = file_types![
    0 "F32" "F32", 1 "F16" "F16", 2 "Q4_0" "Q4_0", 3 "Q4_1" "Q4_1", 7 "Q8_0" "Q8_0", 8 "Q5_0" "Q5_0", 9 "Q5_1" "Q5_1",
    10 "Q2_K" "Q2_K", 11 "Q3_K_S" "Q3_K", 12 "Q3_K_M" "Q3_K", 13 "Q3_K_L" "Q3_K", 14 "Q4_K_S" "Q4_K", 15 "Q4_K_M" "Q4_K",
    16 "Q5_K_S" "Q5_K", 17 "Q5_K_M" "Q5_K", 18 "Q6_K" "Q6_K", 19 "IQ2_XXS" "IQ2_XXS", 20 "IQ2_XS" "IQ2_XS",
    21 "Q2_K_S" "Q2_K", 22 "IQ3_XS" "IQ3_S", 23 "IQ3_XXS" "IQ3_XXS", 24 "IQ1_S" "IQ1_S", 25 "IQ4_NL" "IQ4_NL",
    26 "IQ3_S" "IQ3_S", 27 "IQ3_M" "IQ3_S", 28 "IQ2_S" "IQ2_XS", 29 "IQ2_M" "IQ2_S", 30 "IQ4_XS" "IQ4_XS",
    31 "IQ1_M" "IQ1_M", 32 "BF16" "BF16", 36 "TQ1_0" "TQ1_0", 37 "TQ2_0" "TQ2_0", 38 "MXFP4_MOE" "MXFP4", 40 "Q1_0" "Q1_0",
    41 "Q2_0" "Q2_0",
];

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

/// The choices of a user. `of_name` returns the type of the first pattern that a name has.
pub(crate) struct TypeChoices<'c> {
    pub(crate) file_type: &'static FileType,
    /// One type for all weights, without the mixture.
    pub(crate) pure: bool,
    pub(crate) token_embedding: Option<&'static str>,
    pub(crate) output: Option<&'static str>,
    pub(crate) of_name: &'c dyn Fn(&str) -> Option<&'static str>,
}

/// The types of the tensors of a file, asked for in the order in which it has them.
pub(crate) struct TypeChooser<'c> {
    choices: TypeChoices<'c>,
    facts: MixtureFacts<'c>,
    counters: Counters,
}

impl<'c> TypeChooser<'c> {
    pub(crate) fn new(choices: TypeChoices<'c>, facts: MixtureFacts<'c>) -> Self {
        Self {
            choices,
            facts,
            counters: Counters::default(),
        }
    }

    /// The type of the next tensor that is quantised.
    ///
    /// # Errors
    /// If no type fits the width, or the name of an expert's layer has no number.
    pub(crate) fn next(&mut self, tensor: GgmlTensor<'_>) -> Result<&'static str> {
        let TypeChoices {
            file_type,
            pure,
            token_embedding,
            output,
            of_name,
        } = &self.choices;
        let is_embedding = tensor.name == TOKEN_EMBD || tensor.name == PER_LAYER_TOKEN_EMBD;
        // a type for one of the two layers is taken as it is, whatever its width
        match (token_embedding, output) {
            (Some(kind), _) if is_embedding => {
                let named = tensor.name == PER_LAYER_TOKEN_EMBD && of_name(tensor.name).is_some();
                if !named {
                    return Ok(kind);
                }
            }
            (_, Some(kind)) if tensor.name == OUTPUT => return Ok(kind),
            _ => {}
        }
        if file_type.is_plain() {
            return Ok(file_type.tensor_type);
        }
        let kind = match of_name(tensor.name) {
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
