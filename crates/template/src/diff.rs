//! Lists the differences between two templates.

use std::collections::BTreeSet;
use std::fmt;

use crate::coverage::overlaps;
use crate::matched_files::matched_files;
use crate::order::{compare_order, tau, unit};
use crate::{AccessGroup, Template};

/// The differences between a template `a` and a template `b`, from [`diff`]. `Display` writes one
/// line per difference.
#[derive(Clone, Debug, PartialEq)]
pub struct Diff {
    /// Paths of files that only `a` has.
    pub only_a: Vec<Box<str>>,
    /// Paths of files that only `b` has.
    pub only_b: Vec<Box<str>>,
    /// Paths of files whose length or content differs.
    pub changed: Vec<Box<str>>,
    /// One entry per rank of either template, ascending.
    pub groups: Vec<GroupDiff>,
}

/// The reads of one worker in either template. A byte counts once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupDiff {
    /// The worker's rank.
    pub rank: u32,
    /// Bytes that only `a` reads.
    pub only_a: u64,
    /// Bytes that only `b` reads.
    pub only_b: u64,
    /// Bytes that both read.
    pub both: u64,
    /// Kendall's τ of the order in which they read the bytes that both read, as in
    /// [`order`](crate::order). `None` if they share fewer than two units.
    pub order: Option<f64>,
}

impl GroupDiff {
    /// Whether the worker reads different bytes or a different order.
    pub fn differs(&self) -> bool {
        // without bytes that both read, there is no order in which they differ
        self.only_a > 0 || self.only_b > 0 || self.order.is_some_and(|tau| tau < 1.0)
    }
}

impl Diff {
    /// Whether both read the same bytes of the same files in the same order, at the resolution of
    /// [`order`](crate::order).
    pub fn is_empty(&self) -> bool {
        let files = [&self.only_a, &self.only_b, &self.changed];
        files.iter().all(|paths| paths.is_empty()) && !self.groups.iter().any(GroupDiff::differs)
    }
}

/// Returns the differences between two templates: files, and per worker bytes and order. A changed
/// file counts as a file of `a` and another one of `b`.
pub fn diff(a: &Template, b: &Template) -> Diff {
    let paths = |t: &Template| -> BTreeSet<Box<str>> {
        t.files().iter().map(|file| file.path.clone()).collect()
    };
    let (in_a, in_b) = (paths(a), paths(b));
    let matched = matched_files(a, b);
    let unmatched = b
        .files()
        .iter()
        .zip(&matched)
        .filter(|(_, same)| same.is_none());
    let changed = unmatched
        .map(|(file, _)| file.path.clone())
        .filter(|path| in_a.contains(path))
        .collect();
    let ranks: BTreeSet<u32> = a
        .groups()
        .iter()
        .chain(b.groups())
        .map(AccessGroup::rank)
        .collect();
    // one unit for all workers, so that their orders are compared at the same resolution
    let unit = unit(a, b);
    let group = |rank| {
        let (of, by) = (a.group(rank), b.group(rank));
        let sums = overlaps(
            a,
            b,
            of.map_or(&[], std::slice::from_ref),
            by.map_or(&[], std::slice::from_ref),
        );
        let sum = |part: fn(&crate::byte_set::Overlap) -> u64| {
            sums.iter().map(part).fold(0, u64::saturating_add)
        };
        let (pairs, inversions) = of
            .zip(by)
            .map_or((0, 0), |(of, by)| compare_order(of, by, &matched, unit));
        GroupDiff {
            rank,
            only_a: sum(|sum| sum.a - sum.both),
            only_b: sum(|sum| sum.b - sum.both),
            both: sum(|sum| sum.both),
            order: tau(pairs, inversions),
        }
    };
    Diff {
        only_a: in_a.difference(&in_b).cloned().collect(),
        only_b: in_b.difference(&in_a).cloned().collect(),
        changed,
        groups: ranks.into_iter().map(group).collect(),
    }
}

impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quote = crate::error::quote;
        self.only_a
            .iter()
            .try_for_each(|path| writeln!(f, "- file {}", quote(path)))?;
        self.only_b
            .iter()
            .try_for_each(|path| writeln!(f, "+ file {}", quote(path)))?;
        self.changed
            .iter()
            .try_for_each(|path| writeln!(f, "! file {} differs", quote(path)))?;
        for group in self.groups.iter().filter(|group| group.differs()) {
            let GroupDiff {
                rank,
                only_a,
                only_b,
                both,
                order,
            } = group;
            write!(
                f,
                "worker {rank}: -{only_a} +{only_b} bytes, {both} in both"
            )?;
            order
                .iter()
                .try_for_each(|tau| write!(f, ", order {tau:.3}"))?;
            writeln!(f)?;
        }
        Ok(())
    }
}
