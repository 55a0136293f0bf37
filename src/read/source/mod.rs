//! Sources of bytes: one file per kind, all behind the trait [`Source`].
//!
//! A source is a sequence of bytes that is read at offsets. The formats read headers from it through a cursor; tensors
//! and loaders read payloads from it directly. No other part of the library opens, reads or maps a file.
//!
//! | source | bytes come from | made by |
//! |---|---|---|
//! | [`MmapSource`] | positioned reads for headers, a read-only map for borrowed tensors | [`Checkpoint::open`] (default) |
//! | [`FileSource`] | positioned reads | [`OpenOptions::mmap`]`(false)` |
//! | [`MemorySource`] | a buffer in memory | [`Checkpoint::from_bytes`] |
//! | [`ReaderSource`] | any `Read + Seek` | [`Checkpoint::from_reader`] |
//! | [`StreamSource`] | any `Read`, forward only | [`Checkpoint::from_stream`] |
//! | a file at a URL | requests for ranges, with the feature `remote` | [`Checkpoint::open`] |
//! | [`FnSource`] | a closure, such as an HTTP range request | [`Checkpoint::from_source`] |
//!
//! `docs/extending.md` tells how to add a source to this table. A program can also implement [`Source`] for a type of its
//! own and pass it to [`Checkpoint::from_source`].
//!
//! [`Checkpoint::open`]: crate::Checkpoint::open
//! [`Checkpoint::from_bytes`]: crate::Checkpoint::from_bytes
//! [`Checkpoint::from_reader`]: crate::Checkpoint::from_reader
//! [`Checkpoint::from_stream`]: crate::Checkpoint::from_stream
//! [`Checkpoint::from_source`]: crate::Checkpoint::from_source
//! [`OpenOptions::mmap`]: crate::OpenOptions::mmap

mod checked;
mod concurrent;
pub(crate) mod cursor;
mod file;
pub(crate) mod file_system;
pub(crate) mod files;
mod function;
#[cfg(all(test, shuttle))]
mod interleavings;
mod local_files;
mod mapped_bytes;
mod memory;
#[cfg(feature = "mmap")]
mod mmap;
#[cfg(target_os = "linux")]
mod nowait;
pub(crate) mod ollama;
pub(crate) mod open_files;
pub(crate) mod range;
pub(crate) mod range_reader;
mod reader;
pub(crate) mod regular;
#[cfg(feature = "remote")]
pub(crate) mod remote;
pub(crate) mod snapshot;
#[cfg(unix)]
mod source_fd;
mod stream;
mod unmapped;

use std::io;

use zeropool::DividedBuffer;

pub use crate::base::quote::shown_path;
pub(crate) use checked::CheckedSource;
pub(crate) use concurrent::any_concurrent;
pub use concurrent::{ConcurrentReads, ReadReceiver, StartedRead};
pub use file::FileSource;
pub(crate) use file::SMALL;
pub use files::is_url;
pub use function::FnSource;
pub use mapped_bytes::MappedBytes;
pub use memory::MemorySource;
#[cfg(feature = "mmap")]
pub use mmap::MmapSource;
pub use reader::ReaderSource;
pub use snapshot::{cache_warning, local_path};
#[cfg(unix)]
pub use source_fd::SourceFd;
pub use stream::StreamSource;
pub(crate) use unmapped::UnmappedSource;

