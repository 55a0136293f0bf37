//! The lists: modules by name.

/// The function of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModuleRole {
    Query,
    Key,
    Value,
    /// A latent vector of keys and values, with the rotated keys.
    LatentKeysValues,
    AttentionOutput,
    Gate,
    /// From a hidden state to the width of a feed-forward network.
    Up,
    Down,
    /// Over the inputs of a recurrent layer.
    Convolution,
}

/// A module of a layer.
#[derive(Debug)]
pub(super) struct ModuleName {
    pub(super) name: &'static str,
    pub(super) role: ModuleRole,
    /// Whether this is the name in a GGUF, where a layer's modules have no parents.
    pub(super) is_gguf: bool,
}

const fn hf(name: &'static str, role: ModuleRole) -> ModuleName {
    ModuleName {
        name,
        role,
        is_gguf: false,
    }
}

const fn gguf(name: &'static str, role: ModuleRole) -> ModuleName {
    ModuleName {
        name,
        role,
        is_gguf: true,
    }
}

/// The modules of a decoder's layer.
pub(super) static MODULES: &[ModuleName] = &[
    hf("q_proj", ModuleRole::Query),
    hf("k_proj", ModuleRole::Key),
    hf("v_proj", ModuleRole::Value),
    hf("kv_a_proj_with_mqa", ModuleRole::LatentKeysValues),
    hf("o_proj", ModuleRole::AttentionOutput),
    hf("out_proj", ModuleRole::AttentionOutput),
    hf("gate_proj", ModuleRole::Gate),
    hf("up_proj", ModuleRole::Up),
    hf("down_proj", ModuleRole::Down),
    hf("fc1", ModuleRole::Up),
    hf("fc2", ModuleRole::Down),
    hf("conv1d", ModuleRole::Convolution),
    gguf("attn_q", ModuleRole::Query),
    gguf("attn_k", ModuleRole::Key),
    gguf("attn_v", ModuleRole::Value),
    gguf("attn_kv_a_mqa", ModuleRole::LatentKeysValues),
    gguf("attn_output", ModuleRole::AttentionOutput),
    gguf("ffn_gate", ModuleRole::Gate),
    gguf("ffn_up", ModuleRole::Up),
    gguf("ffn_down", ModuleRole::Down),
    gguf("ssm_conv1d", ModuleRole::Convolution),
];

/// Modules of a layer that are its attention to earlier tokens; others, such as `encoder_attn`, attend elsewhere.
pub(super) static ATTENTION: &[&str] = &["self_attn", "attention", "attn", "temporal_block"];

/// Modules of a layer that keep a state.
pub(super) static MIXERS: &[&str] = &["linear_attn", "mamba", "mixer"];

/// A projection that several were fused into, along their outputs.
#[derive(Debug)]
pub(crate) struct FusedModule {
    pub(super) name: &'static str,
    /// Projections in it.
    pub(crate) parts: u64,
    pub(crate) rows: FusedRows,
}

/// How the rows of a fused projection are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FusedRows {
    /// Into as many for each.
    Equal,
    /// Into queries, keys and values, of which grouped heads have fewer.
    OfHeads,
    /// By sizes of a model's own.
    Other,
}

const fn fused(name: &'static str, parts: u64, rows: FusedRows) -> FusedModule {
    FusedModule { name, parts, rows }
}

/// The projections that are fused: by their models, or by vLLM's classes (`packed_modules_mapping`). Queries, keys and values that are
/// interleaved head by head, as in `query_key_value`, are none.
pub(super) static FUSED: &[FusedModule] = &[
    fused("qkv_proj", 3, FusedRows::OfHeads),
    fused("qkv", 3, FusedRows::OfHeads),
    fused("to_qkv", 3, FusedRows::OfHeads),
    fused("Wqkv", 3, FusedRows::OfHeads),
    fused("W_pack", 3, FusedRows::Equal),
    fused("kv_proj", 2, FusedRows::Equal),
    fused("to_kv", 2, FusedRows::Equal),
    fused("gate_up_proj", 2, FusedRows::Equal),
    fused("w13", 2, FusedRows::Equal),
    fused("in_proj_qkvz", 4, FusedRows::Other),
    fused("in_proj_ba", 2, FusedRows::Equal),
    fused("fused_qkv_a_proj", 2, FusedRows::Other),
    fused("fused_qkv_a_proj_with_mqa", 2, FusedRows::Other),
];

/// Input embeddings of tokens.
pub(super) static EMBEDDINGS: &[&str] = &[
    "embed_tokens",
    "token_embd",
    "tok_embeddings",
    "wte",
    "embed_in",
    "word_embeddings",
    // T5's and BART's, of encoder and decoder
    "shared",
];

/// Output layers in transformers: its `_tied_weights_keys`.
pub(super) static HEADS: &[&str] = &["lm_head", "embed_out", "output_projection"];

/// The output layer in a head of several layers, as BERT has it.
pub(super) static HEADS_OF_SEVERAL: &[&str] = &["decoder"];

/// The output layer in a GGUF and in Meta's checkpoints.
pub(super) const GGUF_HEAD: &str = "output.weight";

/// Parts of the names of what is in front of the layers: embeddings of any kind.
pub(super) static FRONT: &[&str] = &["embed", "embd", "wte", "wpe"];

/// Parts of the names of routers.
pub(super) static ROUTERS: &[&str] = &[
    "router",
    "mlp.gate.",
    "ffn_gate_inp",
    "block_sparse_moe.gate.",
];

/// The module that contains experts, as part of a name.
pub(super) const EXPERTS: &str = "experts.";

/// Parts of the names of image encoders and their projections; with a dot at the end, the beginning of a name.
pub(super) static VISION: &[&str] = &["vision", "visual", "projector", "mm.", "v.blk."];

/// Parts of the names of stacks that are not the decoder's.
pub(super) static OTHER_STACKS: &[&str] = &[
    "vision",
    "visual",
    "audio",
    "encoder",
    "mtp",
    "projector",
    "talker",
];

/// First parts of the names of what a training run stores alongside the weights.
pub(super) static TRAINING: &[&str] = &[
    "optimizer",
    "optimizers",
    "optimizer_states",
    "optimizer_state_dict",
    "optim",
    "lr_scheduler",
    "lr_schedulers",
    "scaler",
];

/// Values of `model_type` whose classes have `Conv1D` modules.
pub(super) static CONV1D_TYPES: &[&str] =
    &["gpt2", "openai-gpt", "imagegpt", "decision_transformer"];

/// Names of these modules.
pub(super) static CONV1D_MODULES: &[&str] = &["c_attn", "c_fc", "c_proj", "q_attn"];
