//! Reads that are started and end later, of sources that need a round trip for each.

use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::Source;

/// Starts reads that end later, so that one thread has many of them under way. A [`Source`](super::Source) that returns it from
/// [`concurrent`](super::Source::concurrent) is loaded by [`RemoteLoader`](crate::load::RemoteLoader), unless it is small.
///
/// ```
/// use std::sync::Arc;
/// use anamnesis::load::{RemoteLoader, load};
/// use anamnesis::source::{ConcurrentReads, ReadReceiver, Source, StartedRead};
/// use anamnesis::Checkpoint;
///
/// /// A file whose reads run on threads of their own.
/// struct Threads(Arc<Vec<u8>>);
///
/// impl Source for Threads {
///     fn len(&self) -> Option<u64> {
///         Some(self.0.len() as u64)
///     }
///
///     fn read_at(&self, start: u64, buf: &mut [u8]) -> std::io::Result<usize> {
///         let rest = self.0.get(start as usize..).unwrap_or_default();
///         let n = rest.len().min(buf.len());
///         buf[..n].copy_from_slice(&rest[..n]);
///         Ok(n)
///     }
///
///     fn concurrent(&self) -> Option<&dyn ConcurrentReads> {
///         Some(self)
///     }
/// }
///
/// impl ConcurrentReads for Threads {
///     fn start(&self, start: u64, len: u64, _: bool, mut receiver: Box<dyn ReadReceiver>) -> StartedRead {
///         let bytes = Arc::clone(&self.0);
///         std::thread::spawn(move || {
///             let range = start as usize..(start + len) as usize;
///             let _ = receiver.arrived(start, &bytes[range]);
///             receiver.ended(Ok(()));
///         });
///         StartedRead::new(()) // this read cannot be cancelled
///     }
/// }
///
/// let file = std::fs::read("fixtures/safetensors/all_dtypes.safetensors")?;
/// let checkpoint = Checkpoint::from_source(Threads(Arc::new(file)))?;
/// let loaded = load(&checkpoint).loader(RemoteLoader::new()).run()?;
/// assert_eq!((loaded.tensors().len(), loaded.report().and_then(|report| report.fallback.clone())), (19, None));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait ConcurrentReads: Send + Sync {
    /// Starts to read `len` bytes from byte offset `start` on, and returns without waiting for them. They are passed to the
    /// `receiver`, in order and in parts of any length, which may begin before this returns. `again`: a read of these bytes is
    /// late, and this one is a second attempt alongside it.
    fn start(
        &self,
        start: u64,
        len: u64,
        again: bool,
        receiver: Box<dyn ReadReceiver>,
    ) -> StartedRead;
}

/// Receives the bytes of one read, on a thread of the source. No method blocks for long.
pub trait ReadReceiver: Send {
    /// Bytes from this offset on, which follow those before. `Break` means that the read may end: no more bytes are needed.
    fn arrived(&mut self, start: u64, bytes: &[u8]) -> ControlFlow<()>;

    /// The read is delayed because the server refuses requests for the moment, or fails: fewer at a time may do better.
    fn delayed(&mut self);

    /// The last call, with the error if the read failed. A receiver that is dropped without it counts as failed.
    fn ended(self: Box<Self>, outcome: io::Result<()>);
}

/// Whether bytes of some source need a request: it has concurrent reads.
pub(crate) fn any_concurrent(sources: &[Arc<dyn Source>]) -> bool {
    sources.iter().any(|source| source.concurrent().is_some())
}

/// A read that was started. Dropping it ends the read, if it can be ended: its receiver gets no bytes soon after.
pub struct StartedRead(#[expect(dead_code, reason = "dropped for its effect")] Box<dyn Send>);

impl StartedRead {
    /// A read that ends when this value is dropped.
    pub fn new(handle: impl Send + 'static) -> Self {
        Self(Box::new(handle))
    }
}

impl fmt::Debug for StartedRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartedRead").finish_non_exhaustive()
    }
}
