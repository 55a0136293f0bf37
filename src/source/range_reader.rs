//! A byte range of a source as a buffered reader, and the inflated content of such a range.

use std::io::{self, BufRead, Read};

use flate2::bufread::DeflateDecoder;

use super::{Source, read_exact_at};

const BUFFER: usize = 64 << 10;

/// How far ahead of the read position prefetching is requested. Files are opened with `POSIX_FADV_RANDOM`, which
/// turns the read-ahead of the kernel off; without these hints each buffer would wait for the device.
const READ_AHEAD: u64 = 4 << 20;

/// Reads the bytes `start..end` of a source in order.
pub(crate) struct RangeReader<'s> {
    source: &'s dyn Source,
    /// Offset of the first byte that has not been read into the buffer.
    next: u64,
    end: u64,
    /// End of the range for which [`Source::will_need`] has been called.
    prefetched: u64,
    buffer: Vec<u8>,
    /// Bytes of the buffer that have been consumed.
    used: usize,
}

impl<'s> RangeReader<'s> {
    pub(crate) fn new(source: &'s dyn Source, start: u64, len: u64) -> Self {
        Self {
            source,
            next: start,
            end: start.saturating_add(len),
            prefetched: start,
            buffer: Vec::new(),
            used: 0,
        }
    }

    /// Fills `out` from the source and prefetches the bytes that follow. Hints are given for half of the read-ahead
    /// distance at a time, so that there are few of them.
    fn read_source(&mut self, out: &mut [u8]) -> io::Result<()> {
        let len = out.len() as u64;
        // half a distance of hysteresis: one hint per 2 MiB instead of one per buffer
        if self.next.saturating_add(READ_AHEAD / 2) >= self.prefetched && self.prefetched < self.end
        {
            let to = self.next.saturating_add(len.max(READ_AHEAD)).min(self.end);
            self.source
                .will_need(self.prefetched, to.saturating_sub(self.prefetched));
            self.prefetched = self.prefetched.max(to);
        }
        read_exact_at(self.source, self.next, out)?;
        self.next += len;
        Ok(())
    }
}

impl Read for RangeReader<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        // a request as long as the buffer is read straight into the caller's memory, which saves a copy
        if self.used == self.buffer.len() && out.len() >= BUFFER {
            let n = usize::try_from(self.end - self.next)
                .unwrap_or(usize::MAX)
                .min(out.len());
            self.read_source(&mut out[..n])?;
            return Ok(n);
        }
        let have = self.fill_buf()?;
        let n = have.len().min(out.len());
        out[..n].copy_from_slice(&have[..n]);
        self.consume(n);
        Ok(n)
    }
}

impl BufRead for RangeReader<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.used == self.buffer.len() {
            let left = self.end - self.next;
            let n = usize::try_from(left).unwrap_or(BUFFER).min(BUFFER);
            self.used = 0;
            // taken out because `read_source` borrows all of `self`; a read that fails leaves an empty buffer
            let mut buffer = std::mem::take(&mut self.buffer);
            buffer.resize(n, 0);
            self.read_source(&mut buffer)?;
            self.buffer = buffer;
        }
        Ok(&self.buffer[self.used..])
    }

    fn consume(&mut self, n: usize) {
        self.used = (self.used + n).min(self.buffer.len());
    }
}

/// The content of a byte range that is stored or deflated.
pub(crate) enum Content<'s> {
    Stored(RangeReader<'s>),
    Deflated(Box<DeflateDecoder<RangeReader<'s>>>),
}

impl<'s> Content<'s> {
    pub(crate) fn new(bytes: RangeReader<'s>, deflated: bool) -> Self {
        if deflated {
            Self::Deflated(Box::new(DeflateDecoder::new(bytes)))
        } else {
            Self::Stored(bytes)
        }
    }
}

impl Read for Content<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Stored(r) => r.read(out),
            Self::Deflated(r) => r.read(out),
        }
    }
}
