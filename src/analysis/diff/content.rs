//! Pairs of tensors with other names and the same bytes: renamed ones.
//!
//! Samples of each tensor's bytes divide what is left into groups. A group of one tensor on each side is compared byte by byte;
//! of larger groups (norms that are all ones) digests are computed, so that the work stays linear in the bytes.

use std::collections::{BTreeMap, HashMap};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use sha2::{Digest, Sha256};

use crate::base::error::Result;
use crate::base::limits::Budget;
use crate::base::progress::{RunControl, RunProgress};
use crate::base::sync::{AtomicBool, PoisonMutex};
use crate::base::threads::for_each_of;
use crate::read::catalog::{Layout, TensorInfo};
use crate::read::checkpoint::Checkpoint;

use super::bytes::{ByteComparison, compare};
use super::pairing::{PairedBy, Pairing, TensorPair};
use super::sides::{Side, WHAT};
use super::tensor_bytes::{ByteAccess, TensorBytes};

/// Bytes of a sample.
const SAMPLE: u64 = 4 << 10;

/// Pieces of a tensor that is hashed.
const HASHED: usize = 1 << 20;

type ContentDigest = [u8; 32];

/// Finds the pairs among what is left of both sides, and adds them.
pub(super) fn pair(
    pairing: &mut Pairing,
    a: &Side<'_>,
    b: &Side<'_>,
    threads: usize,
    control: &RunControl<'_>,
    budget: &Budget,
) -> Result<()> {
    const ROW: u64 = 512;
    let left = pairing.only_a.len() + pairing.only_b.len();
    let _rows = budget.temporary(ROW * left as u64, WHAT)?;
    let (left_a, left_b) = candidates(pairing, a, b);
    if left_a.is_empty() || left_b.is_empty() {
        return Ok(());
    }
    let digests = |side: &Side<'_>, tensors: &[usize], whole: bool| {
        let progress = RunProgress::new(0, control);
        digests(side, tensors, whole, threads, &progress)
    };
    let mut groups = BTreeMap::<ContentDigest, (Vec<usize>, Vec<usize>)>::new();
    for (i, digest) in digests(a, &left_a, false)? {
        groups.entry(digest).or_default().0.push(i);
    }
    for (j, digest) in digests(b, &left_b, false)? {
        groups.entry(digest).or_default().1.push(j);
    }
    let (mut single, mut several_a, mut several_b) = (Vec::new(), Vec::new(), Vec::new());
    for (in_a, in_b) in groups.into_values() {
        match (&in_a[..], &in_b[..]) {
            // no equal on the other side: nothing more is read
            ([], _) | (_, []) => {}
            ([i], [j]) => single.push((*i, *j)),
            _ => {
                several_a.extend(in_a);
                several_b.extend(in_b);
            }
        }
    }
    let mut found = equal_pairs(single, a, b, threads, control)?;
    let mut groups = BTreeMap::<ContentDigest, (Vec<usize>, Vec<usize>)>::new();
    for (i, digest) in digests(a, &several_a, true)? {
        groups.entry(digest).or_default().0.push(i);
    }
    for (j, digest) in digests(b, &several_b, true)? {
        groups.entry(digest).or_default().1.push(j);
    }
    for (mut in_a, mut in_b) in groups.into_values() {
        // by the ends of their names: a prefix that is gone, or new, changes this order least
        let by_end = |side: &Side<'_>, list: &mut Vec<usize>| {
            list.sort_by(|x, y| {
                let names = [x, y].map(|i| side.tensors[*i].name.bytes().rev());
                let [x, y] = names;
                x.cmp(y)
            });
        };
        by_end(a, &mut in_a);
        by_end(b, &mut in_b);
        found.extend(in_a.into_iter().zip(in_b));
    }
    let paired_a: std::collections::HashSet<usize> = found.iter().map(|pair| pair.0).collect();
    let paired_b: std::collections::HashSet<usize> = found.iter().map(|pair| pair.1).collect();
    pairing.only_a.retain(|i| !paired_a.contains(i));
    pairing.only_b.retain(|j| !paired_b.contains(j));
    for (a, b) in found {
        let by = PairedBy::Content;
        budget.push(&mut pairing.pairs, TensorPair { a, b, by }, WHAT)?;
    }
    // the listing walks both in A's file order
    pairing.pairs.sort_by_key(|pair| pair.a);
    Ok(())
}

/// The rest that can have an equal on the other side: with elements that are read, in types and counts that both sides have.
fn candidates(pairing: &Pairing, a: &Side<'_>, b: &Side<'_>) -> (Vec<usize>, Vec<usize>) {
    let of = |side: &Side<'_>, left: &[usize]| {
        let mut kinds = HashMap::<(String, &'static str, u64), Vec<usize>>::new();
        for i in left {
            let tensor = &side.tensors[*i];
            let readable = (0..tensor.parts.len()).all(|part| {
                !matches!(
                    side.part(tensor, part).layout,
                    Layout::Absent | Layout::Sparse(_)
                )
            });
            // one number equals too many others to say anything
            if readable && side.part(tensor, 0).elements() > 1 {
                let kind = (
                    side.dtype(tensor).to_owned(),
                    side.scheme(tensor),
                    side.nbytes(tensor),
                );
                kinds.entry(kind).or_default().push(*i);
            }
        }
        kinds
    };
    let (in_a, mut in_b) = (of(a, &pairing.only_a), of(b, &pairing.only_b));
    let (mut left_a, mut left_b) = (Vec::new(), Vec::new());
    for (kind, tensors) in in_a {
        if let Some(others) = in_b.remove(&kind) {
            left_a.extend(tensors);
            left_b.extend(others);
        }
    }
    // in file order: the maps have none
    left_a.sort_unstable();
    left_b.sort_unstable();
    (left_a, left_b)
}

