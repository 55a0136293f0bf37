//! The entries of a model's configuration that decide how it is split.

use crate::checkpoint::Checkpoint;
use crate::error::Result;
use crate::limits::Budget;
use crate::model_config::ModelConfig;

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
        // the first names are those of most models, the others of GPT-2, Falcon, ChatGLM and their kin
        Self {
            heads: config.size(&["num_attention_heads", "n_head", "n_heads"]),
            kv_heads: config.size(&[
                "num_key_value_heads",
                "multi_query_group_num",
                "n_head_kv",
                "num_kv_heads",
            ]),
            layers: config.size(&["num_hidden_layers", "n_layer", "n_layers"]),
        }
    }
}
