//! The keys of configurations: one row per field, with all its synonyms.
//!
//! This table is the only place with keys that describe a model. A new synonym is one word in its row, and every verb reads
//! it from then on. The first key of a row that a configuration has decides, and the first of all is the name by which
//! errors and findings call the field. A key is in one row only, so that no two verbs can read it differently; the keys
//! that one architecture alone has in its GGUF files are with that architecture (`models/architectures`).
//!
//! Sources: transformers' `configuration_*.py` with their `attribute_map`, and llama.cpp's `gguf-py/gguf/constants.py`.

/// A field of a model's configuration, and the keys under which it may be stated.
///
/// ```
/// use anamnesis::ModelConfig;
///
/// let mut fields = ModelConfig::fields().iter();
/// let used = fields.find(|field| field.name() == "experts_used").unwrap();
/// assert!(used.config_json().contains(&"num_experts_per_tok"));
/// assert_eq!(used.gguf(), ["expert_used_count"]);
/// ```
#[derive(Debug)]
pub struct ConfigField {
    name: &'static str,
    config_json: &'static [&'static str],
    gguf: &'static [&'static str],
}

impl ConfigField {
    /// The name, in this library's words.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Keys of a `config.json`, the one that takes precedence first. A dot separates the key of a nested object from the
    /// key in it.
    pub fn config_json(&self) -> &'static [&'static str] {
        self.config_json
    }

    /// Keys of a GGUF's metadata, without the architecture's prefix where they have it.
    pub fn gguf(&self) -> &'static [&'static str] {
        self.gguf
    }

    pub(super) fn keys(&self, is_gguf: bool) -> &'static [&'static str] {
        if is_gguf { self.gguf } else { self.config_json }
    }

    /// The key by which errors and findings call the field.
    pub(crate) fn key(&self, is_gguf: bool) -> &'static str {
        let own = self.keys(is_gguf).first();
        // only the last part of a nested key: `full_attn_layers`
        let last = |key: &'static str| key.rsplit('.').next().unwrap_or(key);
        match own {
            Some(key) if is_gguf => key,
            Some(key) => last(key),
            None => self.name,
        }
    }
}

