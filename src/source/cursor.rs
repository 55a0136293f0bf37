//! A checked reader over a [`Source`]: the only way formats see bytes.
//!
//! Of bytes in memory it lends slices; other sources it reads through one window that grows while
//! reading goes forward. Nothing is ever read that was not asked for by more than the window, which
//! is at most [`WINDOW_MAX`].

use crate::error::{Error, Result};
use crate::limits::Budget;

use super::Source;

/// The first window, and the smallest: one page, so that a small header costs one small read.
const WINDOW_MIN: usize = 4 << 10;
/// What a window that ends with a page must hold at least: a local header and an NPY header.
const WINDOW_LEAST: usize = 512;
/// The largest window. It stays in the second-level cache and bounds what a header read overshoots.
const WINDOW_MAX: usize = 64 << 10;

pub(crate) struct Cursor<'s> {
    source: &'s dyn Source,
    memory: Option<&'s [u8]>,
    /// Length of the source, or `u64::MAX` while it is not known.
    end: u64,
    pos: u64,
    /// The first `filled` bytes are those of the source from `window_at` on; unused where it is in memory.
    window: Vec<u8>,
    filled: usize,
    window_at: u64,
    /// How much the next forward read takes; doubles from `WINDOW_MIN` to `WINDOW_MAX`.
    step: usize,
    budget: &'s Budget,
}

impl<'s> Cursor<'s> {
    pub(crate) fn new(source: &'s dyn Source, budget: &'s Budget) -> Self {
        Self {
            source,
            memory: source.in_memory(),
            end: source.len().unwrap_or(u64::MAX),
            pos: 0,
            window: Vec::new(),
            filled: 0,
            window_at: 0,
            step: WINDOW_MIN,
            budget,
        }
    }

    /// Copies the first bytes, as many as there are, and leaves them at hand: what begins here is read from them.
    pub(crate) fn begin(&mut self, first: &mut [u8]) -> Result<usize> {
        let there = |cursor: &Self| {
            first
                .len()
                .min(usize::try_from(cursor.remaining()).unwrap_or(usize::MAX))
        };
        let mut n = there(self);
        if self.peek(n, "the first bytes").is_err() {
            // a source without a length has learned where it ends
            n = there(self);
        }
        first[..n].copy_from_slice(&self.peek(n, "the first bytes")?[..n]);
        Ok(n)
    }

