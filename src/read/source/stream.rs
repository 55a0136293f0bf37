//! Forward-only sources.

use std::fs::File;
use std::io::{self, Read};
use std::sync::PoisonError;

use anamnesis_os::pipe_reader::PipeReader;

use super::{Source, fill};
use crate::base::progress::CancelToken;
use crate::base::sync::PoisonMutex;

/// Bytes behind the read position that can be read again. The cursor goes back by at most one window, and the format
/// probe by the first bytes of the file.
const RETAINED: usize = 512 << 10;

/// Bytes per read behind the header: a pipe holds no more, and most small files end within the first.
const DISCARDED: usize = 64 << 10;

/// Any `Read`, such as standard input or a pipe. Forward only.
///
/// The header is read in file order. The bytes behind it are read once and discarded, to learn the length and to verify
/// that the file is complete. Tensor bytes that have been discarded cannot be read: such a checkpoint can be listed, not
/// loaded.
pub struct StreamSource<R>(PoisonMutex<StreamState<R>>);

struct StreamState<R> {
    reader: R,
    /// The bytes read last, at most `2 * RETAINED` of them. `tail_at` is the offset of the first.
    tail: Vec<u8>,
    tail_at: u64,
    ended: bool,
}

impl<R: Read + Send> StreamSource<R> {
    /// A source of the bytes from the reader's present position to its end.
    pub fn new(reader: R) -> Self {
        Self(PoisonMutex::new(StreamState {
            reader,
            tail: Vec::new(),
            tail_at: 0,
            ended: false,
        }))
    }
}

impl StreamSource<Box<dyn Read + Send>> {
    /// A source of the bytes of a pipe, or of another file without a length, for as long as the token is not cancelled.
    pub(crate) fn of_pipe(file: File, cancel: Option<&CancelToken>) -> Self {
        let token = cancel.cloned();
        let is_wanted = move || token.as_ref().is_none_or(|token| !token.is_cancelled());
        Self::new(Box::new(PipeReader::new(file, is_wanted)))
    }
}

impl<R: Read> StreamState<R> {
    fn end(&self) -> u64 {
        self.tail_at + self.tail.len() as u64
    }

    /// Reads up to `want` more bytes into the tail, and discards its older half when it is full.
    ///
    /// Discarding half of it at once costs one copy per `RETAINED` bytes, where a sliding window would copy at each read.
    fn read_more(&mut self, want: usize) -> io::Result<()> {
        if self.tail.len() >= 2 * RETAINED {
            let discarded = self.tail.len() - RETAINED;
            self.tail.drain(..discarded);
            self.tail_at += discarded as u64;
        }
        // at least a page per call, so that a parser that takes byte by byte does not call the reader for each
        let old = self.tail.len();
        let want = want.clamp(4 << 10, RETAINED);
        self.tail.resize(old + want, 0);
        let read = fill(&mut self.tail[old..], |buf| self.reader.read(buf));
        let n = *read.as_ref().unwrap_or(&0);
        self.tail.truncate(old + n);
        // `fill` repeats short reads, so fewer bytes than requested are the end
        self.ended |= read? < want;
        Ok(())
    }
}

impl<R: Read + Send> Source for StreamSource<R> {
    fn len(&self) -> Option<u64> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.ended.then(|| state.end())
    }

    fn read_at(&self, start: u64, buf: &mut [u8]) -> io::Result<usize> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut done = 0;
        while done < buf.len() {
            let at = start.saturating_add(done as u64);
            if at < state.tail_at {
                return Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    "a stream cannot be read backwards; save it to a file and open the file",
                ));
            }
            let have = state.end().saturating_sub(at);
            if have > 0 {
                let from =
                    state.tail.len() - usize::try_from(have).expect("the tail is addressable");
                let n = (buf.len() - done).min(state.tail.len() - from);
                buf[done..done + n].copy_from_slice(&state.tail[from..from + n]);
                done += n;
            } else if state.ended {
                break;
            } else {
                let missing = at
                    .saturating_sub(state.end())
                    .saturating_add((buf.len() - done) as u64);
                state.read_more(usize::try_from(missing).unwrap_or(usize::MAX))?;
            }
        }
        Ok(done)
    }

    fn forward_only(&self) -> bool {
        true
    }

    fn finish(&self) -> io::Result<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // the bytes behind the header pass through the tail and are dropped: they show the length and nothing else
        while !state.ended {
            state.read_more(DISCARDED)?;
        }
        Ok(state.end())
    }
}
