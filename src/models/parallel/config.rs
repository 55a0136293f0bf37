//! The entries of a model's configuration that decide how it is split.

use crate::base::error::Result;
use crate::base::limits::Budget;
use crate::models::config::ModelConfig;
use crate::read::checkpoint::Checkpoint;

/// Keys of `config.json` for the number of attention heads: of most models, and of GPT-2, Falcon and their kin.
pub(crate) const HEADS: &[&str] = &["num_attention_heads", "n_head", "n_heads"];
/// Keys of `config.json` for the number of heads of keys and values: of most models, and of ChatGLM, Falcon and their kin.
pub(crate) const KV_HEADS: &[&str] = &[
    "num_key_value_heads",
    "multi_query_group_num",
    "n_head_kv",
    "num_kv_heads",
];

/// Sizes of the model; `None` where the configuration has no such entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeadCounts {
    pub(crate) heads: Option<u64>,
    pub(crate) kv_heads: Option<u64>,
    pub(crate) layers: Option<u64>,
}

impl HeadCounts {
    /// From the `config.json` in the checkpoint's directory, or from a GGUF's metadata.
    pub(crate) fn of(checkpoint: &Checkpoint, budget: &Budget) -> Result<Self> {
        // a few numbers are kept
        let _tree = budget.scope();
        let config = ModelConfig::load(checkpoint, budget)?;
        Ok(Self::in_config(&config))
    }

    /// From a configuration.
    pub(crate) fn in_config(config: &ModelConfig) -> Self {
        if config.is_gguf() {
            return Self {
                heads: config.uniform("attention.head_count"),
                // absent if equal to the number of heads; a list if layers differ, as where some have no attention
                kv_heads: config.uniform("attention.head_count_kv"),
                layers: config.size(&["block_count"]),
            };
        }
        Self {
            heads: config.size(HEADS),
            kv_heads: config.size(KV_HEADS),
            layers: config.size(&["num_hidden_layers", "n_layer", "n_layers"]),
        }
    }
}