    pub(crate) fn budget(&self) -> &'s Budget {
        self.budget
    }

    pub(crate) fn source(&self) -> &'s dyn Source {
        self.source
    }

    pub(crate) fn pos(&self) -> u64 {
        self.pos
    }

    /// Length of the source; `None` for a stream whose end has not been seen.
    pub(crate) fn len(&self) -> Option<u64> {
        (self.end != u64::MAX).then_some(self.end)
    }

    /// Bytes left; huge while the end is not known.
    pub(crate) fn remaining(&self) -> u64 {
        self.end.saturating_sub(self.pos)
    }

    /// Moves to `pos`. Going past the end is an error when something is read there.
    pub(crate) fn seek(&mut self, pos: u64) {
        if pos < self.pos || pos - self.pos > WINDOW_MAX as u64 {
            self.step = WINDOW_MIN;
        }
        self.pos = pos;
    }

    /// Moves forward by `n` bytes, which must exist.
    #[inline]
    pub(crate) fn skip(&mut self, n: u64, what: &str) -> Result<()> {
        if n > self.remaining() {
            return Err(self.ended(n, what));
        }
        self.pos += n;
        Ok(())
    }

    /// The error for something that should be here and is not.
    #[cold]
    pub(crate) fn ended(&self, needed: u64, what: &str) -> Error {
        let left = self.remaining();
        Error::malformed(format!(
            "{what} needs {needed} bytes and the file ends after {left}"
        ))
        .at(self.pos)
    }

    /// A malformed-file error at the current position.
    #[cold]
    pub(crate) fn malformed(&self, what: impl Into<String>) -> Error {
        Error::malformed(what).at(self.pos)
    }

    /// Says that `len` bytes from here will be read, so that they are read in one go.
    pub(crate) fn expect(&mut self, len: u64) {
        self.step = usize::try_from(len)
            .unwrap_or(WINDOW_MAX)
            .clamp(WINDOW_MIN, WINDOW_MAX);
    }

    /// The next bytes without moving: at least `n`, and as many more as are at hand.
    #[inline]
    pub(crate) fn peek(&mut self, n: usize, what: &str) -> Result<&[u8]> {
        if n as u64 > self.remaining() {
            return Err(self.ended(n as u64, what));
        }
        if let Some(bytes) = self.memory {
            return Ok(&bytes[usize::try_from(self.pos).expect("a position in memory")..]);
        }
        let have = self.at_hand();
        if have < n {
            self.refill(n, what)?;
        }
        let from = self.filled - self.at_hand();
        Ok(&self.window[from..self.filled])
    }

    /// Bytes of the window that lie at and after `pos`.
    #[inline]
    fn at_hand(&self) -> usize {
        let end = self.window_at + self.filled as u64;
        if self.pos < self.window_at || self.pos > end {
            return 0;
        }
        usize::try_from(end - self.pos).expect("inside the window")
    }

    #[cold]
    fn refill(&mut self, n: usize, what: &str) -> Result<()> {
        let have = self.at_hand();
        let going_on = have > 0 || self.pos == self.window_at + self.filled as u64;
        // Windows end where pages end, since half a page more is a whole page for the disk; unless
        // next to nothing would be left, since one more read is one more request for the network.
        let past = usize::try_from((self.pos + self.step as u64) % WINDOW_MIN as u64)
            .expect("less than a page");
        let step = if self.step - past >= WINDOW_LEAST {
            self.step - past
        } else {
            self.step
        };
        let mut want = n.max(step);
        if going_on {
            self.step = (self.step * 2).min(WINDOW_MAX);
        }
        if want as u64 > self.remaining() {
            want = usize::try_from(self.remaining()).expect("less than an addressable number");
        }
        if n > WINDOW_MAX {
            self.budget
                .memory(n as u64, what)
                .map_err(|e| e.at(self.pos))?;
        }
        self.window.copy_within(self.filled - have..self.filled, 0);
        self.window_at = self.pos;
        self.filled = have;
        if self.window.len() < want {
            self.window.resize(want, 0);
        }
        let into = &mut self.window[have..want];
        let read = self.source.read_at(self.window_at + have as u64, into);
        let got = have + read.map_err(|e| Error::from(e).at(self.pos))?;
        self.filled = got;
        if got < want {
            // The end of a stream, or a file that shrank since it was measured.
            self.end = self.window_at + got as u64;
        }
        if got < n {
            return Err(self.ended(n as u64, what));
        }
        Ok(())
    }

    /// Takes the next `n` bytes.
    #[inline]
    pub(crate) fn take(&mut self, n: usize, what: &str) -> Result<&[u8]> {
        self.peek(n, what)?;
        self.pos += n as u64;
        // peek has them: in memory, or in the window just before the new position
        if let Some(bytes) = self.memory {
            let to = usize::try_from(self.pos).expect("a position in memory");
            return Ok(&bytes[to - n..to]);
        }
        let to = usize::try_from(self.pos - self.window_at).expect("inside the window");
        Ok(&self.window[to - n..to])
    }

    /// Takes `n` bytes whose number a file decides, charging them where they must be copied.
    pub(crate) fn take_long(&mut self, n: u64, what: &str) -> Result<&[u8]> {
        if n > self.remaining() {
            return Err(self.ended(n, what));
        }
        let n = usize::try_from(n).map_err(|_| self.ended(n, what))?;
        self.take(n, what)
    }

    #[inline]
    pub(crate) fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        Ok(*self
            .take(N, what)?
            .first_chunk()
            .expect("take gives what it was asked for"))
    }

    pub(crate) fn u8(&mut self, what: &str) -> Result<u8> {
        Ok(self.array::<1>(what)?[0])
    }

    /// All of the source, if it is in memory.
    pub(crate) fn in_memory(&self) -> Option<&'s [u8]> {
        self.memory
    }
}
