//! The entries of a model's configuration that decide how it is split.

use crate::base::error::Result;
use crate::base::limits::Budget;
use crate::models::config::ModelConfig;
use crate::read::checkpoint::Checkpoint;

/// Sizes of the model; `None` where the configuration has no such entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeadCounts {
    pub(crate) heads: Option<u64>,
    /// Absent in many configurations if equal to the number of heads.
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
        Self {
            heads: config.heads(),
            kv_heads: config.kv_heads(),
            layers: config.layers(),
        }
    }
}