/// A sequence of bytes that is read at offsets.
///
/// # Implementing
///
/// [`len`](Source::len) and [`read_at`](Source::read_at) are required. All other methods have defaults that are correct
/// for a source whose length is known and which keeps nothing in memory:
///
/// | a source that … | also implements |
/// |---|---|
/// | holds all of its bytes in memory | [`in_memory`](Source::in_memory) |
/// | can make its bytes addressable, as a file map does | [`mapped`](Source::mapped), [`map_private`](Source::map_private) |
/// | learns its length only at its end | [`finish`](Source::finish) |
/// | cannot read a byte twice | [`forward_only`](Source::forward_only) |
/// | can prefetch or drop cached bytes | [`will_need`](Source::will_need), [`dont_need`](Source::dont_need) |
/// | needs a round trip per read | [`ready`](Source::ready), [`scattered`](Source::scattered), [`settled`](Source::settled), [`held`](Source::held) |
/// | can have many reads under way at a time | [`concurrent`](Source::concurrent) |
/// | is a file of the operating system | [`as_fd`](Source::as_fd) |
///
/// All methods take `&self` and may be called from several threads at once: loaders read tensors in parallel. A source
/// with a read position of its own needs a lock (see [`ReaderSource`]). The bytes must not change while the source is in
/// use; a second read of a range must return the bytes of the first one.
///
/// A source that breaks the rules ends in an error or in other bytes, never in a panic or a hang: its length is the first
/// one that it stated, a result longer than the buffer is an error, [`in_memory`](Source::in_memory) and
/// [`mapped`](Source::mapped) are ignored where their length is another, and a call that returns
/// [`io::ErrorKind::Interrupted`] is repeated 65 536 times.
///
/// ```
/// use std::io;
/// use anamnesis::{Checkpoint, source::Source};
///
/// /// A file stored as chunks of equal length, as an object store keeps large uploads.
/// struct Chunked {
///     chunks: Vec<Vec<u8>>,
///     chunk_len: usize,
/// }
///
/// impl Source for Chunked {
///     fn len(&self) -> Option<u64> {
///         Some(self.chunks.iter().map(|chunk| chunk.len() as u64).sum())
///     }
///
///     fn read_at(&self, start: u64, buf: &mut [u8]) -> io::Result<usize> {
///         let mut done = 0;
///         while done < buf.len() {
///             let at = start as usize + done;
///             let Some(chunk) = self.chunks.get(at / self.chunk_len) else { break };
///             let Some(rest) = chunk.get(at % self.chunk_len..).filter(|r| !r.is_empty()) else { break };
///             let n = rest.len().min(buf.len() - done);
///             buf[done..done + n].copy_from_slice(&rest[..n]);
///             done += n;
///         }
///         Ok(done) // less than `buf.len()` only at the end
///     }
/// }
///
/// let file = std::fs::read("fixtures/safetensors/all_dtypes.safetensors")?;
/// let chunks = file.chunks(100).map(<[u8]>::to_vec).collect();
/// let checkpoint = Checkpoint::from_source(Chunked { chunks, chunk_len: 100 })?;
/// assert_eq!(checkpoint.catalog().tensors().len(), 19);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[expect(
    clippy::len_without_is_empty,
    reason = "the length may not be known yet"
)]
pub trait Source: Send + Sync {
    /// Length in bytes; `None` while it is not known (a stream whose end has not been read).
    ///
    /// Once `Some`, the value must not change. Formats compare every count and offset of a header with it.
    fn len(&self) -> Option<u64>;

    /// Reads into `buf` from byte offset `start` and returns the number of bytes read.
    ///
    /// The result is less than `buf.len()` only if the source ends there, and 0 for a `start` at or after the end. So
    /// an implementation repeats short reads of the system; callers do not. [`read_exact_at`] turns a short result into
    /// an error.
    ///
    /// # Errors
    /// Errors of the system or of the underlying reader. A [`forward_only`](Source::forward_only) source returns
    /// [`io::ErrorKind::Unsupported`] for a `start` whose bytes it no longer holds. A `start` after the end is not an
    /// error.
    fn read_at(&self, start: u64, buf: &mut [u8]) -> io::Result<usize>;

    /// All bytes of the source, if they are in memory already. Must cost nothing.
    ///
    /// Headers are then parsed in place, without copies. A source that would have to read or map bytes first returns
    /// `None` here and serves them from [`mapped`](Source::mapped): a map costs more than it saves for the few kilobytes
    /// of a header.
    fn in_memory(&self) -> Option<&[u8]> {
        None
    }

    /// All bytes of the source as a slice, if they are addressable or can be made so.
    ///
    /// Called when a tensor is borrowed instead of copied. Touching the slice may read from the device. The slice must
    /// have exactly [`len`](Source::len) bytes.
    fn mapped(&self) -> Option<&[u8]> {
        self.in_memory()
    }

    /// A map of all bytes for one user that may write to them, if the source offers it: what is written is seen through this
    /// value alone. See [`OpenOptions::private`](crate::OpenOptions::private).
    fn map_private(&self) -> Option<DividedBuffer> {
        None
    }

    /// Hints that `len` bytes from `start` on will be read soon, so that the system can prefetch them.
    ///
    /// Never fails and never blocks for the data; the range may reach beyond the end.
    fn will_need(&self, start: u64, len: u64) {
        let _ = (start, len);
    }

    /// Hints that `len` bytes from `start` on will not be read again, so that the system can free the cached pages.
    ///
    /// Never fails; the bytes must stay readable.
    fn dont_need(&self, start: u64, len: u64) {
        let _ = (start, len);
    }

    /// Hints that these ranges (offset and length) will be read, in any order: where each read is a round trip, all of
    /// them are requested at once. The ranges may reach beyond the end.
    ///
    /// Never fails. A source that has no use for them does not iterate over them, so that they cost nothing.
    fn scattered(&self, ranges: &mut dyn Iterator<Item = (u64, u64)>) {
        let _ = ranges;
    }

    /// Hints that the header has been read: what was prefetched beyond it can be given up.
    ///
    /// Never fails; the bytes must stay readable.
    fn settled(&self) {}

