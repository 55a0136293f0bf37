//! Which tensors are shown, and in which order.

use std::cmp::Ordering;

use anamnesis::Summary;
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

/// Compares names with the numbers in them as numbers: `layers.2` before `layers.10`.
pub(crate) fn natural(a: &str, b: &str) -> Ordering {
    let (mut x, mut y) = (a.as_bytes(), b.as_bytes());
    while let ([p, ..], [q, ..]) = (x, y) {
        if p.is_ascii_digit() && q.is_ascii_digit() {
            let (m, n) = (number(&mut x), number(&mut y));
            match m.len().cmp(&n.len()).then_with(|| m.cmp(n)) {
                Ordering::Equal => continue,
                unequal => return unequal,
            }
        }
        match p.cmp(q) {
            Ordering::Equal => (x, y) = (&x[1..], &y[1..]),
            unequal => return unequal,
        }
    }
    x.len().cmp(&y.len()).then_with(|| a.cmp(b))
}

/// Takes the digits from the front, without their leading zeros.
fn number<'a>(text: &mut &'a [u8]) -> &'a [u8] {
    let end = text.iter().position(|c| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    *text = rest;
    let zeros = digits.iter().take_while(|c| **c == b'0').count();
    &digits[zeros..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_count_as_numbers() {
        let mut names = ["l.10.w", "l.2.w", "l.02.w", "l.2", "l", "k.9"];
        names.sort_by(|a, b| natural(a, b));
        assert_eq!(names, ["k.9", "l", "l.2", "l.02.w", "l.2.w", "l.10.w"]);
    }
}
