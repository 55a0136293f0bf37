use std::io::{self, Read};
use std::sync::{Mutex, PoisonError};

use super::{Source, fill};

/// How far behind the furthest read byte a stream still answers. The cursor re-reads at most its
/// window, and the probe the first bytes.
const KEPT: usize = 512 << 10;

/// A forward-only reader, such as standard input.
///
/// Headers are read as they come; what lies behind them is passed over once, to learn the length
/// and to see that the file is whole. Tensor bytes cannot be read again.
pub struct Stream<R>(Mutex<State<R>>);

struct State<R> {
    reader: R,
    /// The last bytes read, at most `2 * KEPT`; `tail_at` is the offset of the first.
    tail: Vec<u8>,
    tail_at: u64,
    ended: bool,
}

impl<R: Read + Send> Stream<R> {
    /// Takes the reader from where it stands.
    pub fn new(reader: R) -> Self {
        Self(Mutex::new(State {
            reader,
            tail: Vec::new(),
            tail_at: 0,
            ended: false,
        }))
    }
}

impl<R: Read> State<R> {
    fn end(&self) -> u64 {
        self.tail_at + self.tail.len() as u64
    }

    /// Reads one more piece into the tail, forgetting its older half when it grows too long.
    fn pull(&mut self, want: usize) -> io::Result<()> {
        if self.tail.len() >= 2 * KEPT {
            let gone = self.tail.len() - KEPT;
            self.tail.drain(..gone);
            self.tail_at += gone as u64;
        }
        let old = self.tail.len();
        let want = want.clamp(4 << 10, KEPT);
        self.tail.resize(old + want, 0);
        let read = fill(&mut self.tail[old..], |buf| self.reader.read(buf));
        let n = *read.as_ref().unwrap_or(&0);
        self.tail.truncate(old + n);
        self.ended |= read? < want;
        Ok(())
    }
}

impl<R: Read + Send> Source for Stream<R> {
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
                    "a stream cannot go back: save it to a file and open that",
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
                state.pull(usize::try_from(missing).unwrap_or(usize::MAX))?;
            }
        }
        Ok(done)
    }

    fn forward_only(&self) -> bool {
        true
    }

    fn finish(&self) -> io::Result<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while !state.ended {
            state.pull(KEPT)?;
        }
        Ok(state.end())
    }
}
