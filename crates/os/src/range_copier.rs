//! Copies from file to file whose bytes do not pass through the memory of the process.
//!
//! Where both offsets have the same place within a page, `copy_file_range(2)` lets the files share extents (XFS, Btrfs), or copies page by
//! page. Elsewhere, and between file systems, pages of the page cache are moved to a pipe and written from there: one copy in
//! place of two, in pieces that are longer than `copy_file_range` makes, whose pipe has 16 pages.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::copy_file_range;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

/// Bytes of a page, or of its largest part that files share.
const PAGE: u64 = 4096;

/// Bytes that the pipe is made to hold: twice a piece, since a piece that begins inside of a page needs a page more.
const PIPE: usize = 512 << 10;

/// Bytes of a piece that goes through the pipe, at a multiple of them in the new file: its pages are then written whole, and as large
/// pages where the file system has such.
const PIECE: u64 = 256 << 10;

/// Calls after which a signal that interrupts each of them is an error: a file system may answer so for ever.
const INTERRUPTED: usize = 64;

/// Repeats a call that a signal has interrupted.
fn repeated<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    for _ in 0..INTERRUPTED {
        match call() {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
    call()
}

/// Bytes of a file, and their place in another one.
#[derive(Clone, Copy, Debug)]
pub struct CopiedRange<'f> {
    /// The file that has the bytes.
    pub from: BorrowedFd<'f>,
    /// Offset of the first byte in `from`.
    pub start: u64,
    /// Offset of the first byte in the other file.
    pub at: u64,
    /// Number of bytes.
    pub len: u64,
}

/// Copies ranges of files within the system, one after the other.
///
/// ```
/// use std::io::{Read, Seek, Write};
/// use std::os::fd::AsFd;
/// use anamnesis_os::range_copier::{CopiedRange, RangeCopier};
///
/// let (mut from, mut to) = (tempfile::tempfile()?, tempfile::tempfile()?);
/// from.write_all(&[7; 100])?;
/// let range = CopiedRange { from: from.as_fd(), start: 10, at: 0, len: 50 };
/// let copied = RangeCopier::new().copy(range, to.as_fd())?;
/// let mut bytes = Vec::new();
/// to.rewind()?;
/// to.read_to_end(&mut bytes)?;
/// assert!(copied <= 50 && bytes == vec![7; copied as usize]);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct RangeCopier {
    pipe: Option<CopyPipe>,
}

/// A pipe, empty between two copies.
#[derive(Debug)]
struct CopyPipe {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl CopyPipe {
    fn new() -> io::Result<Self> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        // a user with many pipes has short ones, which take more calls
        let _ = fcntl_setpipe_size(&writer, PIPE);
        Ok(Self { reader, writer })
    }
}

impl RangeCopier {
    /// A copier without a pipe, which it makes when it needs one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Copies the first bytes of a range to `to`, and returns how many: at most 256 KiB where they go through the pipe. 0 means that `from`
    /// ends there, or that the system copies no bytes of such a file.
    ///
    /// # Errors
    ///
    /// Errors of `from` and of `to`, and of the system where it cannot copy between these files: the caller reads and writes the bytes, and
    /// learns which file has failed.
    pub fn copy(&mut self, range: CopiedRange<'_>, to: BorrowedFd<'_>) -> io::Result<u64> {
        if range.start % PAGE == range.at % PAGE {
            let (mut start, mut at) = (range.start, range.at);
            let len = usize::try_from(range.len).unwrap_or(usize::MAX);
            let copied =
                repeated(|| copy_file_range(range.from, Some(&mut start), to, Some(&mut at), len));
            match copied {
                Ok(copied) if copied > 0 => return Ok(copied as u64),
                // a full disk; everything else is tried through the pipe, also between file systems
                Err(e @ (Errno::NOSPC | Errno::DQUOT)) => {
                    return Err(e.into());
                }
                _ => {}
            }
        }
        self.copy_through_pipe(range, to)
    }

