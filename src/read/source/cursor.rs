//! A bounds-checked reader over a [`Source`]: the only access that formats have to a file.
//!
//! Bytes in memory are borrowed. Other sources are read through one window, which doubles while reading goes forward.
//! A header read overshoots what the format needs by at most one window of [`WINDOW_MAX`] bytes.
//!
//! Every length that a file gives is compared with [`Cursor::remaining`] before it is used, so a format cannot read
//! behind the end, and cannot allocate for bytes that do not exist.

use crate::base::error::{Error, Result};
use crate::base::limits::{Budget, TemporaryCharge};

use super::Source;

/// The first window, and the smallest: one page, so that a small header costs one small read.
const WINDOW_MIN: usize = 4 << 10;
/// A window is cut at the end of a page only if it keeps this many bytes: enough for a zip local header and an NPY header.
const WINDOW_CUT_MIN: usize = 512;
/// The largest window. It fits in the second-level cache, and bounds the overshoot of a header read.
const WINDOW_MAX: usize = 64 << 10;

pub(crate) struct Cursor<'s> {
    source: &'s dyn Source,
    /// All bytes of the source, if they are in memory; then the window is not used.
    memory: Option<&'s [u8]>,
    /// Length of the source, or `u64::MAX` while it is not known.
    end: u64,
    pos: u64,
    /// The first `filled` bytes of the window are the source's bytes at `window_at`.
    window: Vec<u8>,
    filled: usize,
    window_at: u64,
    /// Length of the next forward read; doubles from `WINDOW_MIN` to `WINDOW_MAX`.
    step: usize,
    budget: &'s Budget,
    /// The charge of a window beyond [`WINDOW_MAX`], released with the cursor.
    charge: TemporaryCharge<'s>,
    /// The charge of what the source holds, released with the cursor.
    held: TemporaryCharge<'s>,
}

impl<'s> Cursor<'s> {
    pub(crate) fn new(source: &'s dyn Source, budget: &'s Budget) -> Self {
        Self {
            source,
            // only bytes that are in memory already: mapping a file for its header costs 8 µs and a fault per page,
            // more than the copy through a window (experiments 1 and 29)
            memory: source.in_memory(),
            end: source.len().unwrap_or(u64::MAX),
            pos: 0,
            window: Vec::new(),
            filled: 0,
            window_at: 0,
            step: WINDOW_MIN,
            budget,
            charge: budget.nothing(),
            held: budget.nothing(),
        }
    }

    /// Copies up to `first.len()` bytes from the current position without moving, and returns their number: less only at
    /// the end of the source.
    pub(crate) fn peek_into(&mut self, first: &mut [u8]) -> Result<usize> {
        let available = |cursor: &Self| {
            first
                .len()
                .min(usize::try_from(cursor.remaining()).unwrap_or(usize::MAX))
        };
        let mut n = available(self);
        // the second `peek` below returns an error that is not about the end
        if self.peek(n, "the first bytes").is_err() {
            // the read found the end of a source whose length was unknown
            n = available(self);
        }
        first[..n].copy_from_slice(&self.peek(n, "the first bytes")?[..n]);
        Ok(n)
    }

