//! Who reads which part of a tensor when a model is split over several workers.
//!
//! [`Rules`] say how a tensor is split, by its name; [`slice()`] says which of its bytes a worker reads. Both are plain
//! data and arithmetic: no file and no catalog is needed. What they say is how Megatron-LM splits transformers
//! (arXiv 1909.08053: the first of two matrices by its outputs, the second by its inputs), as vLLM's layers load it:
//! `ColumnParallelLinear`, `RowParallelLinear`, `QKVParallelLinear`, `MergedColumnParallelLinear`,
//! `VocabParallelEmbedding`, and `FusedMoE` with its linear placement of experts.
//!
//! Shapes are in items, outermost dimension first: `[outputs, inputs]`. An item is an element, or for types that
//! store several elements together (GGUF blocks, packed codes) such a block, and the shape is then in blocks.

mod glob;
mod rules;
mod slice;

pub use rules::{Rule, Rules};
pub use slice::{Experts, slice};

/// Which worker, of how many, and what of the model decides its part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// The worker, from 0.
    pub rank: u32,
    /// How many workers there are; at least 1.
    pub world: u32,
    /// Attention heads; 0 if unknown. Needed for fused query, key and value only, which otherwise are thirds.
    pub heads: u64,
    /// Heads of keys and values; 0 if unknown, they are then split like any other outputs. Where there are fewer than
    /// workers, neighbours read the same head.
    pub kv_heads: u64,
    /// Experts of a layer, where each worker has whole ones (expert parallelism); 0 where every worker has its part
    /// of every expert.
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
