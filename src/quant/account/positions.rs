//! Codes and scales in a tuple or a list of a pickle, which have no names but their positions.

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::quant::scheme::Context;
use crate::read::catalog::{Encoding, quote};

use super::integers::is_float;
use super::tensor_claim::{Refusals, TensorClaim, add, is_unscaled};

const WHAT: &str = "the tensors of tuples";

/// Adds integers and FP8 with a scale next to them to `refused`.
pub(super) fn find(cx: &Context<'_>, slots: &[TensorClaim], refused: &mut Refusals) -> Result<()> {
    if !matches!(cx.catalog.format, "pth" | "dcp") {
        return Ok(());
    }
    for (tensor, slot) in slots.iter().enumerate() {
        let info = cx.info(tensor);
        let integers = matches!(
            info.encoding,
            Encoding::Plain(Dtype::I8 | Dtype::U8 | Dtype::I32)
        ) && matches!(slot, TensorClaim::Free);
        let &[rows, cols] = &info.shape[..] else {
            continue;
        };
        if !integers && !is_unscaled(slot) {
            continue;
        }
        cx.budget.steps(1 + info.name.len() as u64 / 16, WHAT)?;
        let Some((tuple, position)) = info.name.rsplit_once('.') else {
            continue;
        };
        let next = position
            .parse::<u32>()
            .ok()
            .and_then(|at| at.checked_add(1));
        let scale = next.and_then(|next| cx.position(&format!("{tuple}.{next}")));
        let Some(scale) = scale.filter(|&scale| matches!(slots[scale], TensorClaim::Free)) else {
            continue;
        };
        let found = cx.info(scale);
        let one = found.elements() == 1 && is_unscaled(slot);
        let per_row = matches!(found.shape[..], [high, wide]
            if high == rows && wide > 0 && wide < cols && cols.is_multiple_of(wide));
        if is_float(&found.encoding) && (one || per_row) {
            let why = format!("{} beside it may be its scale", quote(&found.name));
            add(cx, refused, tensor, why)?;
        }
    }
    Ok(())
}
