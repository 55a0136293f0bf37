//! One worker's share of tensors that are copied as they are stored.
//!
//! A weight is cut where the cut falls between units of all of its parts: scales of blocks, packed words, blocks of a GGUF. Where
//! it does not, the weight is refused by name: a file that is a share in name only misleads.

use std::ops::Range;
use std::sync::Arc;

use crate::base::error::{Error, Remedy, Result};
use crate::base::kernel::Dtype;
use crate::models::parallel::{WorkerShares, inputs_first};
use crate::plan::decode::Sliced;
use crate::plan::{Job, JobWork, Plan};
use crate::quant::scheme::Context;
use crate::read::catalog::{Encoding, quote};
use crate::read::slice::TensorSlice;

use super::weight_parts::{KnownWeight, PartGroup, StoredWeights};

/// Cuts the jobs of a plan, whose parts are the tensors of the context's catalog. Whether one of them is divided.
pub(super) fn cut(
    cx: &Context<'_>,
    plan: &mut Plan,
    weights: &StoredWeights,
    shares: &WorkerShares<'_>,
) -> Result<bool> {
    let groups = &weights.groups;
    let mut is_cut = false;
    let mut owners = vec![None; cx.catalog.tensors().len()];
    for (number, group) in groups.iter().enumerate() {
        group
            .tensors
            .iter()
            .for_each(|&part| owners[part] = Some(number));
    }
    for job in &mut plan.jobs {
        let tensor = job.parts[0].tensor;
        let slice = match owners[tensor] {
            Some(number) => of_part(cx, &groups[number], tensor, shares)?,
            None => shares.stored(cx.catalog, cx.info(tensor))?,
        };
        if slice != TensorSlice::Whole && weights.is_refused[tensor] {
            let (name, why) = weights.refusal(cx, tensor);
            let remedy = Remedy::LeaveOut;
            return Err(indivisible(&name, &why).with_remedy(remedy));
        }
        if slice != TensorSlice::Whole {
            let is_of_vocabulary = shares.is_of_vocabulary(&cx.info(tensor).name);
            is_cut |= apply(cx, job, slice)? || is_of_vocabulary;
        }
    }
    Ok(is_cut)
}

fn refused(group: &PartGroup, what: &str) -> Error {
    indivisible(&quote(&group.name), what)
}

fn indivisible(name: &str, why: &str) -> Error {
    let what = format!("the weight {name} cannot be divided as it is stored: {why}");
    Error::unsupported(what).with_remedy(Remedy::DequantiseShare)
}

/// The slice of a part of a weight.
fn of_part(
    cx: &Context<'_>,
    group: &PartGroup,
    tensor: usize,
    shares: &WorkerShares<'_>,
) -> Result<TensorSlice> {
    let Some(known) = &group.known else {
        // it cannot be dequantised either
        return Err(refused(group, "its scheme is not known").with_remedy(Remedy::LeaveOut));
    };
    let (axis, ranges) = match shares.output(&group.name, &known.shape, Dtype::BF16)? {
        TensorSlice::Whole => return Ok(TensorSlice::Whole),
        TensorSlice::Range { axis, range } => (axis, vec![range]),
        TensorSlice::Joined { axis, ranges } => (axis, ranges),
        _ => return Err(refused(group, "its share is no range")),
    };
    let rank = known.shape.len();
    // along the outputs, or along the inputs
    let from_end = rank - 1 - axis;
    let size = known.shape[axis];
    let info = cx.info(tensor);
    let part: &[u64] = &info.shape;
    let is_index = known
        .parts
        .iter()
        .any(|part| part.tensor == tensor && matches!(part.role, "group_index" | "g_idx"));
    if from_end == 0 && has_index(known) {
        let what = "its inputs have an order of their own, and a share of them would begin inside of a group";
        return Err(refused(group, what));
    }
    let part_axis = match part.len() {
        _ if info.elements() == 1 => None,
        1 if is_index => (from_end == 0).then_some(0),
        1 if part[0] == size && from_end == 1 => Some(0),
        2 if rank == 2 && inputs_first(cx.catalog, info) => Some(1 - axis),
        len if len == rank => Some(axis),
        _ => {
            let what = format!("how its part {} is divided is not known", quote(&info.name));
            return Err(refused(group, &what));
        }
    };
    let unit = known.block.map(|(rows, cols)| match from_end {
        0 => cols,
        _ => rows,
    });
    let configured = || configured_block(cx, from_end).filter(|_| part.len() == 2);
    let unit = unit.filter(|unit| *unit != u64::MAX).or_else(configured);
    let Some(part_axis) = part_axis else {
        check(group, &ranges, size, unit.unwrap_or(1))?;
        return Ok(TensorSlice::Whole);
    };
    let n = part[part_axis];
    if n == 1 && size > 1 {
        // one for the whole axis
        check(group, &ranges, size, unit.unwrap_or(1))?;
        return Ok(TensorSlice::Whole);
    }
    // the last block may be shorter than the others, also where as many equal ones would have the same count
    let in_blocks = unit.filter(|unit| *unit > 0 && size.div_ceil(*unit) == n);
    let in_equal_items = || (n > 0 && size.is_multiple_of(n)).then(|| size / n);
    let per_item = in_blocks.or_else(in_equal_items);
    let Some(per_item) = per_item else {
        let what = format!("how its part {} is divided is not known", quote(&info.name));
        return Err(refused(group, &what));
    };
    check(group, &ranges, size, per_item)?;
    let ranges = ranges
        .iter()
        .map(|range| range.start / per_item..range.end.div_ceil(per_item));
    let mut ranges: Vec<_> = ranges.collect();
    let slice = match &mut ranges[..] {
        [one] => TensorSlice::Range {
            axis: part_axis,
            range: std::mem::take(one),
        },
        _ => TensorSlice::Joined {
            axis: part_axis,
            ranges,
        },
    };
    Ok(slice)
}