    /// Bytes of memory that hold what was read ahead, of this source and of others at the same place. They are charged to the
    /// limit on memory while a header is read.
    fn held(&self) -> u64 {
        0
    }

    /// Waits until the source can be read, if it was opened without waiting.
    ///
    /// Called once per file, before anything else, so that a failure is not mistaken for an empty file.
    ///
    /// # Errors
    /// The errors of opening. The default never fails.
    fn ready(&self) -> io::Result<()> {
        Ok(())
    }

    /// Whether bytes that have been read cannot be read again.
    ///
    /// Tensors of such a source are listed and not loaded.
    fn forward_only(&self) -> bool {
        false
    }

    /// Reads to the end if the length is not known yet, and returns the length.
    ///
    /// Called once per file, after its header has been read, to verify that every tensor lies inside the file.
    ///
    /// # Errors
    /// The errors of [`read_at`](Source::read_at). The default fails if [`len`](Source::len) is `None`.
    fn finish(&self) -> io::Result<u64> {
        self.len()
            .ok_or_else(|| io::Error::other("a source of unknown length must implement `finish`"))
    }

    /// The reads of this source that are started and end later, if it has such: loads then have many of them under way.
    fn concurrent(&self) -> Option<&dyn ConcurrentReads> {
        None
    }

    /// The file descriptor, if offset `n` of the source is offset `n` of that file.
    ///
    /// Loaders then read through it (`pread`, io_uring, `O_DIRECT`) instead of [`read_at`](Source::read_at). A source may close
    /// its file while no such value exists.
    #[cfg(unix)]
    fn as_fd(&self) -> Option<SourceFd<'_>> {
        None
    }
}

/// Reads exactly `buf.len()` bytes at byte offset `start`.
///
/// # Errors
/// The errors of [`Source::read_at`], and [`io::ErrorKind::UnexpectedEof`] if the source ends before `buf` is full.
pub fn read_exact_at(source: &dyn Source, start: u64, buf: &mut [u8]) -> io::Result<()> {
    // a short result is the end, by the contract of `read_at`
    let n = not_longer(source.read_at(start, buf)?, buf)?;
    if n < buf.len() {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!(
                "unexpected end of file at byte {}: a read of {} bytes at byte {start} returned {n}",
                start.saturating_add(n as u64),
                buf.len()
            ),
        ));
    }
    Ok(())
}

/// How often a call that was interrupted is repeated before it is an error. Signals interrupt a read a few times; a reader
/// that returns nothing else ends within milliseconds, and a read that waits for a minute outlasts a profiler's
/// thousand signals per second.
pub(crate) const MAX_INTERRUPTIONS: u32 = 1 << 16;

/// Repeats a call while it returns [`io::ErrorKind::Interrupted`], at most [`MAX_INTERRUPTIONS`] times. The error that
/// follows is of another kind, because `std` repeats interrupted reads without end.
pub(crate) fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 0..MAX_INTERRUPTIONS {
        match call() {
            // a signal handler without SA_RESTART interrupts reads; the bytes before it were delivered and counted
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
    Err(too_often_interrupted())
}

/// The error that follows [`MAX_INTERRUPTIONS`].
pub(crate) fn too_often_interrupted() -> io::Error {
    io::Error::other(format!(
        "the read was interrupted {MAX_INTERRUPTIONS} times in succession"
    ))
}

/// Checks the result of a read into `buf`.
fn not_longer(n: usize, buf: &[u8]) -> io::Result<usize> {
    // a source of the caller may do so, and a larger number would be an index out of bounds
    if n > buf.len() {
        return Err(io::Error::other(format!(
            "the source returned {n} bytes for a read of {}",
            buf.len()
        )));
    }
    Ok(n)
}

/// Calls `read` until `buf` is full or it returns 0, and returns the number of bytes read. Retries interrupted calls.
///
/// [`Source::read_at`] promises a short read only at the end, while system calls and readers may return less at any time.
pub(crate) fn fill(
    mut buf: &mut [u8],
    mut read: impl FnMut(&mut [u8]) -> io::Result<usize>,
) -> io::Result<usize> {
    let mut total = 0;
    while !buf.is_empty() {
        let n = not_longer(uninterrupted(|| read(buf))?, buf)?;
        if n == 0 {
            break;
        }
        total += n;
        buf = &mut buf[n..];
    }
    Ok(total)
}

/// Copies from `bytes` at `start` and returns the number of bytes copied: `read_at` of the sources in memory.
fn copy_at(bytes: &[u8], start: u64, buf: &mut [u8]) -> usize {
    // an offset at or after the end reads nothing, as `pread` does
    let from = usize::try_from(start).map_or(bytes.len(), |s| s.min(bytes.len()));
    let n = buf.len().min(bytes.len() - from);
    buf[..n].copy_from_slice(&bytes[from..from + n]);
    n
}
