//! Uploads in parts: objects of known lengths that are written about in order, in bounded memory.
//!
//! The parts of all objects are one sequence. A part gets its buffer when a byte of it arrives, after all parts in front of it
//! have got theirs, and loses it when the bucket has the part. Together the buffers take a bounded number of bytes; a writer
//! whose bytes lie behind them waits. It does not wait for ever while the bytes in front of it arrive: the first part that is
//! not full always has a buffer, or gets one when a part under way has been sent.

mod abort;
mod complete;
mod layout;
mod send;

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use object_store::MultipartId;
use object_store::multipart::PartId;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::bucket::Bucket;
use crate::error::{Error, ErrorKind, Result};
use crate::options::RemoteOptions;
use crate::stats::RequestCounters;

use layout::{ObjectParts, UploadPart};

pub use abort::UploadLeftovers;

/// How often a waiting writer looks whether it is to wait on.
// short enough for an interrupt, and rare enough to cost nothing
const LOOK: Duration = Duration::from_millis(50);

/// An object that is uploaded.
#[derive(Clone, Debug)]
pub struct NewObject {
    /// Its path in the store.
    pub path: String,
    /// Its first bytes, which are not written by [`Uploads::write`].
    pub head: Vec<u8>,
    /// Bytes of all of it.
    pub len: u64,
    /// Whether it replaces an object, so that it is not removed when a later one fails.
    pub replaces: bool,
}

/// Objects that are uploaded in parts. They appear when they are [completed](Self::complete). Dropping it
/// [aborts](Self::abort) the uploads, unless they are [kept](Self::keep).
///
/// ```no_run
/// use anamnesis_remote::{NewObject, OpenedUrl, Store};
///
/// let OpenedUrl::Store(store) = Store::open("s3://bucket/model/")? else { unreachable!("only the hub has a cache") };
/// let path = "s3://bucket/model/a.bin".to_owned();
/// let object = NewObject { path, head: b"head".to_vec(), len: 8, replaces: false };
/// let uploads = store.uploads(vec![object])?;
/// uploads.write(0, 4, b"tail", &mut |_| true)?;
/// uploads.flush(&mut |_| true)?;
/// uploads.complete(0..1, &mut |_| true)?;
/// uploads.keep();
/// # Ok::<(), anamnesis_remote::Error>(())
/// ```
pub struct Uploads(Arc<SharedUploads>);

struct SharedUploads {
    bucket: Arc<Bucket>,
    counters: RequestCounters,
    /// Bytes that buffers take together, unless one part is longer.
    memory: u64,
    objects: Vec<ObjectUpload>,
    parts: Vec<ObjectParts>,
    state: Mutex<UploadState>,
    /// Notified when a part has been sent or has failed.
    changed: Condvar,
}

/// One object.
struct ObjectUpload {
    path: String,
    key: String,
    head: Vec<u8>,
    replaces: bool,
    /// The upload's id, once the bucket has answered.
    id: watch::Sender<Option<Result<MultipartId>>>,
}

/// The state of the objects' uploads.
#[derive(Default)]
struct UploadState {
    /// The part that gets a buffer next.
    next: usize,
    /// Parts that are being filled.
    open: BTreeMap<usize, OpenPart>,
    /// Memory of parts that have been sent. With what is buffered it is no more than was buffered at most.
    free: Vec<Vec<u8>>,
    /// Parts under way.
    sending: usize,
    buffered: u64,
    most_buffered: u64,
    /// Parts that the bucket has, by object.
    sent: Vec<Vec<Option<PartId>>>,
    completion: Vec<CompletionState>,
    tasks: Vec<JoinHandle<()>>,
    /// Requests that start an upload, by object.
    starts: Vec<(usize, JoinHandle<()>)>,
    failure: Option<Error>,
    /// Whether the uploads were kept or aborted.
    ended: bool,
}

/// Whether an object is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CompletionState {
    #[default]
    Open,
    /// The request has been sent, and its outcome is not known.
    Requested,
    Complete,
}

/// A part that is being filled.
struct OpenPart {
    bytes: Vec<u8>,
    filled: u64,
}

