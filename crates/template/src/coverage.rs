//! How much of one template another one has.

use std::collections::HashMap;

use crate::order::order;
use crate::ranges::{Overlap, Union, overlap};
use crate::{Group, Runs, Template};

/// How much of a template another one covers. A byte counts once, whoever reads it and how often.
#[derive(Clone, Debug, PartialEq)]
pub struct Coverage {
    /// Per file of the covered template, in its order.
    pub files: Vec<FileCoverage>,
    /// Bytes that the covered template reads.
    pub nbytes: u64,
    /// Bytes of them that the other one reads too.
    pub covered: u64,
    /// How alike the two read in order: see [`order`].
    pub order: Option<f64>,
}

/// Of one file, how much is covered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileCoverage {
    /// Its path.
    pub path: Box<str>,
    /// Bytes of it that the covered template reads.
    pub nbytes: u64,
    /// Bytes of them that the other one reads too; 0 if the other one's file of this path is another file.
    pub covered: u64,
}

impl Coverage {
    /// Covered bytes by bytes, from 0 to 1; 1 if there are none.
    pub fn share(&self) -> f64 {
        share(self.covered, self.nbytes)
    }
}

impl FileCoverage {
    /// Covered bytes by bytes, from 0 to 1; 1 if there are none.
    pub fn share(&self) -> f64 {
        share(self.covered, self.nbytes)
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        1.0
    } else {
        part as f64 / whole as f64
    }
}

/// How much of what `of` reads, `by` reads too. Files are matched by path, and must be the
/// [same](crate::File::same). O(n log n) for n runs, memory for the accesses only.
///
/// ```
/// use anamnesis_template::{Builder, ByteRange, File, coverage};
///
/// let template = |len| {
///     let mut builder = Builder::new();
///     let file = builder.file(File::new("m.gguf", 1000)?)?;
///     builder.access(0, ByteRange { file, start: 0, len }, None)?;
///     Ok::<_, anamnesis_template::Error>(builder.finish())
/// };
/// let (recorded, predicted) = (template(1000)?, template(990)?);
/// assert_eq!(coverage(&recorded, &predicted).share(), 0.99);
/// # Ok::<(), anamnesis_template::Error>(())
/// ```
pub fn coverage(of: &Template, by: &Template) -> Coverage {
    let sums = overlaps(of, by, of.groups(), by.groups());
    let files: Vec<_> = of
        .files()
        .iter()
        .zip(sums)
        .map(|(file, sum)| FileCoverage {
            path: file.path.clone(),
            nbytes: sum.a,
            covered: sum.both,
        })
        .collect();
    let sum = |part: fn(&FileCoverage) -> u64| files.iter().map(part).fold(0, u64::saturating_add);
    Coverage {
        nbytes: sum(|file| file.nbytes),
        covered: sum(|file| file.covered),
        order: order(of, by),
        files,
    }
}

/// Bytes that groups of two templates read: one row per file of `a`, and a last one for files that only `b` has.
pub(crate) fn overlaps(a: &Template, b: &Template, of: &[Group], by: &[Group]) -> Vec<Overlap> {
    let matched = matched(a, b);
    let mut left = per_file(of, a.files().len(), |file| usize::try_from(file).ok());
    let elsewhere = a.files().len();
    let place = |file: u32| {
        usize::try_from(file)
            .ok()
            .map(|file| matched[file].unwrap_or(elsewhere + file))
    };
    let mut right = per_file(by, elsewhere + b.files().len(), place);
    let only = right.split_off(elsewhere);
    let mut sums: Vec<_> = left
        .drain(..)
        .zip(right)
        .map(|(a, b)| overlap(Union::new(a), Union::new(b)))
        .collect();
    let alone = only
        .into_iter()
        .map(|runs| overlap(Union::new(Vec::new()), Union::new(runs)).b);
    sums.push(Overlap {
        b: alone.fold(0, u64::saturating_add),
        ..Overlap::default()
    });
    sums
}

/// For each file of `b`, the same file of `a`.
pub(crate) fn matched(a: &Template, b: &Template) -> Vec<Option<usize>> {
    let paths: HashMap<_, _> = a
        .files()
        .iter()
        .enumerate()
        .map(|(i, file)| (&*file.path, i))
        .collect();
    let find = |file: &crate::File| {
        paths
            .get(&*file.path)
            .copied()
            .filter(|&i| a.files()[i].same(file))
    };
    b.files().iter().map(find).collect()
}

fn per_file(
    groups: &[Group],
    files: usize,
    place: impl Fn(u32) -> Option<usize>,
) -> Vec<Vec<Runs>> {
    let mut runs = vec![Vec::new(); files];
    for access in groups.iter().flat_map(Group::accesses) {
        if let Some(list) = place(access.runs.file).and_then(|i| runs.get_mut(i)) {
            list.push(access.runs);
        }
    }
    runs
}
