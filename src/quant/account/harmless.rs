//! Tensors and keys that are no evidence, although their names and dtypes look like quantisation, each with the reason.

use crate::base::kernel::Dtype;
use crate::models::names::is_of_stacked_experts;
use crate::read::catalog::{Encoding, TensorInfo};

/// Ends of names of scales of activations and caches, which dequantised weights do not need, and how many elements they have.
static ACTIVATIONS: &[(&str, ActivationExtent)] = &[
    (".input_scale", ActivationExtent::Vector),
    (".input_global_scale", ActivationExtent::Vector),
    (".input_zero_point", ActivationExtent::Vector),
    (".input_amax", ActivationExtent::Vector),
    (".scale_input", ActivationExtent::Vector),
    (".activation_scaling_factor", ActivationExtent::Vector),
    ("qscale_act", ActivationExtent::Vector),
    // one factor for each row or column of a weight is called so too
    (".activation_scale", ActivationExtent::Few),
    (".act_scale", ActivationExtent::Few),
    (".output_scale", ActivationExtent::Few),
    (".output_zero_point", ActivationExtent::Few),
    (".input_scale_ub", ActivationExtent::Few),
    (".weight_format", ActivationExtent::Few),
    (".prob_scale", ActivationExtent::Few),
    // ComfyUI's older mark of files of scaled FP8
    ("scaled_fp8", ActivationExtent::Few),
    // by head, token or channel
    ("k_proj.output_scale", ActivationExtent::Vector),
    ("v_proj.output_scale", ActivationExtent::Vector),
    (".k_scale", ActivationExtent::Vector),
    (".v_scale", ActivationExtent::Vector),
    (".kv_scale", ActivationExtent::Vector),
    (".q_scale", ActivationExtent::Vector),
    ("k_cache.scale", ActivationExtent::Vector),
    ("v_cache.scale", ActivationExtent::Vector),
    ("kv_cache_scaling_factor", ActivationExtent::Vector),
    // the range of a quantiser; of a weight's also by block
    ("weight_quantizer._amax", ActivationExtent::Any),
    ("_quantizer._amax", ActivationExtent::Vector),
];

/// The elements that a scale of activations has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ActivationExtent {
    /// One, or one for each of two projections.
    Few,
    /// One for each input, head or token; of stacked experts, as many for each.
    Vector,
    Any,
}

/// Whether a tensor is a scale of activations or caches, by its name and its shape: a matrix of this name is something else.
pub(crate) fn is_of_activations(info: &TensorInfo) -> bool {
    let name = &*info.name;
    let sides = || info.shape.iter().filter(|side| **side > 1).count();
    // asked for every tensor of a model, of which few have such a name
    let last = name.as_bytes().last();
    let mut rows = ACTIVATIONS.iter();
    rows.any(|(end, extent)| {
        end.as_bytes().last() == last
            && name.ends_with(end)
            && match extent {
                ActivationExtent::Few => info.elements() <= 2,
                ActivationExtent::Vector => {
                    sides() <= 1 || (sides() == 2 && is_of_stacked_experts(name))
                }
                ActivationExtent::Any => true,
            }
    })
}

/// First components of names behind a weight's stem, and why they explain themselves.
static ON_STEM: &[(&str, &str)] = &[
    ("bias", "it is added to the output of the layer"),
    ("lora_", "a low-rank adapter, stored whole beside its base"),
    ("dora_", "as above"),
    (
        "e_score_correction_bias",
        "it is added to the scores of a router",
    ),
    ("tid2eid", "a router's table from tokens to experts"),
    ("inv_freq", "frequencies of rotary embeddings"),
    ("running_mean", "a statistic of normalisation"),
    ("running_var", "as above"),
    ("num_batches_tracked", "a counter"),
    ("sinks", "logits of attention sinks"),
];

/// Whether a bias is no bias by its shape: it has one element for each output, and a bias of stacked experts has as many for each.
/// `weight`: the shape of the weight that it stands beside.
pub(super) fn is_odd_bias(bias: &[u64], weight: &[u64]) -> bool {
    let sides = bias.iter().filter(|side| **side > 1).count();
    let is_stacked = weight.len() > 2 && sides == 2 && bias.first() == weight.first();
    sides > 1 && !is_stacked
}

/// The strength of an adapter, behind a weight's stem. Without an adapter, it may be a factor of the weight.
pub(super) const STRENGTH: &str = "alpha";

/// Names of one of the two matrices of an adapter, behind a weight's stem.
pub(super) static ADAPTERS: &[&str] = &[
    ".lora_A.weight",
    ".lora_A.default.weight",
    ".lora_A",
    ".lora_down.weight",
    ".lora.down.weight",
    ".hada_w1_a",
    ".lokr_w1",
    ".lokr_w1_a",
];

/// Whether what stands behind a weight's stem explains itself. `elements`: of a tensor, 1 of a value; `has_adapter`: an adapter is there.
pub(super) fn explains_itself(rest: &str, elements: u64, has_adapter: bool) -> bool {
    if rest == STRENGTH {
        return elements == 1 && has_adapter;
    }
    // PyTorch stores a parametrised tensor whole, under this name alone: beside a weight it is one more of it
    if let Some(of) = rest.strip_prefix("parametrizations.") {
        let (of, part) = of.rsplit_once('.').unwrap_or(("", of));
        return part.starts_with("original") && of != "weight";
    }
    // a norm inside of a module
    if rest.ends_with(".gamma") || rest.ends_with(".beta") {
        return true;
    }
    ON_STEM
        .iter()
        .any(|(word, _)| match word.strip_suffix('_') {
            Some(_) => rest.starts_with(word),
            None => rest == *word,
        })
}

