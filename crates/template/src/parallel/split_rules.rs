//! The table of tensor names and how the tensors are split.

use std::fmt;
use std::str::FromStr;

use super::Split;
use super::glob::matches;
use super::slice::{Experts, slice, slice_experts};
use crate::StridedRange;
use crate::error::{Error, Result, quote};

/// How a tensor is split among workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// Every worker reads the whole tensor: norms, routers, and tensors without a rule.
    Replicated,
    /// Each worker reads some of the outputs: a contiguous part of the rows.
    Column,
    /// Each worker reads some of the inputs: columns of the matrix, one run per row. Vectors are
    /// read whole.
    Row,
    /// Rows are tokens of the vocabulary: as `Column`, after padding the vocabulary to a multiple
    /// of 64.
    Vocab,
    /// The outputs are heads of keys or values: see [`Split::kv_heads`].
    KeyValue,
    /// The rows are queries, then keys, then values; each part is split by heads.
    FusedQkv,
    /// The rows are gate, then up projections; each part is split as `Column`.
    FusedGateUp,
}

/// Every rule and its name.
const NAMES: [(&str, Rule); 7] = [
    ("replicated", Rule::Replicated),
    ("column", Rule::Column),
    ("row", Rule::Row),
    ("vocab", Rule::Vocab),
    ("kv", Rule::KeyValue),
    ("qkv", Rule::FusedQkv),
    ("gate-up", Rule::FusedGateUp),
];

/// Names in Hugging Face checkpoints, then Meta's, then GGUF's. The first match applies.
const TABLE: &[(&str, Rule)] = &[
    // before the rules of attention, whose names its projections share
    ("*.indexer.*", Rule::Replicated),
    // All experts in one tensor: some models store these transposed, so every worker reads all.
    ("*.experts.gate_up_proj*", Rule::Replicated),
    ("*.experts.down_proj*", Rule::Replicated),
    ("*.q_proj.*", Rule::Column),
    ("*.k_proj.*", Rule::KeyValue),
    ("*.v_proj.*", Rule::KeyValue),
    ("*.qkv_proj.*", Rule::FusedQkv),
    ("*.Wqkv.*", Rule::FusedQkv),
    ("*.W_pack.*", Rule::FusedQkv),
    ("*.query_key_value.*", Rule::Column), // head by head
    // from a latent vector; the projections to it have no rule, and are replicated
    ("*.q_b_proj.*", Rule::Column),
    ("*.kv_b_proj.*", Rule::Column),
    ("*.o_proj.*", Rule::Row),
    ("*.out_proj.*", Rule::Row),
    ("*.attention.dense.*", Rule::Row),
    ("*.self_attention.dense.*", Rule::Row),
    ("*.gate_up_proj.*", Rule::FusedGateUp),
    ("*.gate_proj.*", Rule::Column),
    ("*.up_proj.*", Rule::Column),
    ("*.down_proj.*", Rule::Row),
    ("*.fc1.*", Rule::Column),
    ("*.fc2.*", Rule::Row),
    ("*.dense_h_to_4h.*", Rule::Column),
    ("*.dense_4h_to_h.*", Rule::Row),
    ("*embed_tokens.*", Rule::Vocab),
    ("*word_embeddings.*", Rule::Vocab),
    ("*lm_head.*", Rule::Vocab),
    ("*.shared_head.head.*", Rule::Vocab),
    ("*.wq.*", Rule::Column),
    ("*.wk.*", Rule::KeyValue),
    ("*.wv.*", Rule::KeyValue),
    ("*.wo.*", Rule::Row),
    ("*.w1.*", Rule::Column),
    ("*.w2.*", Rule::Row),
    ("*.w3.*", Rule::Column),
    ("tok_embeddings.*", Rule::Vocab),
    ("token_embd.*", Rule::Vocab),
    ("output.weight", Rule::Vocab),
    ("*.attn_q.*", Rule::Column),
    ("*.attn_k.*", Rule::KeyValue),
    ("*.attn_v.*", Rule::KeyValue),
    ("*.attn_qkv.*", Rule::FusedQkv),
    ("*.attn_q_b.*", Rule::Column),
    ("*.attn_kv_b.*", Rule::Column),
    ("*.attn_output.*", Rule::Row),
    ("*.ffn_gate.*", Rule::Column),
    ("*.ffn_up.*", Rule::Column),
    ("*.ffn_down.*", Rule::Row),
    ("*.ffn_gate_exps.*", Rule::Column),
    ("*.ffn_up_exps.*", Rule::Column),
    ("*.ffn_down_exps.*", Rule::Row),
    ("*.ffn_gate_shexp.*", Rule::Column),
    ("*.ffn_up_shexp.*", Rule::Column),
    ("*.ffn_down_shexp.*", Rule::Row),
];

