//! The sizes of a model, by name.

use super::ModelConfig;
use super::keys;

impl ModelConfig {
    /// Layers.
    ///
    /// ```
    /// use anamnesis::ModelConfig;
    ///
    /// // GPT-2's names for its sizes, and the names of most models
    /// let gpt2 = ModelConfig::from_json(br#"{"n_layer": 12, "n_embd": 768, "n_head": 12}"#)?;
    /// let llama = br#"{"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12}"#;
    /// let llama = ModelConfig::from_json(llama)?;
    /// assert_eq!(gpt2.layers(), llama.layers());
    /// assert_eq!((gpt2.head_dim(), llama.head_dim()), (Some(64), Some(64)));
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    pub fn layers(&self) -> Option<u64> {
        self.number(&keys::LAYERS)
    }

    /// Elements of a hidden state.
    pub fn hidden_size(&self) -> Option<u64> {
        self.number(&keys::HIDDEN_SIZE)
    }

    /// Tokens of the vocabulary.
    pub fn vocabulary(&self) -> Option<u64> {
        self.number(&keys::VOCABULARY)
    }

    /// The longest context that the model was made for, in tokens.
    pub fn context_max(&self) -> Option<u64> {
        self.number(&keys::CONTEXT_MAX)
    }

    /// Width of a feed-forward network, the greatest where layers differ.
    pub fn feed_forward(&self) -> Option<u64> {
        self.greatest(&keys::FEED_FORWARD)
    }

    /// Heads of queries; `None` where layers have different numbers of them.
    pub fn heads(&self) -> Option<u64> {
        self.uniform(&keys::HEADS)
    }

    /// Heads of keys and values, if they are stated: often absent where they are as many as of queries.
    pub fn kv_heads(&self) -> Option<u64> {
        self.uniform(&keys::KV_HEADS)
    }

    /// Elements of a head: stated, or the elements of a hidden state over the heads.
    pub fn head_dim(&self) -> Option<u64> {
        let divided = || self.hidden_size()?.checked_div(self.heads()?);
        self.number(&keys::HEAD_DIM).or_else(divided)
    }

    /// Routed experts of a layer.
    pub fn experts(&self) -> Option<u64> {
        self.number(&keys::EXPERTS)
    }

    /// Experts that a token is routed to.
    pub fn experts_used(&self) -> Option<u64> {
        self.number(&keys::EXPERTS_USED)
    }

    /// Width of an expert's feed-forward network.
    pub fn expert_feed_forward(&self) -> Option<u64> {
        self.number(&keys::EXPERT_FEED_FORWARD)
    }

    /// Tokens of a window, in layers that have one; `None` if the model does not use windows.
    pub fn sliding_window(&self) -> Option<u64> {
        // Qwen 2 states a window that is switched off
        if self.truth(&keys::USES_WINDOW) == Some(false) {
            return None;
        }
        self.number(&keys::SLIDING_WINDOW)
    }

    /// Layers behind the configured ones that predict further tokens. In a GGUF they are among the layers.
    pub(crate) fn further_layers(&self) -> u64 {
        let stated = self.number(&keys::PREDICTING_LAYERS);
        stated.filter(|_| !self.is_gguf()).unwrap_or(0)
    }

    /// Whether the class of the model in transformers shares the weight of the input embedding with the output layer where the
    /// configuration does not say. Only classes that are known to do so are listed.
    pub(crate) fn ties_by_default(&self) -> bool {
        const TIED: [&str; 24] = [
            "albert",
            "bart",
            "bert",
            "bloom",
            "camembert",
            "distilbert",
            "electra",
            "falcon",
            "gemma",
            "gemma2",
            "gpt2",
            "gpt_bigcode",
            "gpt_neo",
            "mamba",
            "marian",
            "mbart",
            "mpt",
            "opt",
            "pegasus",
            "roberta",
            "t5",
            "whisper",
            "xglm",
            "xlm-roberta",
        ];
        // a model of several modalities has a class of its own
        self.outer.is_empty() && self.model_type().is_some_and(|name| TIED.contains(&name))
    }

    /// Whether the output layer shares the weight of the input embedding, if the configuration says it.
    pub(crate) fn ties_embeddings(&self) -> Option<bool> {
        // the whole model's entry: a nested language model has a default of its own there
        let of = |map: &serde_json::Map<String, serde_json::Value>| {
            let mut keys = keys::TIED_EMBEDDINGS.config_json().iter();
            keys.find_map(|key| map.get(*key)?.as_bool())
        };
        of(if self.outer.is_empty() {
            &self.language
        } else {
            &self.outer
        })
    }
}
