//! Measures how many bytes of one template another one reads as well.

use crate::byte_set::{Overlap, RangeUnion, overlap};
use crate::matched_files::matched_files;
use crate::order::order;
use crate::{AccessGroup, StridedRange, Template};

/// How many bytes of a template another one covers. A byte counts once, regardless of how many
/// workers read it and how often.
#[derive(Clone, Debug, PartialEq)]
pub struct Coverage {
    /// Per file of the covered template, in its order.
    pub files: Vec<FileCoverage>,
    /// Bytes that the covered template reads.
    pub nbytes: u64,
    /// Bytes of them that the other one reads as well.
    pub covered: u64,
    /// The agreement of their orders: see [`order`].
    pub order: Option<f64>,
}

/// The coverage of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileCoverage {
    /// Its path.
    pub path: Box<str>,
    /// Bytes of it that the covered template reads.
    pub nbytes: u64,
    /// Bytes of them that the other one reads as well; 0 if the file of this path differs.
    pub covered: u64,
}

impl Coverage {
    /// Returns the covered fraction, from 0 to 1; 1 if no bytes are read.
    pub fn share(&self) -> f64 {
        share(self.covered, self.nbytes)
    }
}

impl FileCoverage {
    /// Returns the covered fraction, from 0 to 1; 1 if no bytes are read.
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

/// Measures how many of the bytes that `of` reads `by` reads as well. Files are matched by path and
/// must be the [same](crate::File::same). O(n log n) for n runs; memory for the accesses only.
///
/// ```
/// use anamnesis_template::{TemplateBuilder, ByteRange, File, coverage};
///
/// let template = |len| {
///     let mut builder = TemplateBuilder::new();
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

/// Returns the bytes that groups of two templates read: one row per file of `a`, and a last one for
/// files that only `b` has.
pub(crate) fn overlaps(
    a: &Template,
    b: &Template,
    of: &[AccessGroup],
    by: &[AccessGroup],
) -> Vec<Overlap> {
    // files of `b` that match none of `a` get rows behind the rows of `a`, and are summed up as the last row
    let matched = matched_files(a, b);
    let mut left = per_file(of, a.files().len(), |file| usize::try_from(file).ok());
    let shared_rows = a.files().len();
    let index_of = |file: u32| {
        usize::try_from(file)
            .ok()
            .map(|file| matched[file].unwrap_or(shared_rows + file))
    };
    let mut right = per_file(by, shared_rows + b.files().len(), index_of);
    // bytes of files that `a` lacks overlap with nothing, and still count for `b`
    let only = right.split_off(shared_rows);
    let mut sums: Vec<_> = left
        .drain(..)
        .zip(right)
        .map(|(a, b)| overlap(RangeUnion::new(a), RangeUnion::new(b)))
        .collect();
    let only_b = only
        .into_iter()
        .map(|runs| overlap(RangeUnion::new(Vec::new()), RangeUnion::new(runs)).b);
    sums.push(Overlap {
        b: only_b.fold(0, u64::saturating_add),
        ..Overlap::default()
    });
    sums
}

fn per_file(
    groups: &[AccessGroup],
    files: usize,
    index_of: impl Fn(u32) -> Option<usize>,
) -> Vec<Vec<StridedRange>> {
    let mut runs = vec![Vec::new(); files];
    for access in groups.iter().flat_map(AccessGroup::accesses) {
        if let Some(list) = index_of(access.file).and_then(|i| runs.get_mut(i)) {
            list.push(access.bytes);
        }
    }
    runs
}
