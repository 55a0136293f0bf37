//! The first pass: the stored bytes of tensors that are stored alike, of which nothing needs to be decoded.

use std::sync::atomic::Ordering;

use crate::base::error::Result;
use crate::base::progress::RunProgress;
use crate::base::sync::AtomicBool;

use super::alike::{Identities, is_alike, is_same_bytes, is_swapped};
use super::bytes::{self, ByteComparison};
use super::compared_pairs::ComparedPairs;
use super::identity;
use super::outcome::PairOutcome;
use super::sides::WHAT;
use super::tensor_bytes::TensorBytes;

/// Compares the bytes of all pairs, and sets their [`PairOutcome::bytes_equal`]. Bytes of the same file are not read.
pub(super) fn run(pairs: &ComparedPairs<'_, '_>, outcomes: &mut [PairOutcome]) -> Result<()> {
    let files = Identities {
        a: identity::of(pairs.a.checkpoint),
        b: identity::of(pairs.b.checkpoint),
    };
    let mut list = Vec::new();
    for (item, pair) in pairs.pairs.iter().enumerate() {
        let (x, y) = pairs.sides(pair);
        // equal bytes in another order of dimensions are other values
        if !is_alike(x, y) || is_swapped(x.shape(), y.shape()) {
            continue;
        }
        // until a piece differs: pairs of the same file are not read at all
        outcomes[item].bytes_equal = Some(true);
        if is_same_bytes(x, y, &files) {
            continue;
        }
        for (x_info, y_info) in x.stored().into_iter().zip(y.stored()) {
            let comparison = ByteComparison {
                a: TensorBytes::new(x.side.checkpoint, x_info)?,
                b: TensorBytes::new(y.side.checkpoint, y_info)?,
                item,
            };
            pairs.budget.push(&mut list, comparison, WHAT)?;
        }
    }
    let differs: Vec<AtomicBool> = outcomes.iter().map(|_| AtomicBool::new(false)).collect();
    let total = list.iter().map(ByteComparison::nbytes);
    let total = total.fold(0, u64::saturating_add);
    let progress = RunProgress::new(total, &pairs.diff.options.control);
    // with values in question, other bytes may still be equal values
    let first_only = pairs.first_byte_decides();
    bytes::compare(&list, &differs, first_only, pairs.threads, &progress)?;
    progress.finish();
    for (outcome, differs) in outcomes.iter_mut().zip(&differs) {
        if differs.load(Ordering::Relaxed) {
            outcome.bytes_equal = Some(false);
        }
    }
    Ok(())
}
