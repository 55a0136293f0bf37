//! The mixture of types that a file type stands for: sensitive tensors get more bits.
//!
//! Source: `llama_tensor_get_type_impl` of llama.cpp. The rules are written in its order, since the counters that they ask go up only
//! with the tensors that reach a rule.

use crate::base::error::{Error, Result};
use crate::read::catalog::quote;
use crate::read::format::gguf::FileType;

use super::{GgmlTensor, OUTPUT, PER_LAYER_TOKEN_EMBD, TOKEN_EMBD};

/// The facts about a model that the rules depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MixtureFacts<'m> {
    pub(crate) architecture: &'m str,
    /// Layers, before any is left out.
    pub(crate) layers: u64,
    /// Heads for each head of keys in the first layer; 0 without heads of keys.
    pub(crate) heads_per_kv: u64,
    pub(crate) experts: u64,
    /// A Llama of 80 layers with fewer heads of keys.
    pub(crate) is_70b: bool,
    /// Tensors whose name is a value projection's.
    pub(crate) value_tensors: u64,
    /// Whether there is an output layer beside the embedding.
    pub(crate) has_output: bool,
    /// Whether there are importance weights for the file.
    pub(crate) has_importance: bool,
}

impl MixtureFacts<'_> {
    fn is_falcon(&self) -> bool {
        self.architecture == "falcon"
    }
}

/// How many tensors have reached a rule.
#[derive(Debug, Default)]
pub(super) struct Counters {
    values: u64,
    down: u64,
    gate: u64,
    up: u64,
}

/// Whether a name is a value projection's, which the counting of these asks as well.
pub(crate) fn is_value(name: &str) -> bool {
    ["attn_v.weight", "attn_qkv.weight", "attn_kv_b.weight"]
        .iter()
        .any(|own| name.contains(own))
}

/// The layers that get more bits in a `_M` mixture: the first and the last eighth, and each third between.
fn gets_more_bits(layer: u64, layers: u64) -> bool {
    let eighth = layers / 8;
    layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2
}

/// The number of the layer: of experts the one in the name, as their tensors may be out of order; otherwise the count so far.
fn layer(counted: u64, facts: &MixtureFacts<'_>, name: &str) -> Result<u64> {
    if facts.experts <= 1 {
        return Ok(counted);
    }
    let number = super::layer_of(name);
    number.filter(|&n| n < facts.layers).ok_or_else(|| {
        Error::unsupported(format!(
            "tensor {}: its name has no number of a layer below {}, which decides its type in a mixture of experts",
            quote(name),
            facts.layers
        ))
    })
}

/// The type of a tensor by the rules of its file type. `output` is the type that was asked for the output layer.
pub(super) fn choose(
    file_type: &'static FileType,
    facts: &MixtureFacts<'_>,
    output: Option<&'static str>,
    counters: &mut Counters,
    tensor: GgmlTensor<'_>,
) -> Result<&'static str> {
    let (file, usual) = (file_type.name, file_type.tensor_type);
    let name = tensor.name;
    let is_tied_output = !facts.has_output && name == TOKEN_EMBD;
    if name == OUTPUT || is_tied_output {
        return Ok(output.unwrap_or_else(|| output_type(file, usual, facts, tensor)));
    }
    if file == "MXFP4_MOE" {
        let is_stacked = tensor.sizes.get(2).is_some_and(|&matrices| matrices > 1);
        // this architecture stacks other matrices than experts too
        let is_expert = facts.architecture != "bailingmoe3" || name.contains("_exps");
        return Ok(if is_stacked && is_expert {
            "MXFP4"
        } else {
            "Q8_0"
        });
    }
    if name == TOKEN_EMBD || name == PER_LAYER_TOKEN_EMBD {
        return Ok(match file {
            "IQ2_XXS" | "IQ2_XS" | "IQ1_S" | "IQ1_M" => "Q2_K",
            "IQ2_S" | "IQ2_M" | "IQ3_XXS" => "IQ3_S",
            "TQ1_0" | "TQ2_0" | "Q2_0" => "Q4_K",
            _ => usual,
        });
    }
    if matches!(
        file,
        "IQ1_S" | "IQ1_M" | "IQ2_XXS" | "IQ2_XS" | "IQ2_S" | "IQ2_M"
    ) {
        return Ok(two_bits(file, usual, facts, counters, name));
    }
    if is_value(name) {
        return Ok(value_type(file, usual, facts, counters));
    }
    if name.contains("attn_k.weight") {
        return Ok(match file {
            _ if facts.experts == 8 => "Q8_0",
            "IQ3_XS" => "IQ3_XXS",
            "IQ3_XXS" => "IQ2_S",
            _ => usual,
        });
    }
    if name.contains("attn_q.weight") {
        return Ok(match file {
            "IQ3_XS" => "IQ3_XXS",
            "IQ3_XXS" => "IQ2_S",
            _ => usual,
        });
    }
    if name.contains("ffn_down") {
        let layer = layer(counters.down, facts, name)?;
        counters.down += 1;
        return Ok(down_type(file, usual, facts, layer));
    }
    if name.contains("attn_output.weight") {
        return Ok(attention_output_type(file, usual, facts));
    }
    for (own, count) in [
        ("ffn_gate", &mut counters.gate),
        ("ffn_up", &mut counters.up),
    ] {
        if name.contains(own) {
            let layer = layer(*count, facts, name)?;
            *count += 1;
            let is_middle = layer >= facts.layers / 8 && layer < 7 * facts.layers / 8;
            return Ok(if file == "IQ3_XS" && is_middle {
                "IQ3_XXS"
            } else {
                usual
            });
        }
    }
    Ok(usual)
}

