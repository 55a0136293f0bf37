//! `inspect --hash`: the SHA-256 of each tensor's logical bytes, computed in parallel across tensors.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anamnesis::catalog::Layout;
use anamnesis::{Checkpoint, ErrorKind, Summary, Tensor};
use indicatif::ProgressBar;
use sha2::{Digest, Sha256};

use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::output::progress;
use crate::text::plural;

/// Adds the hashes of the tensors whose name passes `wanted`. Tensors without bytes of their own (sparse, absent) are
/// counted in a warning instead.
///
/// # Errors
///
/// A tensor that cannot be read has no hash and is no reason not to hash the others; the first such error is returned
/// once they are done. If the system fails or the user interrupts, the work ends with that.
pub(crate) fn fill(
    checkpoint: &Checkpoint,
    summary: &mut Summary,
    wanted: impl Fn(&str) -> bool,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let (rows, unhashed): (Vec<_>, Vec<_>) = checkpoint
        .tensors()
        .enumerate()
        .filter(|(_, tensor)| wanted(&tensor.info().name))
        .partition(|(_, tensor)| {
            !matches!(tensor.info().layout, Layout::Absent | Layout::Sparse(_))
        });
    if !unhashed.is_empty() {
        let text = format!(
            "no hash for {}: sparse, or saved without data",
            plural(unhashed.len() as u64, "tensor")
        );
        summary.warnings.push(text);
    }
    let bar = progress::bar(
        "hashing",
        rows.iter()
            .map(|(_, tensor)| tensor.info().nbytes())
            .fold(0, u64::saturating_add),
    );
    interrupt.handle();
    let next = AtomicUsize::new(0);
    let done = Mutex::new((Vec::with_capacity(rows.len()), None));
    let work = || {
        // one tensor at a time from a shared counter: tensors differ by orders of magnitude in size, so equal shares
        // would not end together
        while let Some((row, tensor)) = rows.get(next.fetch_add(1, Ordering::Relaxed)) {
            let hash = sha256(tensor, &bar, interrupt);
            let mut done = done.lock().expect("no thread panics with the lock");
            match hash {
                Ok(hash) => done.0.push((*row, hash)),
                Err(error) => {
                    if matches!(error.kind(), ErrorKind::Io(_) | ErrorKind::Cancelled) {
                        // no thread starts another tensor; those in progress are finished
                        next.store(rows.len(), Ordering::Relaxed);
                    }
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
        // the calling thread is one of the workers
        work();
    });
    bar.finish_and_clear();
    let (hashes, error) = done.into_inner().expect("no thread panicked");
    for (row, hash) in hashes {
        summary.tensors[row].sha256 = Some(hash);
    }
    error.map_or(Ok(()), |e| Err(e.into()))
}

fn sha256(
    tensor: &Tensor<'_>,
    bar: &ProgressBar,
    interrupt: &Interrupt,
) -> anamnesis::Result<String> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut hash = Sha256::new();
    tensor.chunks(|chunk| {
        hash.update(chunk);
        bar.inc(chunk.len() as u64);
        interrupt.check()
    })?;
    let digits = hash
        .finalize()
        .into_iter()
        .flat_map(|b| [b >> 4, b & 15])
        .map(|d| char::from(DIGITS[usize::from(d)]));
    Ok(digits.collect())
}
