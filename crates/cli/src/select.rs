//! Which tensors are shown, and in which order.

use anamnesis::Summary;
use anamnesis::catalog::natural;
use anamnesis::inspect::TensorSummary;
use globset::GlobMatcher;

use crate::args::Sort;

/// Whether a name passes the filters; without any, all do.
pub(crate) fn passes(filters: &[GlobMatcher], name: &str) -> bool {
    filters.is_empty() || filters.iter().any(|f| f.is_match(name))
}

pub(crate) fn sort(summary: &mut Summary, by: Option<Sort>, reverse: bool) {
    let order = by.map(|by| {
        move |a: &TensorSummary, b: &TensorSummary| match by {
            Sort::Name => natural(&a.name, &b.name),
            Sort::Size => b.nbytes.cmp(&a.nbytes),
            Sort::Dtype => a.dtype.cmp(&b.dtype),
            Sort::Offset => (a.file, a.offset).cmp(&(b.file, b.offset)),
            Sort::File => a.file.cmp(&b.file),
        }
    });
    match (order, reverse) {
        (Some(order), false) => summary.tensors.sort_by(order),
        (Some(order), true) => summary.tensors.sort_by(|a, b| order(b, a)),
        (None, true) => summary.tensors.reverse(),
        (None, false) => {}
    }
}
