//! The entries of a model's configuration that decide how it is split.

use crate::checkpoint::Checkpoint;
use crate::error::Result;
use crate::limits::Budget;
use crate::quant::scheme::QuantConfig;

/// Sizes of the model; `None` where the configuration has no such entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ModelConfig {
    pub(crate) heads: Option<u64>,
    pub(crate) kv_heads: Option<u64>,
    pub(crate) layers: Option<u64>,
}

impl ModelConfig {
    /// From the `config.json` in the checkpoint's directory, or from a GGUF's metadata.
    pub(crate) fn of(checkpoint: &Checkpoint, budget: &Budget) -> Result<Self> {
        let metadata = &checkpoint.catalog().metadata;
        if let Some(model) = metadata.text("general.architecture") {
            let size = |name: &str| metadata.integer(&[model, ".", name].concat());
            let heads = size("attention.head_count");
            // absent if equal to the number of heads; a list if layers differ, which are then split evenly
            let kv_heads = size("attention.head_count_kv");
            return Ok(Self {
                heads,
                kv_heads,
                layers: size("block_count"),
            });
        }
        // a directory of GGUF or NumPy files may hold the configuration of another model
        let path = checkpoint
            .path()
            .filter(|_| matches!(checkpoint.catalog().format, "safetensors" | "pth"));
        let Some(path) = path else {
            return Ok(Self::default());
        };
        // a few numbers are kept
        let _tree = budget.scope();
        let config = QuantConfig::load_sidecar(checkpoint.files(), path, budget)?;
        // the first names are those of most models, the others of GPT-2, Falcon, ChatGLM and their kin
        let heads = config.size(&["num_attention_heads", "n_head", "n_heads"]);
        let kv_heads = config.size(&[
            "num_key_value_heads",
            "multi_query_group_num",
            "n_head_kv",
            "num_kv_heads",
        ]);
        Ok(Self {
            heads,
            kv_heads,
            layers: config.size(&["num_hidden_layers", "n_layer", "n_layers"]),
        })
    }
}
