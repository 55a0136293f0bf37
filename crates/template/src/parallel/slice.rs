//! Computes a worker's share of a tensor, from a rule, a shape and a split: indices of an axis, and their bytes.

use std::ops::Range;

use super::{Rule, Split};
use crate::StridedRange;
use crate::error::{Error, Result};

/// The vocabulary is padded to a multiple of this before it is split, as by vLLM's
/// `VocabParallelEmbedding`.
const VOCAB_PADDING: u64 = 64;

/// A worker's share of a tensor that is split along one axis.
///
/// ```
/// use anamnesis_template::parallel::{Rule, Split, share};
///
/// // the rows are gates, then up projections: the second of two workers has the second half of both
/// let split = Split { rank: 1, world: 2, ..Split::default() };
/// let half = share(Rule::FusedGateUp, &[8, 6], &split)?.expect("a matrix is split");
/// assert_eq!((half.axis, &half.ranges[..]), (0, &[2..4, 6..8][..]));
/// # Ok::<(), anamnesis_template::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AxisShare {
    /// The axis that is split.
    pub axis: usize,
    /// The worker's indices of that axis, in ascending order. Ranges may be empty.
    pub ranges: Vec<Range<u64>>,
}

impl AxisShare {
    /// Returns the bytes of the share in a tensor of this shape, relative to its first byte: one strided
    /// range for each range of indices that is not empty.
    ///
    /// # Errors
    /// The errors of [`slice()`].
    pub fn runs(&self, shape: &[u64], item_bytes: u64) -> Result<Vec<StridedRange>> {
        let parts = self.ranges.iter();
        parts
            .map(|part| runs(shape, self.axis, part.clone(), item_bytes))
            .filter_map(Result::transpose)
            .collect()
    }
}

/// Returns the bytes of a tensor that a worker reads, relative to the tensor's first byte, in order: the bytes of its
/// [`share()`], or all.
///
/// `shape` is in items of `item_bytes` bytes, outermost dimension first.
///
/// ```
/// use anamnesis_template::parallel::{Rule, Split, slice};
///
/// let split = Split { rank: 1, world: 2, ..Split::default() };
/// let column = slice(Rule::Column, &[4, 6], 2, &split)?;
/// assert_eq!(column[0].to_string(), "24+24"); // rows 2 and 3
/// let row = slice(Rule::Row, &[4, 6], 2, &split)?;
/// assert_eq!(row[0].to_string(), "6+6 ×4 every 12"); // the second half of each row
/// # Ok::<(), anamnesis_template::Error>(())
/// ```
///
/// # Errors
/// [`Invalid`](crate::ErrorKind::Invalid) if the tensor has more than 2⁶⁴ bytes, its slice has 2³²
/// runs or more, or the rank is not below the number of workers.
pub fn slice(
    rule: Rule,
    shape: &[u64],
    item_bytes: u64,
    split: &Split,
) -> Result<Vec<StridedRange>> {
    if let Some(share) = share(rule, shape, split)? {
        return share.runs(shape, item_bytes);
    }
    let all = nbytes(shape, item_bytes)?;
    Ok(if all == 0 {
        Vec::new()
    } else {
        vec![StridedRange::contiguous(0, all)]
    })
}

/// Returns a worker's share of a tensor; `None` if every worker has all of it.
///
/// Matrices are `[…, outputs, inputs]`; leading dimensions (experts) are not split. A dimension of 1 is
/// not split. A dimension that is not divisible by the number of workers is split as evenly as
/// possible.
///
/// # Errors
/// [`Invalid`](crate::ErrorKind::Invalid) if the rank is not below the number of workers.
pub fn share(rule: Rule, shape: &[u64], split: &Split) -> Result<Option<AxisShare>> {
    let &Split {
        rank,
        world,
        heads,
        kv_heads,
        ..
    } = split;
    if rank >= world {
        return Err(Error::invalid(format!(
            "rank {rank} is not below the number of workers, {world}"
        )));
    }
    let outputs = shape.len().saturating_sub(2);
    let axis = match rule {
        Rule::Replicated => None,
        Rule::Row => shape.len().checked_sub(1).filter(|&axis| axis > 0),
        Rule::Vocab => Some(0),
        _ => Some(outputs),
    };
    let Some((axis, &n)) = axis
        .and_then(|axis| Some((axis, shape.get(axis)?)))
        .filter(|&(_, &n)| n != 1)
    else {
        return Ok(None);
    };
    let even = |n| portion(n, rank, world);
    // Keys or values with `n` outputs.
    let kv = |n: u64| {
        if kv_heads == 0 {
            even(n)
        } else {
            scale(head(kv_heads, split), kv_heads, n)
        }
    };
    let after = |range: Range<u64>, by: u64| range.start + by..range.end + by;
    let ranges = match rule {
        Rule::Replicated | Rule::Column | Rule::Row => vec![even(n)],
        Rule::Vocab => {
            let padded = u128::from(n).next_multiple_of(u128::from(VOCAB_PADDING));
            // parts of the padded vocabulary, so the last workers may have few rows or none of the stored ones
            let each = padded.div_ceil(u128::from(world));
            let end = |rank: u128| u64::try_from(each * rank).map_or(n, |end| end.min(n));
            vec![Range {
                start: end(u128::from(rank)),
                end: end(u128::from(rank) + 1),
            }]
        }
        Rule::KeyValue => vec![kv(n)],
        Rule::FusedQkv => {
            // a model that does not state its heads of keys has as many as heads of queries
            let (queries, units) = if heads == 0 || kv_heads == 0 {
                (1, 3)
            } else {
                (heads, heads.saturating_add(kv_heads.saturating_mul(2)))
            };
            let q = scale(0..queries, units, n).end;
            // there are as many keys as values
            let k = (n - q) / 2;
            vec![even(q), after(kv(k), q), after(kv(n - q - k), q + k)]
        }
        Rule::FusedGateUp => vec![even(n / 2), after(even(n - n / 2), n / 2)],
    };
    Ok(Some(AxisShare { axis, ranges }))
}

