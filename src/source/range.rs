//! A run of a source's bytes as a buffered reader, and its content when deflated.

use std::io::{self, BufRead, Read};

use flate2::bufread::DeflateDecoder;

use super::{Source, read_exact_at};

const BUFFER: usize = 64 << 10;
/// How far ahead of the reader bytes are announced: files are opened with the advice to expect no
/// order, so without this each piece would be waited for alone.
const AHEAD: u64 = 4 << 20;

/// Bytes `start..end` of a source, one after the other.
pub(crate) struct RangeReader<'s> {
    source: &'s dyn Source,
    /// Offset of the next byte that is not in the buffer.
    next: u64,
    end: u64,
    /// Up to here the bytes have been announced.
    announced: u64,
    buffer: Vec<u8>,
    used: usize,
}

impl<'s> RangeReader<'s> {
    pub(crate) fn new(source: &'s dyn Source, start: u64, len: u64) -> Self {
        Self {
            source,
            next: start,
            end: start.saturating_add(len),
            announced: start,
            buffer: Vec::new(),
            used: 0,
        }
    }

    /// Fills `out` from the source, and announces what follows.
    fn pull(&mut self, out: &mut [u8]) -> io::Result<()> {
        let len = out.len() as u64;
        if self.next.saturating_add(AHEAD / 2) >= self.announced && self.announced < self.end {
            let to = self.next.saturating_add(len.max(AHEAD)).min(self.end);
            self.source
                .will_need(self.announced, to.saturating_sub(self.announced));
            self.announced = self.announced.max(to);
        }
        read_exact_at(self.source, self.next, out)?;
        self.next += len;
        Ok(())
    }
}

impl Read for RangeReader<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.used == self.buffer.len() && out.len() >= BUFFER {
            let n = usize::try_from(self.end - self.next)
                .unwrap_or(usize::MAX)
                .min(out.len());
            self.pull(&mut out[..n])?;
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
            let mut buffer = std::mem::take(&mut self.buffer);
            buffer.resize(n, 0);
            self.pull(&mut buffer)?;
            self.buffer = buffer;
        }
        Ok(&self.buffer[self.used..])
    }

    fn consume(&mut self, n: usize) {
        self.used = (self.used + n).min(self.buffer.len());
    }
}

/// The content of a stored or deflated run of bytes.
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