impl Uploads {
    pub(crate) fn new(
        bucket: Arc<Bucket>,
        options: &RemoteOptions,
        counters: RequestCounters,
        objects: Vec<(String, NewObject)>,
    ) -> Result<Self> {
        let parts = layout::cut(
            objects.iter().map(|(_, object)| object.len),
            options.part.max(1),
        )?;
        let is_whole = |(_, object): &(String, NewObject)| object.head.len() as u64 <= object.len;
        if !objects.iter().all(is_whole) {
            let what = "the first bytes of an object are more than all of it";
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        let state = UploadState {
            sent: parts.iter().map(|parts| vec![None; parts.count]).collect(),
            completion: vec![CompletionState::default(); parts.len()],
            ..UploadState::default()
        };
        let objects = objects.into_iter().map(|(key, object)| ObjectUpload {
            path: object.path,
            key,
            head: object.head,
            replaces: object.replaces,
            id: watch::Sender::new(None),
        });
        Ok(Self(Arc::new(SharedUploads {
            bucket,
            counters,
            memory: options.upload_memory,
            objects: objects.collect(),
            parts,
            state: Mutex::new(state),
            changed: Condvar::new(),
        })))
    }

    /// Writes bytes of the object with index `object`, from its byte `start` on. Each byte behind the head is written once, by
    /// any thread. Bytes that are far behind those that were written before wait for the ones between; `wait` is called meanwhile, with
    /// whether parts are under way, and ends the wait by returning false.
    ///
    /// # Errors
    /// A part that could not be uploaded; [`Cancelled`](ErrorKind::Cancelled) if `wait` has returned false, after which some of
    /// the bytes may have been written; [`Invalid`](ErrorKind::Invalid) for bytes that the object does not have, or of a part that has been sent.
    pub fn write(
        &self,
        object: usize,
        mut start: u64,
        mut bytes: &[u8],
        wait: &mut dyn FnMut(bool) -> bool,
    ) -> Result<()> {
        let invalid = || {
            let what = "the object has no such bytes, or they were written before";
            Error::new(ErrorKind::Invalid, what)
        };
        let parts = self.0.parts.get(object).ok_or_else(invalid)?;
        let end = start.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > parts.len) {
            return Err(invalid());
        }
        // a tile may end one part and begin the next
        while !bytes.is_empty() {
            let number = parts.part_of(start);
            let UploadPart {
                start: first, len, ..
            } = layout::part(&self.0.parts, number).ok_or_else(invalid)?;
            let offset = usize::try_from(start - first).expect("less than a part");
            let mut state = self.0.wait_until(wait, |state| {
                self.0.open_to(state, number)?;
                Ok(state.next > number)
            })?;
            // absent if it was sent: its bytes were written before
            let part = state.open.get_mut(&number).ok_or_else(invalid)?;
            let n = bytes.len().min(part.bytes.len() - offset);
            part.bytes[offset..offset + n].copy_from_slice(&bytes[..n]);
            part.filled += n as u64;
            if part.filled >= len {
                self.0.send(&mut state, number);
            }
            start += n as u64;
            bytes = &bytes[n..];
        }
        Ok(())
    }

    /// Waits until the bucket has all parts of all objects.
    ///
    /// # Errors
    /// The errors of [`write`](Self::write), and one if bytes have not been written.
    pub fn flush(&self, wait: &mut dyn FnMut(bool) -> bool) -> Result<()> {
        let last = self.0.parts.last().map(|last| last.first + last.count - 1);
        let state = self.0.wait_until(wait, |state| {
            if let Some(last) = last {
                // objects that are heads only
                self.0.open_to(state, last)?;
            }
            // a part that is open and not full waits for bytes that do not arrive any more
            Ok(state.sending == 0)
        })?;
        let is_sent = |parts: &Vec<Option<PartId>>| parts.iter().all(Option::is_some);
        if state.sent.iter().all(is_sent) {
            Ok(())
        } else {
            let what = "not all bytes of the objects have been written";
            Err(Error::new(ErrorKind::Invalid, what))
        }
    }

    /// The most bytes that were buffered at a time.
    pub fn most_buffered(&self) -> u64 {
        self.0.lock().most_buffered
    }

    /// Leaves the objects as they are: [`abort`](Self::abort) and dropping have no effect from here on.
    pub fn keep(&self) {
        self.0.lock().ended = true;
    }
}

impl std::fmt::Debug for Uploads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Uploads")
            .field("objects", &self.0.objects.len())
            .finish_non_exhaustive()
    }
}

impl Drop for Uploads {
    fn drop(&mut self) {
        // a destructor cannot report what stays open
        self.abort();
    }
}

impl SharedUploads {
    fn lock(&self) -> MutexGuard<'_, UploadState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `reached` returns true.
    fn wait_until(
        &self,
        wait: &mut dyn FnMut(bool) -> bool,
        mut reached: impl FnMut(&mut UploadState) -> Result<bool>,
    ) -> Result<MutexGuard<'_, UploadState>> {
        loop {
            let mut state = self.lock();
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            if state.ended {
                return Err(Error::cancelled());
            }
            if reached(&mut state)? {
                return Ok(state);
            }
            let waited = self.changed.wait_timeout(state, LOOK);
            let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
            let under_way = state.sending > 0;
            // the last transfer may have been the one that is waited for
            if !under_way && state.failure.is_none() && reached(&mut state)? {
                return Ok(state);
            }
            // without the lock: it is the caller's
            drop(state);
            if !wait(under_way) {
                return Err(Error::cancelled());
            }
        }
    }
}
