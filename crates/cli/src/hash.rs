//! `--hash`: SHA-256 of each tensor's logical bytes, several tensors at a time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anamnesis::catalog::Layout;
use anamnesis::{Checkpoint, Summary, Tensor};
use indicatif::ProgressBar;
use sha2::{Digest, Sha256};

use crate::exit::Failure;
use crate::interrupt;
use crate::output::progress;

/// Fills in the hashes of the tensors that are `wanted`. Stops at the first tensor that cannot be
/// read; tensors that have no bytes of their own (sparse, absent) get a warning instead of a hash.
pub(crate) fn fill(
    checkpoint: &Checkpoint,
    summary: &mut Summary,
    wanted: impl Fn(&str) -> bool,
) -> Result<(), Failure> {
    let (rows, without): (Vec<_>, Vec<_>) = checkpoint
        .tensors()
        .enumerate()
        .filter(|(_, tensor)| wanted(&tensor.info().name))
        .partition(|(_, tensor)| {
            !matches!(tensor.info().layout, Layout::Absent | Layout::Sparse(_))
        });
    if !without.is_empty() {
        let text = format!(
            "{} tensors are sparse or were saved without data and have no hash",
            without.len()
        );
        summary.warnings.push(text);
    }
    let bar = progress::bar(
        "hashing",
        rows.iter()
            .map(|(_, tensor)| tensor.info().nbytes())
            .fold(0, u64::saturating_add),
    );
    interrupt::ends(&bar);
    let next = AtomicUsize::new(0);
    let done = Mutex::new((Vec::with_capacity(rows.len()), None));
    let work = || {
        while let Some((row, tensor)) = rows.get(next.fetch_add(1, Ordering::Relaxed)) {
            let hash = sha256(tensor, &bar);
            let mut done = done.lock().expect("no thread panics with the lock");
            match hash {
                Ok(hash) => done.0.push((*row, hash)),
                Err(error) => {
                    next.store(rows.len(), Ordering::Relaxed);
                    done.1.get_or_insert(error);
                }
            }
        }
    };
    let threads = thread::available_parallelism()
        .map_or(1, usize::from)
        .min(rows.len());
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    bar.finish_and_clear();
    let (hashes, error) = done.into_inner().expect("no thread panicked");
    for (row, hash) in hashes {
        summary.tensors[row].sha256 = Some(hash);
    }
    error.map_or(Ok(()), |e| Err(e.into()))
}

fn sha256(tensor: &Tensor<'_>, bar: &ProgressBar) -> anamnesis::Result<String> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut hash = Sha256::new();
    tensor.chunks(|chunk| {
        hash.update(chunk);
        bar.inc(chunk.len() as u64);
        Ok(())
    })?;
    let digits = hash
        .finalize()
        .into_iter()
        .flat_map(|b| [b >> 4, b & 15])
        .map(|d| char::from(DIGITS[usize::from(d)]));
    Ok(digits.collect())
}