fn output_type(
    file: &str,
    usual: &'static str,
    facts: &MixtureFacts<'_>,
    tensor: GgmlTensor<'_>,
) -> &'static str {
    let width = tensor.sizes.first().copied().unwrap_or(1);
    match file {
        "MXFP4_MOE" => "Q8_0",
        _ if facts.is_falcon() || !width.is_multiple_of(super::block_len(usual)) => "Q8_0",
        "IQ1_S" | "IQ1_M" | "IQ2_XXS" | "IQ2_XS" | "IQ2_S" | "IQ2_M" | "IQ3_XXS" => "Q5_K",
        _ if usual == "Q8_0" => "Q8_0",
        _ => "Q6_K",
    }
}

/// The rules of the file types with about two bits or fewer.
fn two_bits(
    file: &str,
    usual: &'static str,
    facts: &MixtureFacts<'_>,
    counters: &mut Counters,
    name: &str,
) -> &'static str {
    let better = match file {
        "IQ2_S" | "IQ2_M" => "IQ3_S",
        _ => "Q2_K",
    };
    if is_value(name) {
        counters.values += 1;
        return match facts.heads_per_kv >= 4 || facts.experts >= 4 {
            true => "Q4_K",
            false => better,
        };
    }
    if facts.experts == 8 && name.contains("attn_k.weight") {
        return "Q4_K";
    }
    if name.contains("ffn_down") {
        counters.down += 1;
        // by the count of tensors, also of experts
        return match counters.down - 1 < facts.layers / 8 {
            true => better,
            false => usual,
        };
    }
    if name.contains("attn_output.weight") {
        return match file {
            _ if facts.experts == 8 => "Q5_K",
            "IQ1_S" | "IQ1_M" => "IQ2_XXS",
            "IQ2_S" | "IQ2_M" => "IQ3_S",
            _ => usual,
        };
    }
    usual
}

fn value_type(
    file: &str,
    usual: &'static str,
    facts: &MixtureFacts<'_>,
    counters: &mut Counters,
) -> &'static str {
    let (count, shared) = (counters.values, facts.heads_per_kv >= 4);
    counters.values += 1;
    let kind = match file {
        "Q2_K" if shared => "Q4_K",
        "Q2_K" => "Q3_K",
        "Q2_K_S" if shared => "Q4_K",
        "IQ3_XXS" if shared => "Q4_K",
        "IQ3_XXS" if facts.has_importance => "IQ3_XXS",
        "IQ3_XXS" => "IQ3_S",
        "IQ3_XS" | "IQ3_S" if shared => "Q4_K",
        "IQ3_M" => "Q4_K",
        "Q3_K_M" if count < 2 => "Q5_K",
        "Q3_K_M" => "Q4_K",
        "Q3_K_L" => "Q5_K",
        "IQ4_NL" | "IQ4_XS" if shared => "Q5_K",
        "Q4_K_M" | "Q5_K_M" if gets_more_bits(count, facts.value_tensors) => "Q6_K",
        "Q4_K_S" if count < 4 => "Q5_K",
        _ => usual,
    };
    match kind {
        // few of them for eight times the heads: bits cost little
        _ if facts.experts == 8 => "Q8_0",
        "Q3_K" | "Q4_K" if facts.is_70b => "Q5_K",
        other => other,
    }
}

fn down_type(
    file: &str,
    usual: &'static str,
    facts: &MixtureFacts<'_>,
    layer: u64,
) -> &'static str {
    let (layers, falcon) = (facts.layers, facts.is_falcon());
    let (is_early, more) = (layer < layers / 8, || gets_more_bits(layer, layers));
    match file {
        "Q2_K" => "Q3_K",
        "Q2_K_S" if is_early => "Q4_K",
        "IQ3_XXS" if facts.has_importance => usual,
        "IQ3_XXS" if is_early => "Q4_K",
        "IQ3_XXS" => "Q3_K",
        "Q3_K_M" if layer < layers / 16 => "Q5_K",
        "Q3_K_M" if !falcon || more() => "Q4_K",
        "IQ3_M" if is_early || (facts.experts == 8 && more()) => "Q4_K",
        "Q3_K_L" if falcon => "Q4_K",
        "Q3_K_L" => "Q5_K",
        "Q4_K_M" if falcon && layer < layers / 16 => "Q6_K",
        "Q4_K_M" if falcon && more() => "Q5_K",
        "Q4_K_M" | "Q5_K_M" if !(falcon && file == "Q4_K_M") && more() => "Q6_K",
        "IQ4_NL" | "IQ4_XS" if is_early && !facts.has_importance => "Q5_K",
        "Q4_K_S" if !falcon && is_early => "Q5_K",
        "Q4_0" if facts.has_importance && is_early => "Q4_1",
        "Q5_0" if facts.has_importance && is_early => "Q5_1",
        _ => usual,
    }
}

fn attention_output_type(
    file: &str,
    usual: &'static str,
    facts: &MixtureFacts<'_>,
) -> &'static str {
    match file {
        "Q3_K_L" if facts.is_falcon() => "Q4_K",
        _ if facts.is_falcon() => usual,
        "Q2_K" | "IQ3_XS" | "IQ3_XXS" | "Q3_K_S" | "Q3_K_M" | "IQ4_NL" | "IQ4_XS" | "Q4_K_S"
        | "Q4_K_M" | "IQ3_S" | "IQ3_M"
            if facts.experts == 8 =>
        {
            "Q5_K"
        }
        _ if facts.experts == 8 => usual,
        "Q2_K" => "Q3_K",
        "IQ3_XXS" => "IQ3_S",
        "Q3_K_M" | "IQ3_M" => "Q4_K",
        "Q3_K_L" => "Q5_K",
        _ => usual,
    }
}