/// The pairs whose bytes are equal.
pub(super) fn equal_pairs(
    pairs: Vec<(usize, usize)>,
    a: &Side<'_>,
    b: &Side<'_>,
    threads: usize,
    control: &RunControl<'_>,
) -> Result<Vec<(usize, usize)>> {
    let mut list = Vec::new();
    for (item, (i, j)) in pairs.iter().enumerate() {
        let (x, y) = (&a.tensors[*i], &b.tensors[*j]);
        for part in 0..x.parts.len().min(y.parts.len()) {
            list.push(ByteComparison {
                a: TensorBytes::new(a.checkpoint, a.part(x, part))?,
                b: TensorBytes::new(b.checkpoint, b.part(y, part))?,
                item,
            });
        }
    }
    let differs: Vec<AtomicBool> = pairs.iter().map(|_| AtomicBool::new(false)).collect();
    let total = list.iter().map(ByteComparison::nbytes);
    let progress = RunProgress::new(total.fold(0, u64::saturating_add), control);
    compare(&list, &differs, false, threads, &progress)?;
    let equal = pairs.into_iter().zip(differs);
    let equal = equal.filter(|(_, differs)| !differs.load(Ordering::Relaxed));
    Ok(equal.map(|(pair, _)| pair).collect())
}

/// A digest of each tensor: of all its bytes, or of samples of them, with what its parts are.
fn digests(
    side: &Side<'_>,
    tensors: &[usize],
    whole: bool,
    threads: usize,
    progress: &RunProgress<'_>,
) -> Result<Vec<(usize, ContentDigest)>> {
    let found = PoisonMutex::new(Vec::with_capacity(tensors.len()));
    for_each_of(
        "diff",
        tensors,
        threads,
        progress,
        Vec::new,
        |_, &at, room| {
            let tensor = &side.tensors[at];
            let mut digest = Sha256::new();
            for part in 0..tensor.parts.len() {
                let info = side.part(tensor, part);
                // parts of equal bytes but other types are no equals
                digest.update(info.encoding.name());
                digest.update(info.elements().to_le_bytes());
                add_bytes(side.checkpoint, info, whole, &mut digest, room, progress)?;
            }
            let digest = ContentDigest::from(digest.finalize());
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            found.push((at, digest));
            Ok(())
        },
    )?;
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    // threads finish in any order, and pairs must not depend on it
    found.sort_unstable();
    Ok(found)
}

fn add_bytes(
    checkpoint: &Checkpoint,
    info: &TensorInfo,
    whole: bool,
    digest: &mut Sha256,
    room: &mut Vec<u8>,
    progress: &RunProgress<'_>,
) -> Result<()> {
    let len = info.nbytes();
    let samples = if whole {
        // all bytes as one range; the others are empty
        [(0, len), (len, 0), (len, 0)]
    } else {
        samples(len)
    };
    let bytes = TensorBytes::new(checkpoint, info)?;
    let mut task = progress.task(0);
    // a stream is read once, and the samples are cut out of its pieces
    if let ByteAccess::InOrder = bytes.access {
        let mut at = 0u64;
        return checkpoint.tensor_of(info).chunks(|chunk| {
            let end = at + chunk.len() as u64;
            for (start, count) in samples {
                let (from, to) = (start.max(at), (start + count).min(end));
                if from < to {
                    let index = |n: u64| usize::try_from(n - at).expect("inside of the chunk");
                    digest.update(&chunk[index(from)..index(to)]);
                }
            }
            at = end;
            task.worked(chunk.len())
        });
    }
    for (start, count) in samples {
        let mut done = 0;
        while done < count {
            let size = usize::try_from((count - done).min(HASHED as u64)).expect("a piece");
            digest.update(bytes.range(start + done, size, room)?);
            done += size as u64;
            task.worked(size)?;
        }
    }
    Ok(())
}

/// The sampled ranges of a tensor of this many bytes, as start and length: its begin, its middle and its end.
fn samples(len: u64) -> [(u64, u64); 3] {
    if len <= 3 * SAMPLE {
        // three samples would overlap
        return [(0, len), (len, 0), (len, 0)];
    }
    [
        (0, SAMPLE),
        (len / 2 - SAMPLE / 2, SAMPLE),
        (len - SAMPLE, SAMPLE),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_apart_and_in_order() {
        for len in [0, 1, 3 * SAMPLE, 3 * SAMPLE + 1, 1 << 20] {
            let mut end = 0;
            for (start, count) in samples(len) {
                assert!(start >= end, "{len}");
                end = start + count;
            }
            assert_eq!(end, len);
        }
    }
}