/// Words in names of integers that are data, and why.
static INTEGERS: &[(&str, &str)] = &[
    ("mask", "masks of attention"),
    ("attn.bias", "GPT-2's causal mask"),
    ("attention.bias", "as above, of GPT-NeoX"),
    ("position", "ids and indices of positions"),
    ("_ids", "ids of tokens, types and positions"),
    ("input_id", "as above"),
    ("token_id", "as above"),
    ("index", "an index"),
    ("indices", "as above"),
    ("tid2eid", "a router's table from tokens to experts"),
    ("num_batches_tracked", "a counter"),
    ("num_updates", "a counter of averages"),
    ("steps", "a counter of training"),
    ("spiece", "the text of a SentencePiece tokenizer"),
    ("tekken", "the text of Mistral's tokenizer"),
    ("tokenizer", "the text of a tokenizer"),
    ("vocab", "a table of a tokenizer"),
    ("merges", "as above"),
    ("image", "pixels"),
    ("pixel", "as above"),
    ("frame", "as above"),
    ("label", "data of training"),
    ("rng", "the state of a random number generator"),
    ("random", "as above"),
    ("cluster_size", "counts of a vector quantiser"),
    ("inited", "a flag"),
    ("_levels", "the sizes of a finite scalar quantiser"),
    ("_basis", "as above"),
    (
        "expert_map",
        "a router's table from experts to their places",
    ),
    ("adjacency", "the edges of a graph"),
    ("state1", "a moment of bitsandbytes' optimizers"),
    ("state2", "as above"),
    ("exp_avg", "a moment of an optimizer"),
    ("momentum", "as above"),
    ("occupancy", "the grid of a radiance field"),
    ("density_grid", "as above"),
];

/// Whether integers of this name are data of the model.
pub(super) fn is_data(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    INTEGERS.iter().any(|(word, _)| name.contains(word))
}

/// Beginnings of keys of the metadata that describe a model and not its bytes.
static METADATA: &[(&str, &str)] = &[
    ("format_version", "of a container's own format"),
    ("scaled_fp8", "ComfyUI's older mark of files of scaled FP8"),
    ("ss_", "settings of training by kohya's scripts"),
    ("sshs_", "hashes of the same"),
    ("modelspec.", "Stability's description of a model"),
    ("total_size", "of an index"),
    ("total_parameters", "of an index"),
    ("prompt", "the graph that ComfyUI has made the file with"),
    ("workflow", "as above"),
    ("license", "a text"),
    ("description", "a text"),
    ("author", "a text"),
    ("anamnesis", "written by this library"),
    ("tensor_names", "torchao's list of its tensors"),
    ("DCP_", "places of pieces, which opening looks at"),
    ("general.quantized_by", "a name"),
    ("mradermacher.", "an uploader's notes of its own run"),
    (
        "quantize.imatrix.file",
        "the data by which errors were weighed when blocks were made",
    ),
    ("quantize.imatrix.dataset", "as above"),
    ("quantize.imatrix.entries_count", "as above"),
    ("quantize.imatrix.chunks_count", "as above"),
    ("tokenizer.", "a vocabulary and its texts"),
];

/// Whether a key of the metadata describes a model and not its bytes.
pub(super) fn is_description(key: &str) -> bool {
    METADATA.iter().any(|(start, _)| key.starts_with(start))
}

/// Whether elements are integers that codes are packed in. Indices have 64 bits.
pub(super) fn is_integer(encoding: &Encoding) -> bool {
    matches!(
        encoding,
        Encoding::Plain(Dtype::I8 | Dtype::U8 | Dtype::I16 | Dtype::U16 | Dtype::I32 | Dtype::U32)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_explain_themselves() {
        for rest in [
            "bias",
            "lora_A.weight",
            "parametrizations.bias.original0",
            "alpha",
        ] {
            assert!(explains_itself(rest, 1, true), "{rest}");
        }
        for rest in [
            "bias_scale",
            "weight_shift",
            "biased",
            "alphas",
            "parametrizations.weight.0.scale",
            "parametrizations.weight.original0",
        ] {
            assert!(!explains_itself(rest, 1, true), "{rest}");
        }
        assert!(!explains_itself("alpha", 24, true) && !explains_itself("alpha", 1, false));
    }

    #[test]
    fn biases_have_an_element_for_each_output() {
        for (bias, weight) in [
            (&[24][..], &[24, 96][..]),
            (&[1, 24], &[24, 96]),
            (&[1, 24, 1, 1], &[24, 96, 3, 3]),
            (&[8, 24], &[8, 24, 96]),
        ] {
            assert!(!is_odd_bias(bias, weight), "{bias:?}");
        }
        for (bias, weight) in [(&[24, 96][..], &[24, 96][..]), (&[24, 3], &[24, 96])] {
            assert!(is_odd_bias(bias, weight), "{bias:?}");
        }
    }

    #[test]
    fn every_row_has_a_reason() {
        let tables = [ON_STEM, INTEGERS, METADATA];
        assert!(
            tables
                .iter()
                .flat_map(|table| *table)
                .all(|(_, why)| why.len() > 5)
        );
    }
}