/// Which experts a tensor belongs to, by its name.
///
/// ```
/// use anamnesis_template::parallel::Experts;
///
/// assert_eq!(Experts::of("model.layers.3.mlp.experts.7.w2.weight"), Some(Experts::One(7)));
/// assert_eq!(Experts::of("blk.3.ffn_down_exps.weight"), Some(Experts::All));
/// assert_eq!(Experts::of("model.layers.3.mlp.shared_experts.w2.weight"), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Experts {
    /// The tensor belongs to one expert.
    One(u64),
    /// The tensor holds all experts, one after the other.
    All,
}

impl Experts {
    /// Reads it from the name: `….experts.7.…`, `….experts.…`, `…_exps.…`; `None` if the tensor
    /// belongs to no routed expert.
    pub fn of(name: &str) -> Option<Self> {
        if let Some((_, rest)) = name.split_once(".experts.") {
            let number = rest.split('.').next().and_then(|part| part.parse().ok());
            return Some(number.map_or(Self::All, Self::One));
        }
        name.contains("_exps.").then_some(Self::All)
    }
}

/// Like [`slice()`], where each worker has whole experts. If they do not divide evenly, the first workers have one more.
pub(super) fn slice_experts(
    experts: Experts,
    shape: &[u64],
    item_bytes: u64,
    split: &Split,
) -> Result<Vec<StridedRange>> {
    let (world, rank) = (u64::from(split.world), u64::from(split.rank));
    if rank >= world {
        return Err(Error::invalid(format!(
            "rank {rank} is not below the number of workers, {world}"
        )));
    }
    let (each, more) = (split.experts / world, split.experts % world);
    let start = each * rank + rank.min(more);
    let own = start..start + each + u64::from(rank < more);
    match experts {
        Experts::One(number) if own.contains(&number) => {
            slice(Rule::Replicated, shape, item_bytes, split)
        }
        Experts::One(_) => Ok(Vec::new()),
        Experts::All => {
            let n = shape.first().copied().unwrap_or(0);
            let part = runs(shape, 0, scale(own, split.experts, n), item_bytes)?;
            Ok(part.into_iter().collect())
        }
    }
}

/// Returns a worker's part of `n`.
fn portion(n: u64, rank: u32, world: u32) -> Range<u64> {
    scale(u64::from(rank)..u64::from(rank) + 1, world.into(), n)
}

/// Returns a worker's heads of keys and values: its part, or one head that it shares with other
/// workers.
fn head(heads: u64, split: &Split) -> Range<u64> {
    let own = portion(heads, split.rank, split.world);
    own.start..own.end.max(own.start + 1)
}

/// Scales `part` of `whole` to the corresponding part of `n`.
fn scale(part: Range<u64>, whole: u64, n: u64) -> Range<u64> {
    let at = |i: u64| {
        // multiplied first, so that parts differ by one at most and cover everything; in 128 bits, as the product
        // exceeds 64
        let place = u128::from(i) * u128::from(n) / u128::from(whole.max(1));
        u64::try_from(place).map_or(n, |place| place.min(n))
    };
    at(part.start)..at(part.end)
}

/// Returns `part` of dimension `dim` for every index of the dimensions before it; `None` if it is
/// empty.
fn runs(
    shape: &[u64],
    dim: usize,
    part: Range<u64>,
    item_bytes: u64,
) -> Result<Option<StridedRange>> {
    let all = nbytes(shape, item_bytes)?;
    if all == 0 || part.is_empty() {
        return Ok(None);
    }
    // These products do not overflow: no dimension is 0, and the product of all fits into 64 bits.
    let inner = shape[dim + 1..].iter().product::<u64>() * item_bytes;
    let outer: u64 = shape[..dim].iter().product();
    let (start, len) = (part.start * inner, (part.end - part.start) * inner);
    let stride = shape[dim] * inner;
    if stride == len {
        // the part is all of the dimension, so that the runs are one
        return Ok(Some(StridedRange::contiguous(0, all)));
    }
    if u32::try_from(outer).is_err() {
        return Err(Error::invalid(format!(
            "a slice has {outer} runs; at most 2³² - 1 are allowed"
        )));
    }
    let slice = StridedRange::strided(start, len, outer, stride);
    slice
        .map(Some)
        .ok_or_else(|| Error::invalid("a slice ends beyond 64 bits"))
}

fn nbytes(shape: &[u64], item_bytes: u64) -> Result<u64> {
    if shape.contains(&0) {
        return Ok(0);
    }
    let product = shape
        .iter()
        .try_fold(item_bytes, |n, &dim| n.checked_mul(dim));
    product.ok_or_else(|| {
        Error::invalid(format!(
            "a tensor of shape {shape:?} has more than 2⁶⁴ bytes"
        ))
    })
}
