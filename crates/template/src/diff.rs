//! What two templates differ in.

use std::collections::BTreeSet;
use std::fmt;

use crate::coverage::{matched, overlaps};
use crate::order::{compare, tau, unit};
use crate::{Group, Template};

/// What differs between a template `a` and a template `b`: [`diff`]. Printable, one line per difference.
#[derive(Clone, Debug, PartialEq)]
pub struct Diff {
    /// Paths of files that only `a` has.
    pub only_a: Vec<Box<str>>,
    /// Paths of files that only `b` has.
    pub only_b: Vec<Box<str>>,
    /// Paths of files that have another length or content.
    pub changed: Vec<Box<str>>,
    /// Per rank of either, ascending.
    pub groups: Vec<GroupDiff>,
}

/// What one worker reads in the one and in the other. A byte counts once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupDiff {
    /// The worker.
    pub rank: u32,
    /// Bytes that only `a` reads.
    pub only_a: u64,
    /// Bytes that only `b` reads.
    pub only_b: u64,
    /// Bytes that both read.
    pub both: u64,
    /// Kendall's τ of the order in which they read what both do, as [`order`](crate::order) takes it. `None` if there
    /// are not two things to compare.
    pub order: Option<f64>,
}

impl GroupDiff {
    /// Whether the worker reads other bytes, or in another order.
    pub fn differs(&self) -> bool {
        self.only_a > 0 || self.only_b > 0 || self.order.is_some_and(|tau| tau < 1.0)
    }
}

impl Diff {
    /// Whether both read the same bytes of the same files in the same order, as finely as order is looked at.
    pub fn is_empty(&self) -> bool {
        let files = [&self.only_a, &self.only_b, &self.changed];
        files.iter().all(|paths| paths.is_empty()) && !self.groups.iter().any(GroupDiff::differs)
    }
}

/// What differs between two templates: files, and per worker bytes and order. A file that changed counts as two.
pub fn diff(a: &Template, b: &Template) -> Diff {
    let paths = |t: &Template| -> BTreeSet<Box<str>> {
        t.files().iter().map(|file| file.path.clone()).collect()
    };
    let (in_a, in_b) = (paths(a), paths(b));
    let matched = matched(a, b);
    let other = b
        .files()
        .iter()
        .zip(&matched)
        .filter(|(_, same)| same.is_none());
    let changed = other
        .map(|(file, _)| file.path.clone())
        .filter(|path| in_a.contains(path))
        .collect();
    let ranks: BTreeSet<u32> = a
        .groups()
        .iter()
        .chain(b.groups())
        .map(Group::rank)
        .collect();
    let unit = unit(a, b);
    let group = |rank| {
        let (of, by) = (a.group(rank), b.group(rank));
        let sums = overlaps(
            a,
            b,
            of.map_or(&[], std::slice::from_ref),
            by.map_or(&[], std::slice::from_ref),
        );
        let sum = |part: fn(&crate::ranges::Overlap) -> u64| {
            sums.iter().map(part).fold(0, u64::saturating_add)
        };
        let (pairs, inversions) = of
            .zip(by)
            .map_or((0, 0), |(of, by)| compare(of, by, &matched, unit));
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
            .try_for_each(|path| writeln!(f, "! file {} is another", quote(path)))?;
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