macro_rules! fields {
    ($($(#[$doc:meta])* $field:ident $name:literal [$($json:literal),*] [$($gguf:literal),*];)*) => {
        $($(#[$doc])* pub(crate) static $field: ConfigField = ConfigField {
            name: $name,
            config_json: &[$($json),*],
            gguf: &[$($gguf),*],
        };)*
        /// All rows.
        pub(super) static FIELDS: &[&ConfigField] = &[$(&$field),*];
    };
}

/// The keys under which models of several modalities keep the configuration of their language model.
pub(super) const LANGUAGE_MODELS: [&str; 4] = [
    "text_config",
    "language_config",
    "llm_config",
    "thinker_config",
];

/// The end of the keys of special tokens.
pub(super) const TOKEN_ID: &str = "_token_id";

/// The beginning of the keys that describe the tokenizer of a GGUF.
pub(crate) const GGUF_TOKENIZER: &str = "tokenizer.ggml.";

/// The array of a GGUF with the tokens of its vocabulary.
pub(crate) const GGUF_TOKENS: &str = "tokenizer.ggml.tokens";

fields! {
    // the model
    /// The architecture of the model, or of the language model where several are nested.
    MODEL_TYPE "model_type" ["model_type"] ["general.architecture"];
    /// Names of classes in transformers.
    CLASSES "classes" ["architectures"] [];
    /// The dtype of the weights: in transformers 5, and in earlier versions and MLX.
    DTYPE "dtype" ["dtype", "torch_dtype"] [];
    /// Whether the output layer shares the weight of the input embedding.
    TIED_EMBEDDINGS "tied_embeddings" ["tie_word_embeddings"] [];

    // sizes
    /// Layers.
    LAYERS "layers" ["num_hidden_layers", "n_layer", "n_layers"] ["block_count"];
    /// Layers by a key that LongCat and T5 have: of two attentions each there, of the encoder here.
    STACK_LAYERS "stack_layers" ["num_layers"] [];
    /// Layers of the decoder where an encoder has layers of its own.
    DECODER_LAYERS "decoder_layers" ["num_decoder_layers", "decoder_layers"] ["decoder_block_count"];
    /// Layers that predict further tokens, which some configurations count among the layers and some do not.
    PREDICTING_LAYERS "predicting_layers" ["num_nextn_predict_layers", "num_mtp_layers"] ["nextn_predict_layers"];
    /// Layers at the end that read the cache of earlier ones.
    SHARING_LAYERS "sharing_layers" ["num_kv_shared_layers"] ["attention.shared_kv_layers"];
    /// Elements of a hidden state.
    HIDDEN_SIZE "hidden_size" ["hidden_size", "n_embd", "d_model"] ["embedding_length"];
    /// Tokens of the vocabulary; an array of a GGUF counts by its length.
    VOCABULARY "vocabulary" ["vocab_size"] ["vocab_size", "tokenizer.ggml.tokens"];
    /// The longest context that the model was made for, in tokens.
    CONTEXT_MAX "context_max"
        ["max_position_embeddings", "context_length", "n_positions", "max_target_positions", "model_max_length", "max_seq_len",
        "seq_length"] ["context_length"];
    /// Outputs of the encoder, where they are always as many.
    ENCODER_OUTPUTS "encoder_outputs" ["max_source_positions"] [];
    /// Width of a feed-forward network.
    FEED_FORWARD "feed_forward"
        ["intermediate_size", "ffn_dim", "n_inner", "d_ff", "ffn_hidden_size", "decoder_ffn_dim"] ["feed_forward_length"];

    // experts
    /// Routed experts of a layer.
    EXPERTS "experts" ["num_experts", "num_local_experts", "n_routed_experts"] ["expert_count"];
    /// Experts that a token is routed to.
    EXPERTS_USED "experts_used"
        ["num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_topk", "moe_top_k"] ["expert_used_count"];
    /// Width of an expert.
    EXPERT_FEED_FORWARD "expert_feed_forward" ["moe_intermediate_size"] ["expert_feed_forward_length"];

    // attention
    /// Heads of queries: in most models, and in GPT-2, Falcon and their kin.
    HEADS "heads" ["num_attention_heads", "n_head", "n_heads"] ["attention.head_count"];
    /// Heads by the key of T5 and Mamba 2, whose layers have one kind of heads.
    ONLY_HEADS "only_heads" ["num_heads"] [];
    /// Heads of a decoder whose encoder may have others.
    DECODER_HEADS "decoder_heads" ["decoder_attention_heads"] [];
    /// Heads of keys and values: in most models, and in ChatGLM, Falcon and their kin.
    KV_HEADS "kv_heads" ["num_key_value_heads", "multi_query_group_num", "n_head_kv", "num_kv_heads"]
        ["attention.head_count_kv"];
    /// Elements of a head of keys.
    HEAD_DIM "head_dim" ["head_dim"] ["attention.key_length"];
    /// Elements of a head of values, where keys have others.
    VALUE_HEAD_DIM "value_head_dim" ["v_head_dim"] ["attention.value_length"];
    /// Elements of a head by the key of T5.
    KV_DIM "kv_dim" ["d_kv"] [];
    /// Elements of a head of Zamba 2's shared attention.
    SHARED_HEAD_DIM "shared_head_dim" ["attention_head_dim"] [];
    /// Elements of a head in layers without a window, where those with one have others.
    GLOBAL_HEAD_DIM "global_head_dim" ["global_head_dim"] [];
    /// Heads of keys and values in layers without a window, where those with one have others.
    GLOBAL_KV_HEADS "global_kv_heads" ["num_global_key_value_heads"] [];
    /// Heads of keys and values in layers with a window, where the others have fewer.
    WINDOW_KV_HEADS "window_kv_heads" ["swa_num_key_value_heads"] [];
    /// Elements of a head of keys in layers with a window.
    WINDOW_HEAD_DIM "window_head_dim" ["swa_head_dim"] ["attention.key_length_swa"];
    /// Elements of a head of values in layers with a window.
    WINDOW_VALUE_HEAD_DIM "window_value_head_dim" ["swa_v_head_dim"] ["attention.value_length_swa"];
    /// Sizes of single layers that differ: a map from the layer's number to keys of this table.
    LAYER_OVERRIDES "layer_overrides" ["per_layer_config"] [];
    /// Whether values are the keys.
    KEYS_ARE_VALUES "keys_are_values" ["attention_k_eq_v"] [];
    /// Whether all heads of queries share one head of keys and values (Falcon).
    MULTI_QUERY "multi_query" ["multi_query"] [];
    /// Whether heads of keys and values are grouped (Falcon).
    GROUPED_QUERIES "grouped_queries" ["new_decoder_architecture"] [];
    /// Elements of a latent vector.
    LATENT_RANK "latent_rank" ["kv_lora_rank"] ["attention.kv_lora_rank"];
    /// Elements of a latent vector's rotated keys; of a GGUF, elements of a head that are rotated.
    ROTATED_DIM "rotated_dim" ["qk_rope_head_dim"] ["rope.dimension_count"];
    /// Elements of a decompressed head of keys, which tells a GGUF with latent vectors from an older one.
    LATENT_HEAD_DIM "latent_head_dim" [] ["attention.key_length_mla"];
    /// Elements of a decompressed head of values.
    LATENT_VALUE_HEAD_DIM "latent_value_head_dim" [] ["attention.value_length_mla"];
    /// Elements of an indexer's keys.
    INDEX_DIM "index_dim" ["index_head_dim"] ["attention.indexer.key_length"];

    // which layer is of which kind
    /// The kind of each layer.
    LAYER_KINDS "layer_kinds" ["layer_types", "layers_block_type"] [];
    /// Tokens of a window.
    SLIDING_WINDOW "sliding_window" ["sliding_window", "attention_window_size", "sliding_window_size"]
        ["attention.sliding_window"];
    /// Whether windows are used.
    USES_WINDOW "uses_window" ["use_sliding_window"] [];
    /// The first layer with a window.
    FIRST_WINDOW_LAYER "first_window_layer" ["max_window_layers"] [];
    /// The period of layers without a window, letters that are repeated, or a list.
    WINDOW_PATTERN "window_pattern" ["sliding_window_pattern", "_sliding_window_pattern"] ["attention.sliding_window_pattern"];
    /// Tokens of a chunk.
    CHUNK "chunk" ["attention_chunk_size"] [];
    /// Per layer 1 with rotation and 0 without, despite the name.
    ROTATED_LAYERS "rotated_layers" ["no_rope_layers"] [];
    /// The period of layers without rotation.
    UNROTATED_INTERVAL "unrotated_interval" ["no_rope_layer_interval"] [];
    /// Per layer 0 without a window (MiMo).
    WINDOW_FLAGS "window_flags" ["hybrid_layer_pattern"] [];
    /// A letter per layer (Nemotron-H).
    LAYER_LETTERS "layer_letters" ["hybrid_override_pattern"] [];
    /// Numbers of the layers with attention (Bamba).
    ATTENTION_INDICES "attention_indices" ["attn_layer_indices"] [];
    /// Numbers of the layers with attention (LFM2).
    ATTENTION_IDXS "attention_idxs" ["full_attn_idxs"] [];
    /// Numbers from 1 of the layers with attention (Kimi).
    ATTENTION_NUMBERS "attention_numbers" ["linear_attn_config.full_attn_layers"] [];
    /// The period of layers with attention among recurrent ones.
    ATTENTION_INTERVAL "attention_interval" ["full_attention_interval"] ["full_attention_interval"];
    /// The same in Jamba, with the offset of the first.
    ATTENTION_PERIOD "attention_period" ["attn_layer_period"] [];
    /// The first layer with attention (Jamba).
    ATTENTION_OFFSET "attention_offset" ["attn_layer_offset"] [];
    /// Per layer 1 with attention (MiniMax).
    ATTENTION_FLAGS "attention_flags" ["attn_type_list"] [];
    /// Kinds of layers that are repeated (RecurrentGemma).
    REPEATED_KINDS "repeated_kinds" ["block_types"] [];
    /// Numbers of the layers that attend to an image alone.
    CROSS_LAYERS "cross_layers" ["cross_attention_layers"] [];

    // states
    /// The dtype of recurrent states in vLLM.
    STATE_DTYPE "state_dtype" ["mamba_ssm_cache_dtype"] [];
    /// Channels of a state-space layer.
    STATE_CHANNELS "state_channels" ["d_inner"] ["ssm.inner_size"];
    /// Channels of Mamba 2's layers in a model with attention too.
    HYBRID_STATE_CHANNELS "hybrid_state_channels" ["mamba_d_ssm"] [];
    /// Channels of a state-space layer per element of a hidden state.
    STATE_EXPANSION "state_expansion" ["mamba_expand", "expand"] [];
    /// Elements of a state per channel.
    STATE_SIZE "state_size" ["mamba_d_state", "ssm_state_size", "state_size", "d_state"] ["ssm.state_size"];
    /// Width of the kernel of a state-space layer's convolution.
    STATE_KERNEL "state_kernel" ["mamba_d_conv", "conv_kernel", "d_conv"] ["ssm.conv_kernel"];
    /// Heads of Mamba 2.
    STATE_HEADS "state_heads" ["mamba_n_heads", "mamba_num_heads", "n_mamba_heads"] [];
    /// Elements of a head of Mamba 2; a text where it follows from other sizes.
    STATE_HEAD_DIM "state_head_dim" ["mamba_d_head", "mamba_head_dim", "mamba_headdim"] [];
    /// Groups of heads of Mamba 2.
    STATE_GROUPS "state_groups" ["mamba_n_groups", "mamba_ngroups", "n_groups"] ["ssm.group_count"];
    /// Elements of a head of keys in linear attention.
    LINEAR_KEY_DIM "linear_key_dim" ["linear_key_head_dim"] [];
    /// Elements of a head of values in linear attention.
    LINEAR_VALUE_DIM "linear_value_dim" ["linear_value_head_dim"] [];
    /// Heads of keys in linear attention.
    LINEAR_KEY_HEADS "linear_key_heads" ["linear_num_key_heads"] [];
    /// Heads of values in linear attention.
    LINEAR_VALUE_HEADS "linear_value_heads" ["linear_num_value_heads"] [];
    /// Elements of a head in Kimi's linear attention: published, and as transformers writes it.
    LINEAR_HEAD_DIM "linear_head_dim" ["linear_attn_config.head_dim", "linear_head_dim"] ["kda.head_dim"];
    /// Heads of Kimi's linear attention.
    LINEAR_HEADS "linear_heads" ["linear_attn_config.num_heads", "linear_num_heads"] [];
    /// Width of the kernel of linear attention's convolution.
    LINEAR_KERNEL "linear_kernel" ["linear_attn_config.short_conv_kernel_size", "linear_conv_kernel_dim"] [];
    /// Inputs that a short convolution keeps.
    SHORT_CONVOLUTION "short_convolution" ["conv_L_cache"] ["shortconv.l_cache"];
    /// Channels of a linear recurrent unit.
    RECURRENT_WIDTH "recurrent_width" ["lru_width"] [];
    /// Width of the kernel in front of a linear recurrent unit.
    RECURRENT_KERNEL "recurrent_kernel" ["conv1d_width"] [];
}

#[cfg(test)]
mod tests {
    use super::FIELDS;

    #[test]
    fn a_key_and_a_name_are_in_one_row() {
        for is_gguf in [false, true] {
            let mut keys: Vec<_> = FIELDS
                .iter()
                .flat_map(|field| field.keys(is_gguf))
                .collect();
            let all = keys.len();
            keys.sort_unstable();
            keys.dedup();
            assert_eq!(keys.len(), all);
            assert!(all > 25, "{all}");
        }
        let mut names: Vec<_> = FIELDS.iter().map(|field| field.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FIELDS.len());
    }
}
