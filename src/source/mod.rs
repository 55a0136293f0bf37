//! Where bytes come from. One file per kind; all behind [`Source`].
//!
//! | kind | bytes come from | made by |
//! |---|---|---|
//! | [`Mapped`] | positioned reads, and a map where slices are lent | `Checkpoint::open` (default) |
//! | [`FileSource`] | positioned reads | `OpenOptions::map(false)` |
//! | [`Memory`] | a buffer you own | `Checkpoint::from_bytes` |
//! | [`Seekable`] | any `Read + Seek` | `Checkpoint::from_reader` |
//! | [`Stream`] | any `Read`, forward only | `Checkpoint::from_stream` |
//! | [`Func`] | a closure, such as an HTTP range request | `Checkpoint::from_source(Func::new(…))` |

pub(crate) mod cursor;
mod file;
mod func;
#[cfg(feature = "mmap")]
mod mapped;
mod memory;
pub(crate) mod range;
#[cfg(target_os = "linux")]
mod resident;
mod seekable;
#[cfg(target_os = "linux")]
mod soon;
mod stream;

use std::io;

pub use file::FileSource;
pub(crate) use file::SMALL;
pub use func::Func;
#[cfg(feature = "mmap")]
pub use mapped::Mapped;
pub use memory::Memory;
#[cfg(target_os = "linux")]
pub(crate) use resident::resident;
pub use seekable::Seekable;
pub use stream::Stream;

/// Bytes at offsets: the one door to I/O.
#[expect(
    clippy::len_without_is_empty,
    reason = "a length that may not be known yet"
)]
pub trait Source: Send + Sync {
    /// Length in bytes; `None` while it is not known (a stream whose end has not been seen).
    fn len(&self) -> Option<u64>;

    /// Fills `buf` from `start` on. Returns how many bytes there were: fewer than asked only at the end.
    ///
    /// # Errors
    /// Whatever the system or the caller's reader reports; for a [`Stream`] also a start that has
    /// been passed and is no longer kept.
    fn read_at(&self, start: u64, buf: &mut [u8]) -> io::Result<usize>;

    /// All bytes at once, where they already are in memory.
    fn in_memory(&self) -> Option<&[u8]> {
        None
    }

    /// All bytes at once, where they are addressable or can be made so.
    fn mapped(&self) -> Option<&[u8]> {
        self.in_memory()
    }

    /// Tells the system that these bytes are wanted soon. A hint; never an error.
    fn will_need(&self, start: u64, len: u64) {
        let _ = (start, len);
    }

    /// Tells the system that these bytes will not be wanted again: it may take their memory. A hint; never an error.
    fn passed(&self, start: u64, len: u64) {
        let _ = (start, len);
    }

    /// `true` if bytes that were passed cannot be read again.
    fn forward_only(&self) -> bool {
        false
    }

    /// Reads to the end to learn the length, if it is not known yet.
    ///
    /// # Errors
    /// As [`read_at`](Source::read_at).
    fn finish(&self) -> io::Result<u64> {
        self.len()
            .ok_or_else(|| io::Error::other("a source without a length must implement `finish`"))
    }

    /// The descriptor behind the bytes, for loaders that read by it.
    #[cfg(unix)]
    fn as_fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }
}

/// Reads exactly `buf.len()` bytes at `start`.
///
/// # Errors
/// `UnexpectedEof` if the source ends before.
pub fn read_exact_at(source: &dyn Source, start: u64, buf: &mut [u8]) -> io::Result<()> {
    let n = source.read_at(start, buf)?;
    if n < buf.len() {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!(
                "the source ended at byte {} where {} were expected",
                start.saturating_add(n as u64),
                buf.len()
            ),
        ));
    }
    Ok(())
}

/// Calls `read` until `buf` is full or it returns 0. Retries interrupted calls.
fn fill(
    mut buf: &mut [u8],
    mut read: impl FnMut(&mut [u8]) -> io::Result<usize>,
) -> io::Result<usize> {
    let mut total = 0;
    while !buf.is_empty() {
        match read(buf) {
            Ok(0) => break,
            Ok(n) => {
                total += n;
                buf = &mut buf[n..];
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(total)
}

/// Copies from `bytes` at `start`: how the addressable sources answer `read_at`.
fn copy_at(bytes: &[u8], start: u64, buf: &mut [u8]) -> usize {
    let from = usize::try_from(start).map_or(bytes.len(), |s| s.min(bytes.len()));
    let n = buf.len().min(bytes.len() - from);
    buf[..n].copy_from_slice(&bytes[from..from + n]);
    n
}
