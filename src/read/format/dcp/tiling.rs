//! Checks that the chunks of a tensor contain each of its elements once.

use crate::base::error::{Error, Result};
use crate::base::limits::Budget;
use crate::read::catalog::{elements, quote};

use super::{ChunkedTensor, StoredChunk, WHAT};

/// Checks the chunks, orders them by their offsets, and removes those without elements: a process that holds nothing of a
/// tensor still writes a chunk.
pub(super) fn check(tensor: &mut ChunkedTensor, budget: &Budget) -> Result<()> {
    let shape = tensor.info.shape.clone();
    let name = quote(&tensor.info.name);
    let wrong = |what: &str| Error::malformed(format!("the chunks of tensor {name} {what}"));
    // a dtype of two elements per item counts items here
    let whole = match (tensor.chunks.as_slice(), tensor.info.encoding.item_bytes()) {
        ([only], None) => only.sizes.clone(),
        _ => shape.clone(),
    };
    let mut sum = 0u64;
    for chunk in &tensor.chunks {
        if chunk.offsets.len() != shape.len() || chunk.sizes.len() != shape.len() {
            return Err(wrong("have another number of dimensions"));
        }
        let ends = chunk.offsets.iter().zip(chunk.sizes.iter());
        let is_inside = ends
            .zip(whole.iter())
            .all(|((&from, &len), &size)| from.checked_add(len).is_some_and(|end| end <= size));
        if !is_inside {
            return Err(wrong("reach outside of it"));
        }
        sum = sum.saturating_add(elements(&chunk.sizes).unwrap_or(u64::MAX));
    }
    let total = elements(&whole).unwrap_or(u64::MAX);
    if sum != total {
        return Err(wrong(&format!(
            "have {sum} elements, and the tensor {total}"
        )));
    }
    if total == 0 {
        // any chunk stands for all of them
        tensor.chunks.truncate(1);
        if let Some(chunk) = tensor.chunks.first()
            && *chunk.sizes != *whole
        {
            tensor.chunks.clear();
        }
        return Ok(());
    }
    tensor.chunks.retain(|chunk| !chunk.sizes.contains(&0));
    // as many elements as the tensor has, and no two chunks overlap: each element is in one
    if has_overlap(&mut tensor.chunks, shape.len(), budget)? {
        return Err(wrong("overlap"));
    }
    tensor
        .chunks
        .sort_unstable_by(|a, b| a.offsets.cmp(&b.offsets));
    Ok(())
}

/// Whether two chunks overlap. They are swept along the dimension with the most distinct offsets, so that each is compared
/// with those that overlap it in that dimension.
fn has_overlap(chunks: &mut [StoredChunk], rank: usize, budget: &Budget) -> Result<bool> {
    let mut best = (0, 0);
    for dim in 0..rank {
        budget.steps(chunks.len() as u64, WHAT)?;
        chunks.sort_unstable_by_key(|chunk| chunk.offsets[dim]);
        let distinct = chunks.chunk_by(|a, b| a.offsets[dim] == b.offsets[dim]);
        best = best.max((distinct.count(), dim));
    }
    let dim = best.1;
    if rank == 0 {
        return Ok(chunks.len() > 1);
    }
    chunks.sort_unstable_by_key(|chunk| chunk.offsets[dim]);
    for (row, chunk) in chunks.iter().enumerate() {
        let end = chunk.offsets[dim] + chunk.sizes[dim]; // inside of the tensor, by the caller
        for other in &chunks[row + 1..] {
            if other.offsets[dim] >= end {
                break;
            }
            budget.steps(rank as u64, WHAT)?;
            let overlaps = (0..rank).all(|dim| {
                let [a, b] =
                    [chunk, other].map(|c| (c.offsets[dim], c.offsets[dim] + c.sizes[dim]));
                a.0 < b.1 && b.0 < a.1
            });
            if overlaps {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
