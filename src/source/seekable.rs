use std::io::{self, Read, Seek, SeekFrom};
use std::sync::{Mutex, PoisonError};

use super::{Source, fill};

/// Any `Read + Seek`. Reads take turns; the reader's position is remembered, so that reading on
/// where the last read ended costs no seek.
pub struct Seekable<R> {
    inner: Mutex<State<R>>,
    len: u64,
}

struct State<R> {
    reader: R,
    /// Where the reader stands, unless a failed call left that open.
    pos: Option<u64>,
}

impl<R: Read + Seek + Send> Seekable<R> {
    /// Takes a reader, whatever its position, as the whole file.
    ///
    /// # Errors
    /// If the reader cannot seek to its end.
    pub fn new(mut reader: R) -> io::Result<Self> {
        let len = reader.seek(SeekFrom::End(0))?;
        Ok(Self {
            inner: Mutex::new(State {
                reader,
                pos: Some(len),
            }),
            len,
        })
    }
}

impl<R: Read + Seek + Send> Source for Seekable<R> {
    fn len(&self) -> Option<u64> {
        Some(self.len)
    }

    fn read_at(&self, start: u64, buf: &mut [u8]) -> io::Result<usize> {
        // a reader that panicked leaves no state of ours half-changed: `pos` is set before each call
        let mut state = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if state.pos != Some(start) {
            state.pos = None;
            state.reader.seek(SeekFrom::Start(start))?;
        }
        state.pos = None;
        let n = fill(buf, |buf| state.reader.read(buf))?;
        state.pos = Some(start + n as u64);
        Ok(n)
    }
}
