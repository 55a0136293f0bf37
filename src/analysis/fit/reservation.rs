//! The request, and the bytes that it takes: the terms that the rules of all engines share.

use crate::base::error::Error;
use crate::base::kernel::Dtype;

use super::cache_type::CacheType;
use super::engine::InferenceEngine;
use crate::models::caches::{AttentionShape, StateShape};

/// The request: tokens, sequences, dtypes, and the options of an engine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reservation {
    pub(super) engine: InferenceEngine,
    /// Whether transformers allocates for the whole context at once.
    pub(super) preallocated: bool,
    /// Tokens per sequence.
    pub(super) context: u64,
    /// Sequences.
    pub(super) batch: u64,
    pub(super) k: CacheType,
    pub(super) v: CacheType,
    /// The dtype of the model, which convolutions keep.
    pub(super) model: Dtype,
    /// The dtype of recurrent states in vLLM.
    pub(super) vllm_state: Dtype,
    /// Outputs of the encoder, if they differ from the model's own.
    pub(super) encoder_tokens: Option<u64>,
    /// Tokens that a step computes at most.
    pub(super) step: u64,
    /// Tokens of a page of vLLM.
    pub(super) block: u64,
    /// llama.cpp: one cache for all sequences.
    pub(super) unified: bool,
    /// llama.cpp: windows are kept whole.
    pub(super) whole_windows: bool,
    /// vLLM: layers with windows have pages of their own.
    pub(super) hybrid: bool,
}

/// The bytes that one layer of a group takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LayerCost {
    /// Tokens for which there is room, in each stream; 0 for what does not grow with tokens.
    pub(super) tokens: u64,
    /// Sequences, or caches that several sequences share.
    pub(super) streams: u64,
    /// Bytes of all streams.
    pub(super) nbytes: u64,
}

/// The bytes that the cache of a model takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CacheCost {
    /// Per layer of each group.
    pub(super) groups: Vec<LayerCost>,
    /// Bytes that pages of equal size waste.
    pub(super) padding: u64,
    /// Bytes of all layers.
    pub(super) nbytes: u64,
}

/// The error of a sum over 64 bits.
pub(super) fn too_large() -> Error {
    Error::unsupported("the cache would take more than 2⁶⁴ bytes")
}

/// Bytes of keys and values of one token.
pub(super) fn token_nbytes(shape: AttentionShape, k: CacheType, v: CacheType) -> Option<u64> {
    let k = k.row_nbytes(shape.kv_heads, shape.k_dim)?;
    k.checked_add(v.row_nbytes(shape.kv_heads, shape.v_dim)?)
}

/// Bytes of a state, with a convolution that keeps `inputs` inputs.
pub(super) fn state_nbytes(
    state: &StateShape,
    inputs: u64,
    conv: Dtype,
    recurrent: Dtype,
) -> Option<u64> {
    let conv = conv.nbytes(state.conv_channels()?.checked_mul(inputs)?)?;
    conv.checked_add(recurrent.nbytes(state.state_elements()?)?)
}