    #[inline]
    pub(crate) fn budget(&self) -> &'s Budget {
        self.budget
    }

    #[inline]
    pub(crate) fn source(&self) -> &'s dyn Source {
        self.source
    }

    #[inline]
    pub(crate) fn pos(&self) -> u64 {
        self.pos
    }

    /// Length of the source; `None` for a stream whose end has not been seen.
    #[inline]
    pub(crate) fn len(&self) -> Option<u64> {
        (self.end != u64::MAX).then_some(self.end)
    }

    /// Bytes from the position to the end; nearly `u64::MAX` while the end is not known.
    #[inline]
    pub(crate) fn remaining(&self) -> u64 {
        self.end.saturating_sub(self.pos)
    }

    /// Moves to `pos`. A position after the end becomes an error at the next read.
    #[inline]
    pub(crate) fn seek(&mut self, pos: u64) {
        // reading elsewhere begins again with a small window: most jumps lead to a header of a few bytes
        if pos < self.pos || pos - self.pos > WINDOW_MAX as u64 {
            self.step = WINDOW_MIN;
        }
        self.pos = pos;
    }

    /// Moves forward by `n` bytes, which must exist.
    #[inline]
    pub(crate) fn skip(&mut self, n: u64, what: &str) -> Result<()> {
        if n > self.remaining() {
            return Err(self.truncated(n, what));
        }
        self.pos += n;
        Ok(())
    }

    /// The error for `what`, of which `needed` bytes should follow here.
    #[cold]
    pub(crate) fn truncated(&self, needed: u64, what: &str) -> Error {
        let left = self.remaining();
        Error::malformed(format!(
            "{what} needs {needed} bytes, but the file ends after {left}"
        ))
        .at(self.pos)
        .of_truncated_file()
    }

    /// A malformed-file error at the current position.
    #[cold]
    pub(crate) fn malformed(&self, what: impl Into<String>) -> Error {
        Error::malformed(what).at(self.pos)
    }

    /// Sets the next window to `len` bytes (within its bounds), so that a header of known length takes one read.
    #[inline]
    pub(crate) fn expect(&mut self, len: u64) {
        self.step = usize::try_from(len)
            .unwrap_or(WINDOW_MAX)
            .clamp(WINDOW_MIN, WINDOW_MAX);
    }

    /// The next bytes, without moving: at least `n`, and all that follow in the window or in memory.
    #[inline]
    pub(crate) fn peek(&mut self, n: usize, what: &str) -> Result<&[u8]> {
        if n as u64 > self.remaining() {
            return Err(self.truncated(n as u64, what));
        }
        if let Some(bytes) = self.memory {
            return Ok(&bytes[usize::try_from(self.pos).expect("a position in memory")..]);
        }
        let have = self.buffered();
        if have < n {
            self.refill(n, what)?;
        }
        let from = self.filled - self.buffered();
        Ok(&self.window[from..self.filled])
    }

    /// Bytes of the window from `pos` on.
    #[inline]
    fn buffered(&self) -> usize {
        let end = self.window_at + self.filled as u64;
        if self.pos < self.window_at || self.pos > end {
            return 0;
        }
        usize::try_from(end - self.pos).expect("inside the window")
    }

    /// Reads until the window holds `n` bytes from `pos` on.
    #[cold]
    fn refill(&mut self, n: usize, what: &str) -> Result<()> {
        let have = self.buffered();
        let sequential = have > 0 || self.pos == self.window_at + self.filled as u64;
        // A window ends at the end of a page, because the disk reads whole pages; unless that would leave a window
        // of a few bytes, because each further read is a request to a source on the network.
        // wrapping: the remainder is the same, and a caller's source may state a length of nearly 2⁶⁴
        let window_end = self.pos.wrapping_add(self.step as u64);
        let partial_page =
            usize::try_from(window_end % WINDOW_MIN as u64).expect("less than a page");
        let step = if self.step - partial_page >= WINDOW_CUT_MIN {
            self.step - partial_page
        } else {
            self.step
        };
        let mut want = n.max(step);
        if sequential {
            // 64 KiB was the fastest of 16 to 256 KiB: it amortises the system call and is still in the second-level
            // cache when it is parsed (experiment 3)
            self.step = (self.step * 2).min(WINDOW_MAX);
        }
        if want as u64 > self.remaining() {
            want = usize::try_from(self.remaining()).expect("less than `want`, which is a usize");
        }
        // windows of normal size are not charged: there is one, and the file does not decide its size
        // the bytes that are not consumed move to the front, so that `take` can return them with the next ones as one
        // slice
        self.window.copy_within(self.filled - have..self.filled, 0);
        self.window_at = self.pos;
        self.filled = have;
        if self.window.len() < want {
            // grown once, never cleared: zeroing bytes that the read overwrites cost 12 % for GGUF (experiment 4), so
            // `filled` counts the valid ones instead
            self.grow_window(want, what)?;
        }
        const HELD: &str = "what is read ahead of remote files";
        if self.held.set(self.source.held(), HELD).is_err() {
            // without what is ahead, the header may fit
            self.source.settled();
            self.held.set(self.source.held(), HELD)?;
        }
        let into = &mut self.window[have..want];
        let read = self.source.read_at(self.window_at + have as u64, into);
        let got = have + read.map_err(|e| Error::from(e).at(self.pos))?;
        self.filled = got;
        if got < want {
            // the end of a stream, or of a file that became shorter after its length was read
            // from here on, every count is compared with the real end
            self.end = self.window_at + got as u64;
        }
        if got < n {
            return Err(self.truncated(n as u64, what));
        }
        Ok(())
    }

    /// Makes the window `len` bytes long. Windows of normal size are not charged: there is one, and the file does not
    /// decide its size.
    fn grow_window(&mut self, len: usize, what: &str) -> Result<()> {
        let charged = |len: usize| if len > WINDOW_MAX { len as u64 } else { 0 };
        let more = charged(len).saturating_sub(charged(self.window.capacity()));
        self.charge.grow(more, what).map_err(|e| e.at(self.pos))?;
        self.window.reserve_exact(len - self.window.len());
        self.window.resize(len, 0);
        Ok(())
    }

    /// Reads the next `n` bytes.
    #[inline]
    pub(crate) fn take(&mut self, n: usize, what: &str) -> Result<&[u8]> {
        self.peek(n, what)?;
        self.pos += n as u64;
        // `peek` left the bytes in memory, or in the window just before the new position
        if let Some(bytes) = self.memory {
            let to = usize::try_from(self.pos).expect("a position in memory");
            return Ok(&bytes[to - n..to]);
        }
        let to = usize::try_from(self.pos - self.window_at).expect("inside the window");
        Ok(&self.window[to - n..to])
    }

    /// Reads `n` bytes, where `n` comes from the file. Bytes that must be copied are charged to the budget.
    pub(crate) fn take_long(&mut self, n: u64, what: &str) -> Result<&[u8]> {
        if n > self.remaining() {
            return Err(self.truncated(n, what));
        }
        // compared with the end first, so that no length makes the window grow beyond the bytes that exist
        let n = usize::try_from(n).map_err(|_| self.truncated(n, what))?;
        self.take(n, what)
    }

    /// Reads `N` bytes.
    #[inline]
    pub(crate) fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        Ok(*self
            .take(N, what)?
            .first_chunk()
            .expect("`take` returns N bytes"))
    }

    #[inline]
    pub(crate) fn u8(&mut self, what: &str) -> Result<u8> {
        Ok(self.array::<1>(what)?[0])
    }

    /// All of the source, if it is in memory.
    #[inline]
    pub(crate) fn in_memory(&self) -> Option<&'s [u8]> {
        self.memory
    }
}
