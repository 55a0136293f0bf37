//! Compares the order in which two templates read the same bytes.

use std::collections::{HashMap, HashSet};

use crate::matched_files::matched_files;
use crate::{AccessGroup, Template};

/// Number of units into which the bytes of the larger template are divided. It bounds the time and
/// memory of a comparison.
const UNITS: u128 = 1 << 16;

/// Returns Kendall's τ of the order in which two templates first read the bytes that both read: 1
/// for the same order, −1 for the reverse, about 0 for unrelated orders. `None` if they share fewer
/// than two units.
///
/// Groups are compared by rank, in units of a power of two bytes, about 1/65 536 of what the larger
/// template reads. The result is the mean over the groups, weighted by the pairs of units that both
/// read. O(n log n) for n units and accesses.
pub fn order(a: &Template, b: &Template) -> Option<f64> {
    let (unit, matched) = (unit(a, b), matched_files(a, b));
    let (mut pairs, mut inversions) = (0, 0);
    for group in a.groups() {
        let Some(other) = b.group(group.rank()) else {
            continue;
        };
        let (p, i) = compare_order(group, other, &matched, unit);
        pairs += p;
        inversions += i;
    }
    tau(pairs, inversions)
}

/// Kendall's τ of `pairs` pairs, `inversions` of which are in reverse order.
pub(crate) fn tau(pairs: u128, inversions: u128) -> Option<f64> {
    (pairs > 0).then(|| 1.0 - 2.0 * (inversions as f64 / pairs as f64))
}

/// Returns the unit in which the order of two templates is compared: large enough that neither has
/// many more than [`UNITS`].
pub(crate) fn unit(a: &Template, b: &Template) -> u64 {
    // The sums need 128 bits: saturated 64-bit sums would make the units of a malicious template
    // too small.
    let nbytes = |t: &Template| {
        t.accesses()
            .map(|(_, access)| u128::from(access.bytes.nbytes()))
            .sum::<u128>()
    };
    let unit = nbytes(a).max(nbytes(b)) / UNITS;
    1 << unit.checked_ilog2().map_or(0, |log| log.min(63))
}

/// Returns the pairs of units that both groups read, and how many of them they read in reverse
/// order.
pub(crate) fn compare_order(
    a: &AccessGroup,
    b: &AccessGroup,
    matched: &[Option<usize>],
    unit: u64,
) -> (u128, u128) {
    let index_of = |file: u32| usize::try_from(file).ok().and_then(|file| matched[file]);
    // the order of `a`, written in the positions of `b`: pairs in reverse order are then inversions of one list
    let rank: HashMap<_, _> = first_reads(b, index_of, unit)
        .into_iter()
        .zip(0u32..)
        .collect();
    let mut order: Vec<u32> = first_reads(a, |file| usize::try_from(file).ok(), unit)
        .iter()
        .filter_map(|unit| rank.get(unit).copied())
        .collect();
    let n = order.len() as u128;
    let inversions = inversions(&mut order);
    (n * n.saturating_sub(1) / 2, inversions)
}

/// Returns the units that a group reads, by first read.
fn first_reads(
    group: &AccessGroup,
    index_of: impl Fn(u32) -> Option<usize>,
    unit: u64,
) -> Vec<(usize, u64)> {
    let mut seen = HashSet::new();
    let mut order = Vec::new();
    for access in group.accesses() {
        let Some(file) = index_of(access.file) else {
            continue;
        };
        let mut read = |start: u64, end: u64| {
            order.extend(
                (start / unit..=(end - 1) / unit)
                    .map(|u| (file, u))
                    .filter(|&u| seen.insert(u)),
            );
        };
        if access.bytes.stride <= unit {
            // With a stride of at most a unit, the access reads every unit between the first and
            // the last.
            read(access.bytes.start, access.bytes.end());
        } else {
            let len = access.bytes.len;
            access
                .bytes
                .starts()
                .for_each(|start| read(start, start + len));
        }
    }
    order
}

/// Counts the pairs in descending order by a merge sort.
fn inversions(list: &mut Vec<u32>) -> u128 {
    let mut count = 0;
    let mut merged = Vec::with_capacity(list.len());
    let mut width = 1;
    // bottom-up and with one buffer: no recursion, and O(n log n) for a hostile order too
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
