//! `digest`: the SHA-256 of tensors and of files, several side by side.
//!
//! One digest is computed from the first byte to the last, by one thread. All cores work where there are as many tensors or
//! files; the largest are started first, so that none of them is left for the end.

mod files;
mod sha256;
mod sha512;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::progress::{RunControl, RunProgress};
use crate::base::sync::PoisonMutex;
use crate::base::threads::{for_each_of, thread_count_for};
use crate::read::catalog::Layout;
use crate::read::checkpoint::CheckpointHandle;
use crate::read::run_options::{RunOptions, run_options};
use crate::read::tensor::Tensor;

pub(crate) use files::{FileDigests, FileHashes, GitObjectId};
pub use sha256::Sha256Digest;
use sha256::Sha256State;
pub(crate) use sha512::Sha512Digest;

/// Computes the SHA-256 of tensors. Made by [`digest`].
#[derive(Clone)]
pub struct Digests<'c> {
    checkpoint: CheckpointHandle<'c>,
    options: RunOptions<'c>,
}

/// The digests of a checkpoint's tensors, and what has none.
#[derive(Debug, Default)]
pub struct TensorDigests {
    /// One per tensor of the catalog, in its order; `None` of those that the filter excludes, that have no bytes of their own,
    /// or that could not be read.
    pub tensors: Vec<Option<Sha256Digest>>,
    /// Number of tensors without bytes of their own: sparse ones, and those that were saved without data.
    pub without_bytes: u64,
    /// The first tensor that could not be read. The others have their digests, unless the system has failed.
    pub failure: Option<Error>,
}

/// Computes the SHA-256 of each tensor's values: in C order, little endian; quantisation blocks as stored. Equal values have
/// equal digests in every format and byte order.
///
/// ```
/// use anamnesis::{Checkpoint, digest};
///
/// let checkpoint = Checkpoint::open("fixtures/safetensors/sharded")?;
/// let digests = digest(&checkpoint).filter(|name| name.starts_with("lm_head")).run()?;
/// let computed = digests.tensors.iter().flatten();
/// for digest in computed.clone() {
///     println!("{digest}"); // 64 hexadecimal digits
/// }
/// assert_eq!(computed.count(), 1);
/// # Ok::<(), anamnesis::Error>(())
/// ```
pub fn digest<'c>(checkpoint: impl Into<CheckpointHandle<'c>>) -> Digests<'c> {
    Digests {
        checkpoint: checkpoint.into(),
        options: RunOptions::default(),
    }
}

run_options!(Digests {
    /// Each reads one tensor at a time.
    threads,
    /// Only the digests of these tensors are computed.
    filter,
    /// In bytes of values.
    progress,
    cancel,
});

impl Digests<'_> {
    /// Computes the digests.
    ///
    /// # Errors
    /// Cancellation, and a list of tensors over [`Limits::memory`](crate::Limits::memory). A tensor that cannot be read is no
    /// error, but [`TensorDigests::failure`].
    pub fn run(&self) -> Result<TensorDigests> {
        self.run_with(&self.options.control)
    }

    pub(crate) fn run_with(&self, control: &RunControl<'_>) -> Result<TensorDigests> {
        let checkpoint = &*self.checkpoint;
        let budget = checkpoint.budget();
        let mut made = TensorDigests::default();
        let mut rows: Vec<usize> = Vec::new();
        let tensors = checkpoint.catalog().tensors();
        budget.reserve(&mut made.tensors, tensors.len(), WHAT)?;
        budget.reserve(&mut rows, tensors.len(), WHAT)?;
        made.tensors.resize(tensors.len(), None);
        for (row, info) in tensors.iter().enumerate() {
            if !self.options.selection.contains(&info.name) {
                continue;
            }
            match info.layout {
                // the bytes of a sparse tensor are its indices and values, whose order is no part of its content
                Layout::Absent | Layout::Sparse(_) => made.without_bytes += 1,
                _ => rows.push(row),
            }
        }
        // stable, so that equal sizes are read in file order
        rows.sort_by_key(|row| std::cmp::Reverse(tensors[*row].nbytes()));
        let sizes = rows.iter().map(|row| tensors[*row].nbytes());
        let nbytes = sizes.fold(0, u64::saturating_add);
        let progress = RunProgress::new(nbytes, control);
        let results = PoisonMutex::new(&mut made);
        for_each_of(
            "digest",
            &rows,
            thread_count_for(self.options.threads, nbytes),
            &progress,
            || (),
            |_, &row, ()| {
                let digest = of_tensor(&checkpoint.tensor_at(row), &progress);
                let mut results = results.lock().expect("no thread panics with the lock");
                match digest {
                    Ok(digest) => results.tensors[row] = Some(digest),
                    Err(error) if matches!(error.kind(), ErrorKind::Cancelled) => {
                        return Err(error);
                    }
                    Err(error) => {
                        let system = matches!(error.kind(), ErrorKind::Io(_));
                        // the first one: threads finish in any order, and one reason is enough
                        results.failure.get_or_insert(error);
                        if system {
                            // no thread starts another tensor; those in progress are finished
                            return Err(Error::new(ErrorKind::Cancelled));
                        }
                    }
                }
                Ok(())
            },
        )
        .or_else(|error| match control.check() {
            // ended by a failure of the system, which is in the result
            Ok(()) => Ok(()),
            Err(_) => Err(error),
        })?;
        progress.finish();
        Ok(made)
    }
}

const WHAT: &str = "the digests";

/// The digest of one tensor's values.
pub(crate) fn of_tensor(tensor: &Tensor<'_>, progress: &RunProgress<'_>) -> Result<Sha256Digest> {
    let mut state = Sha256State::default();
    tensor.chunks(|chunk| {
        state.update(chunk);
        progress.add(chunk.len() as u64)
    })?;
    Ok(state.finish())
}

impl std::fmt::Debug for Digests<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Digests")
            .field("threads", &self.options.threads)
            .finish_non_exhaustive()
    }
}
