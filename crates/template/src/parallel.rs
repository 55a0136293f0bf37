//! Which bytes of a tensor each worker reads when a model is split among several workers.
//!
//! [`Rules`] map a tensor's name to how it is split; [`share()`] computes the indices that a worker
//! has, [`slice()`] their bytes. All of it is plain data and arithmetic: neither a file nor a catalog is
//! needed. The rules are Megatron-LM's (arXiv 1909.08053: the first of two matrices is split by its outputs, the second by
//! its inputs), as vLLM's layers load them: `ColumnParallelLinear`, `RowParallelLinear`, `QKVParallelLinear`,
//! `MergedColumnParallelLinear`, `VocabParallelEmbedding`, and `FusedMoE` with linear placement of experts.
//!
//! Shapes are in items, outermost dimension first: `[outputs, inputs]`. An item is an element, or,
//! for types that store several elements together (GGUF blocks, packed codes), such a block; the
//! shape is then in blocks.

mod glob;
mod slice;
mod split_rules;

pub use slice::{AxisShare, Experts, share, slice};
pub use split_rules::{Rule, Rules};

/// The rank and number of workers, and the properties of the model that determine a worker's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// The worker's rank, from 0.
    pub rank: u32,
    /// The number of workers; at least 1.
    pub world: u32,
    /// Number of attention heads; 0 if unknown. Needed for fused query, key and value only, which
    /// are otherwise split as thirds.
    pub heads: u64,
    /// Number of heads of keys and values; 0 if unknown: they are then split like other outputs, and
    /// fused query, key and value as thirds. If there are fewer heads than workers, adjacent workers
    /// read the same head.
    pub kv_heads: u64,
    /// Number of experts of a layer if each worker has whole experts (expert parallelism); 0 if
    /// every worker has a part of every expert.
    pub experts: u64,
}

impl Default for Split {
    /// One worker, which reads everything.
    fn default() -> Self {
        Self {
            rank: 0,
            world: 1,
            heads: 0,
            kv_heads: 0,
            experts: 0,
        }
    }
}