    fn copy_through_pipe(&mut self, range: CopiedRange<'_>, to: BorrowedFd<'_>) -> io::Result<u64> {
        let CopiedRange {
            from,
            mut start,
            at,
            len,
        } = range;
        // taken, so that a pipe which an error leaves with bytes is closed
        let pipe = match self.pipe.take() {
            Some(pipe) => pipe,
            None => CopyPipe::new()?,
        };
        let len = len.min(PIECE - at % PIECE);
        let len = usize::try_from(len).expect("at most a piece");
        let flags = SpliceFlags::empty();
        let mut left = repeated(|| splice(from, Some(&mut start), &pipe.writer, None, len, flags))?;
        let mut end = at;
        while left > 0 {
            let written = repeated(|| splice(&pipe.reader, None, to, Some(&mut end), left, flags));
            match written {
                Ok(written) if written > 0 => left -= written,
                // bytes that have arrived count; the next call meets the error again
                Ok(_) | Err(_) if end > at => return Ok(end - at),
                Ok(_) => return Ok(0),
                Err(e) => return Err(e.into()),
            }
        }
        self.pipe = Some(pipe);
        Ok(end - at)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Seek, Write};
    use std::os::fd::AsFd;

    use super::*;

    /// Bytes that tell where they are from.
    fn pattern(len: usize) -> Vec<u8> {
        let byte = |n: usize| (n ^ n >> 8 ^ n >> 16).to_le_bytes()[0];
        (0..len).map(byte).collect()
    }

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn content(mut file: &File) -> Vec<u8> {
        let mut bytes = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn bytes_arrive_from_and_at_any_offset() {
        let source = pattern(1_500_000);
        let from = file(&source);
        let mut copier = RangeCopier::new();
        for (start, at) in [
            (0, 0),
            (8, 0),
            (0, 8),
            (4096, 8192),
            (4104, 12_296),
            (3, 700_001),
        ] {
            for len in [1, 4096, 100_000, 1_300_000] {
                let to = file(&vec![0xee; 2_100_000]);
                let mut done = 0;
                while done < len {
                    let range = CopiedRange {
                        from: from.as_fd(),
                        start: start + done,
                        at: at + done,
                        len: len - done,
                    };
                    let copied = copier.copy(range, to.as_fd()).unwrap();
                    assert!(copied > 0 && copied <= len - done);
                    done += copied;
                }
                let [start, at, len] = [start, at, len].map(|n| usize::try_from(n).unwrap());
                let found = content(&to);
                assert!(
                    found[at..at + len] == source[start..start + len],
                    "{start} {at} {len}"
                );
                let others = found[..at].iter().chain(&found[at + len..]);
                assert!(
                    others.eq(vec![0xee; 2_100_000 - len].iter()),
                    "{start} {at} {len}"
                );
            }
        }
    }

    #[test]
    fn the_end_of_the_source_is_the_end_of_the_copy() {
        let (from, to) = (file(&pattern(10_000)), file(&[]));
        let mut copier = RangeCopier::new();
        for (start, at) in [(8, 0), (4096, 0)] {
            let mut done = 0;
            loop {
                let range = CopiedRange {
                    from: from.as_fd(),
                    start: start + done,
                    at: at + done,
                    len: 1 << 20,
                };
                match copier.copy(range, to.as_fd()).unwrap() {
                    0 => break,
                    copied => done += copied,
                }
            }
            assert_eq!(start + done, 10_000);
        }
    }

    #[test]
    fn a_file_that_cannot_be_written_is_an_error_and_later_copies_are_right() {
        let source = pattern(300_000);
        let from = file(&source);
        let (reader, _writer) = std::io::pipe().unwrap();
        let mut copier = RangeCopier::new();
        let range = |start| CopiedRange {
            from: from.as_fd(),
            start,
            at: 0,
            len: 1000,
        };
        for start in [0, 8] {
            assert!(copier.copy(range(start), reader.as_fd()).is_err());
            // nothing of what did not arrive is in the pipe
            let to = file(&[]);
            let copied = copier.copy(range(9), to.as_fd()).unwrap();
            let copied = usize::try_from(copied).unwrap();
            assert!(content(&to) == source[9..9 + copied]);
        }
    }
}
