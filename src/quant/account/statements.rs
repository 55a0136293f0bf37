//! Weights whose stored numbers are others than those that the configuration states of them.

use crate::base::error::Result;
use crate::quant::scheme::{Context, contradiction, note_assumptions, odd_scales};

use super::tensor_claim::{Refusals, TensorClaim, add};

const WHAT: &str = "the statements of the configuration";

/// Adds weights that contradict the configuration to `refused`.
pub(super) fn find(cx: &Context<'_>, slots: &[TensorClaim], refused: &mut Refusals) -> Result<()> {
    for (tensor, slot) in slots.iter().enumerate() {
        // the types of GGUF say it themselves
        let TensorClaim::Weight(weight) = slot else {
            continue;
        };
        cx.budget.steps(1 + weight.name.len() as u64 / 16, WHAT)?;
        if weight.scheme == "ggml" {
            continue;
        }
        let contradiction = contradiction(cx, weight)?;
        if let Some(why) = contradiction.or_else(|| odd_scales(cx, weight)) {
            add(cx, refused, tensor, why)?;
            continue;
        }
        note_assumptions(cx, weight);
    }
    cx.check()
}
