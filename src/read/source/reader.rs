//! Sources made of a seekable reader.

use std::io::{self, Read, Seek, SeekFrom};
use std::sync::PoisonError;

use super::{Source, fill};
use crate::base::sync::PoisonMutex;

/// Any `Read + Seek`.
///
/// A reader has one position, so concurrent reads wait for each other. The position is remembered: a read that continues
/// where the last one ended does not seek.
pub struct ReaderSource<R> {
    inner: PoisonMutex<SeekingReader<R>>,
    len: u64,
}

struct SeekingReader<R> {
    reader: R,
    /// The reader's position; `None` after a failed call, which may have left it anywhere.
    pos: Option<u64>,
}

impl<R: Read + Seek + Send> ReaderSource<R> {
    /// A source of all bytes of the reader, from offset 0 to its end, whatever its present position.
    ///
    /// # Errors
    /// If the reader cannot seek to its end.
    pub fn new(mut reader: R) -> io::Result<Self> {
        let len = reader.seek(SeekFrom::End(0))?;
        Ok(Self {
            inner: PoisonMutex::new(SeekingReader {
                reader,
                pos: Some(len),
            }),
            len,
        })
    }
}

impl<R: Read + Seek + Send> Source for ReaderSource<R> {
    fn len(&self) -> Option<u64> {
        Some(self.len)
    }

    fn read_at(&self, start: u64, buf: &mut [u8]) -> io::Result<usize> {
        // A poisoned lock is safe to use: `pos` is cleared before each call of the reader, so a reader that panicked
        // leaves `None` behind and the next read seeks.
        let mut state = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if state.pos != Some(start) {
            state.pos = None;
            state.reader.seek(SeekFrom::Start(start))?;
        }
        state.pos = None;
        let n = fill(buf, |buf| state.reader.read(buf))?;
        state.pos = start.checked_add(n as u64);
        Ok(n)
    }
}
