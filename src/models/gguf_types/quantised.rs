//! Which tensors of a GGUF are quantised: matrices whose rounding a model bears.
//!
//! Source: `tensor_allows_quantization` of llama.cpp's `src/llama-quant.cpp`.

use super::{GgmlTensor, OUTPUT};

/// Parts of names whose tensors keep their type: routers, small convolutions, positions, the low-rank factors of RWKV, and the
/// parts of encoders of images and sound.
const KEPT: &[&str] = &[
    "_norm.weight",
    "ffn_gate_inp.weight",
    "ffn_gate_tid2eid.weight",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "indexer.k_proj.weight",
    "indexer.q_proj.weight",
    "time_mix_first.weight",
    "time_mix_w0.weight",
    "time_mix_w1.weight",
    "time_mix_w2.weight",
    "time_mix_v0.weight",
    "time_mix_v1.weight",
    "time_mix_v2.weight",
    "time_mix_a0.weight",
    "time_mix_a1.weight",
    "time_mix_a2.weight",
    "time_mix_g1.weight",
    "time_mix_g2.weight",
    "time_mix_decay_w1.weight",
    "time_mix_decay_w2.weight",
    "time_mix_lerp_fused.weight",
    "attn_rel_b.weight",
    ".position_embd",
    "sam.pos_embd",
    "sam.neck.",
    "sam.net_",
    ".rel_pos",
    ".patch_embd",
    ".patch_merger",
    "a.rvq.codebook",
    "mm.a.code_embd",
];

/// Whole names that keep their type.
const KEPT_NAMES: &[&str] = &["position_embd.weight", "token_types.weight"];

/// Whether the weight gets another type than its own.
pub(crate) fn is_quantised(tensor: GgmlTensor<'_>, leave_output: bool) -> bool {
    let name = tensor.name;
    tensor.sizes.len() >= 2
        // also of a bias, or a table of positions
        && name.ends_with("weight")
        && !(leave_output && name == OUTPUT)
        && !KEPT_NAMES.contains(&name)
        && !KEPT.iter().any(|part| name.contains(part))
}

/// Whether llama.cpp's converter writes a tensor of a Hugging Face checkpoint as F32, whatever the file type.
///
/// Source: `prepare_tensors` of `conversion/base.py`.
pub(crate) fn is_always_f32(name: &str, dimensions: usize) -> bool {
    const ENDS: &[&str] = &[
        "_norm.weight",
        "ffn_gate_inp.weight",
        "ffn_gate_inp_shexp.weight",
        "ssm_conv1d.weight",
        "shortconv.conv.weight",
    ];
    dimensions <= 1
        || !name.ends_with(".weight")
        || KEPT_NAMES.contains(&name)
        || ENDS.iter().any(|end| name.ends_with(end))
}
