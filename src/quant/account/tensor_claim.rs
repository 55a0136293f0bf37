//! The claim on a stored tensor, and the list of tensors that are refused.

use crate::base::error::Result;
use crate::quant::scheme::{Context, Weight};

/// The claim on a stored tensor.
pub(crate) enum TensorClaim {
    /// No scheme has claimed it.
    Free,
    /// A scheme has recognised a weight by it.
    Weight(Box<Weight>),
    /// A scheme has recognised a weight by it, and the account refuses it.
    Refused(Box<Weight>),
    /// It is a part of a weight, possibly of a refused one.
    Taken,
}

/// Whether a weight is FP8 that has no scale.
pub(super) fn is_unscaled(slot: &TensorClaim) -> bool {
    matches!(slot, TensorClaim::Weight(weight) if weight.is_unscaled())
}

/// Tensors that are refused, each with the reason.
pub(super) type Refusals = Vec<(usize, String)>;

const WHAT: &str = "the plan";

/// Adds a tensor to those that are refused, with the reason.
pub(super) fn add(
    cx: &Context<'_>,
    refused: &mut Refusals,
    tensor: usize,
    why: String,
) -> Result<()> {
    cx.budget.text(why.len(), WHAT)?;
    cx.budget.push(refused, (tensor, why), WHAT)
}