/// Patterns for names in order, each with its rule. The default is the built-in table; rules of the
/// caller precede it.
///
/// ```
/// use anamnesis_template::parallel::{Rule, Rules};
///
/// let mut rules = Rules::default();
/// assert_eq!(rules.rule("model.layers.0.mlp.down_proj.weight"), Rule::Row);
/// assert_eq!(rules.rule("model.norm.weight"), Rule::Replicated);
/// rules.put_first("model.layers.0.*", Rule::Replicated);
/// assert_eq!(rules.rule("model.layers.0.mlp.down_proj.weight"), Rule::Replicated);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules(Vec<(Box<str>, Rule)>);

impl Default for Rules {
    fn default() -> Self {
        Self(
            TABLE
                .iter()
                .map(|&(pattern, rule)| (pattern.into(), rule))
                .collect(),
        )
    }
}

impl Rules {
    /// Creates an empty table, by which every tensor is replicated.
    pub const fn none() -> Self {
        Self(Vec::new())
    }

    /// Adds a rule before all others. In `pattern`, `*` stands for any characters and `?` for one;
    /// the whole name must match.
    pub fn put_first(&mut self, pattern: &str, rule: Rule) {
        self.0.insert(0, (pattern.into(), rule));
    }

    /// The patterns and rules, in the order in which they are tried.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, Rule)> {
        self.0.iter().map(|(pattern, rule)| (&**pattern, *rule))
    }

    /// Returns the rule for a tensor of this name.
    pub fn rule(&self, name: &str) -> Rule {
        let first = self.0.iter().find(|(pattern, _)| matches(pattern, name));
        first.map_or(Rule::Replicated, |&(_, rule)| rule)
    }

    /// Returns the bytes of the tensor that a worker reads, relative to its first byte, in order;
    /// empty if it reads none. With [`Split::experts`] set, the tensor of one expert
    /// (`….experts.7.…`) is read whole by the worker that has the expert, and tensors of all
    /// experts (`….experts.…`, `…_exps.…`) are split by their first dimension.
    ///
    /// # Errors
    /// The errors of [`slice()`].
    pub fn slices(
        &self,
        name: &str,
        shape: &[u64],
        item_bytes: u64,
        split: &Split,
    ) -> Result<Vec<StridedRange>> {
        match Experts::of(name) {
            // without expert parallelism, experts are split as other matrices are
            Some(experts) if split.experts > 0 => slice_experts(experts, shape, item_bytes, split),
            _ => slice(self.rule(name), shape, item_bytes, split),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES
            .iter()
            .find(|(_, rule)| rule == self)
            .map_or("", |(name, _)| name);
        f.pad(name)
    }
}

impl FromStr for Rule {
    type Err = Error;

    /// `replicated`, `column`, `row`, `vocab`, `kv`, `qkv` or `gate-up`.
    fn from_str(name: &str) -> Result<Self> {
        let found = NAMES
            .iter()
            .find(|(known, _)| *known == name)
            .map(|&(_, rule)| rule);
        found.ok_or_else(|| {
            let known: Vec<_> = NAMES.iter().map(|(name, _)| *name).collect();
            Error::invalid(format!(
                "{} is not a rule; the rules are {}",
                quote(name),
                known.join(", ")
            ))
        })
    }
}
