//! Sorting of tensors.

use anamnesis::Summary;
use anamnesis::catalog::natural_order;
use anamnesis::inspect::TensorSummary;

use crate::args::SortKey;

/// Sorts the tensors of a summary. Ties keep the file order, because the sort is stable.
pub(crate) fn sort(summary: &mut Summary, by: Option<SortKey>, reverse: bool) {
    let order = by.map(|by| {
        move |a: &TensorSummary, b: &TensorSummary| match by {
            SortKey::Name => natural_order(&a.name, &b.name),
            SortKey::Size => b.nbytes.cmp(&a.nbytes),
            SortKey::Dtype => a.dtype.cmp(&b.dtype),
            SortKey::Offset => (a.file, a.offset).cmp(&(b.file, b.offset)),
            SortKey::File => a.file.cmp(&b.file),
        }
    });
    match (order, reverse) {
        (Some(order), false) => summary.tensors.sort_by(order),
        // not a reversal of the sorted list, which would reverse ties too
        (Some(order), true) => summary.tensors.sort_by(|a, b| order(b, a)),
        (None, true) => summary.tensors.reverse(),
        (None, false) => {}
    }
}