/// Rows (1) or columns (0) that share a scale by the configuration: a weight of one block has one scale, as one without blocks has.
fn configured_block(cx: &Context<'_>, from_end: usize) -> Option<u64> {
    let block = cx.config.get("weight_block_size")?.as_array()?;
    block.get(1 - from_end.min(1))?.as_u64()
}

fn has_index(known: &KnownWeight) -> bool {
    let mut parts = known.parts.iter();
    parts.any(|part| matches!(part.role, "group_index" | "g_idx"))
}

/// Refuses ranges that begin or end inside of a unit.
fn check(group: &PartGroup, ranges: &[Range<u64>], size: u64, unit: u64) -> Result<()> {
    let is_inside = |at: u64| !at.is_multiple_of(unit) && at != size;
    let inside = ranges
        .iter()
        .find(|range| is_inside(range.start) || is_inside(range.end));
    match inside {
        None => Ok(()),
        Some(range) => Err(refused(
            group,
            &format!(
                "the share {}..{} of {size} begins or ends inside of a block of {unit}",
                range.start, range.end
            ),
        )),
    }
}

/// Reduces a job that copies a tensor to a slice of it. Whether the slice is a part.
fn apply(cx: &Context<'_>, job: &mut Job, slice: TensorSlice) -> Result<bool> {
    let info = cx.info(job.parts[0].tensor);
    let layout = slice.layout("tensor", &info.name, &info.shape, &info.encoding)?;
    if layout.shape == info.shape {
        return Ok(false);
    }
    match &mut job.work {
        JobWork::Stream { slice: whole, .. } => *whole = slice,
        JobWork::Tiles { decoder, rows } => {
            // in bytes: blocks, and elements that share a byte, are copied as such
            let (elements, bytes) = info.encoding.unit();
            let is_bytes = matches!(info.encoding, Encoding::Block(_));
            let runs = match is_bytes {
                false => layout.runs,
                true => {
                    let scale = |n: u64| n / elements * bytes;
                    let mut shape = info.shape.clone();
                    if let Some(last) = shape.last_mut() {
                        *last = scale(*last);
                    }
                    let last = shape.len() - 1;
                    let in_bytes = in_bytes(slice, last, &scale);
                    in_bytes
                        .layout("tensor", &info.name, &shape, &Encoding::Plain(Dtype::U8))?
                        .runs
                }
            };
            let sliced = Sliced {
                inner: Arc::clone(decoder),
                runs,
            };
            *rows = sliced.rows_per_tile(job.output.dtype);
            *decoder = Arc::new(sliced);
        }
    }
    job.output.shape = layout.shape;
    Ok(true)
}

/// The slice of the bytes of a tensor of blocks, whose last axis is `last`.
fn in_bytes(slice: TensorSlice, last: usize, scale: &dyn Fn(u64) -> u64) -> TensorSlice {
    let scaled = |range: Range<u64>| scale(range.start)..scale(range.end);
    match slice {
        TensorSlice::Range { axis, range } if axis == last => TensorSlice::Range {
            axis,
            range: scaled(range),
        },
        TensorSlice::Joined { axis, ranges } if axis == last => TensorSlice::Joined {
            axis,
            ranges: ranges.into_iter().map(scaled).collect(),
        },
        other => other,
    }
}
