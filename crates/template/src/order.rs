//! How alike two templates read in order.

use std::collections::{HashMap, HashSet};

use crate::coverage::matched;
use crate::{Group, Template};

/// Into how many parts what is read is divided to look at its order.
const PARTS: u128 = 1 << 16;

/// Kendall's τ of the order in which two templates first read what both read: 1 for the same order, −1 for the
/// reverse, about 0 for unrelated ones. `None` if there are not two things to compare.
///
/// Groups are compared by rank, in units of a power of two bytes, about a 65 536th of what the larger template reads;
/// the result is the mean over the groups, weighted by the pairs of units that both read. O(n log n) for n units and
/// accesses.
pub fn order(a: &Template, b: &Template) -> Option<f64> {
    let (unit, matched) = (unit(a, b), matched(a, b));
    let (mut pairs, mut inversions) = (0, 0);
    for group in a.groups() {
        let Some(other) = b.group(group.rank()) else {
            continue;
        };
        let (p, i) = compare(group, other, &matched, unit);
        pairs += p;
        inversions += i;
    }
    tau(pairs, inversions)
}

/// Kendall's τ of so many pairs, of which so many stand in the other order.
pub(crate) fn tau(pairs: u128, inversions: u128) -> Option<f64> {
    (pairs > 0).then(|| 1.0 - 2.0 * (inversions as f64 / pairs as f64))
}

/// In which units the order of two templates is compared: so large that neither has many more than [`PARTS`].
pub(crate) fn unit(a: &Template, b: &Template) -> u64 {
    // in 128 bits: sums that stop at 64 would make the units of a hostile template too small
    let nbytes = |t: &Template| {
        t.accesses()
            .map(|(_, access)| u128::from(access.runs.nbytes()))
            .sum::<u128>()
    };
    let part = nbytes(a).max(nbytes(b)) / PARTS;
    1 << part.checked_ilog2().map_or(0, |log| log.min(63))
}

/// Pairs of units that both read, and how many of them are read in the other order.
pub(crate) fn compare(a: &Group, b: &Group, matched: &[Option<usize>], unit: u64) -> (u128, u128) {
    let place = |file: u32| usize::try_from(file).ok().and_then(|file| matched[file]);
    let rank: HashMap<_, _> = firsts(b, place, unit).into_iter().zip(0u32..).collect();
    let mut order: Vec<u32> = firsts(a, |file| usize::try_from(file).ok(), unit)
        .iter()
        .filter_map(|unit| rank.get(unit).copied())
        .collect();
    let n = order.len() as u128;
    let inversions = inversions(&mut order);
    (n * n.saturating_sub(1) / 2, inversions)
}

/// The units that a group reads, by when it first does.
fn firsts(group: &Group, place: impl Fn(u32) -> Option<usize>, unit: u64) -> Vec<(usize, u64)> {
    let mut seen = HashSet::new();
    let mut order = Vec::new();
    for access in group.accesses() {
        let Some(file) = place(access.runs.file) else {
            continue;
        };
        let mut read = |start: u64, end: u64| {
            order.extend(
                (start / unit..=(end - 1) / unit)
                    .map(|u| (file, u))
                    .filter(|&u| seen.insert(u)),
            );
        };
        if access.runs.stride <= unit {
            let span = access.runs.span(); // no unit between the first and the last is left out
            read(span.start, span.end());
        } else {
            access
                .runs
                .iter()
                .for_each(|run| read(run.start, run.end()));
        }
    }
    order
}

/// Pairs that stand in descending order, counted by sorting.
fn inversions(list: &mut Vec<u32>) -> u128 {
    let mut count = 0;
    let mut merged = Vec::with_capacity(list.len());
    let mut width = 1;
    while width < list.len() {
        merged.clear();
        for pair in list.chunks(2 * width) {
            let (mut left, mut right) = pair.split_at(width.min(pair.len()));
            while let (Some((&l, rest_left)), Some((&r, rest_right))) =
                (left.split_first(), right.split_first())
            {
                if l <= r {
                    merged.push(l);
                    left = rest_left;
                } else {
                    count += left.len() as u128;
                    merged.push(r);
                    right = rest_right;
                }
            }
            merged.extend_from_slice(left);
            merged.extend_from_slice(right);
        }
        std::mem::swap(list, &mut merged);
        width *= 2;
    }
    count
}
