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
    Latin1(Box<Latin1Reader<Content<'s>>>),
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
            Self::Latin1(r) => r.read(out),
        }
    }
}

/// Reads the bytes that the characters U+0000 to U+00FF of text in UTF-8 stand for.
pub(crate) struct Latin1Reader<R> {
    text: R,
    buffer: Vec<u8>,
    /// The bytes of the buffer that are text and have not been decoded.
    unread: std::ops::Range<usize>,
    /// The first byte of a character of two bytes whose second byte has not been read; 0 if there is none.
    lead: u8,
}

impl<R: Read> Latin1Reader<R> {
    pub(crate) fn new(text: R) -> Self {
        Self {
            text,
            buffer: vec![0; BUFFER],
            unread: 0..0,
            lead: 0,
        }
    }
}

impl<R: Read> Read for Latin1Reader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut written = 0;
        // a buffer may end within a character, and a result of 0 bytes would mean the end of the text
        while written == 0 && !out.is_empty() {
            if self.unread.is_empty() {
                self.unread = 0..self.text.read(&mut self.buffer)?;
            }
            if self.unread.is_empty() {
                // a text must not end within a character
                return match self.lead {
                    0 => Ok(0),
                    _ => Err(io::ErrorKind::UnexpectedEof.into()),
                };
            }
            for &byte in &self.buffer[self.unread.clone()] {
                if written == out.len() {
                    break;
                }
                self.unread.start += 1;
                match (self.lead, byte) {
                    (0, 0..0x80) => out[written] = byte,
                    // the first bytes of U+0080 to U+00FF
                    (0, 0xc2 | 0xc3) => {
                        self.lead = byte;
                        continue;
                    }
                    (0xc2 | 0xc3, 0x80..0xc0) => {
                        out[written] = (self.lead & 3) << 6 | byte & 0x3f;
                        self.lead = 0;
                    }
                    _ => {
                        let what = "the text is not Latin-1";
                        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
                    }
                }
                written += 1;
            }
        }
        Ok(written)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Read};

    use super::Latin1Reader;

    /// Returns one byte per call, so that characters are split.
    struct Trickle<R>(R);

    impl<R: Read> Read for Trickle<R> {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            let n = out.len().min(1);
            self.0.read(&mut out[..n])
        }
    }

    #[test]
    fn latin1_text_decodes_to_every_byte() {
        let bytes: Vec<u8> = (0..=255).collect();
        let text: String = bytes.iter().map(|&b| char::from(b)).collect();
        let mut whole = Vec::new();
        let text = text.as_bytes();
        Latin1Reader::new(text).read_to_end(&mut whole).unwrap();
        assert_eq!(whole, bytes);
        let mut split = Vec::new();
        let mut reader = Latin1Reader::new(Trickle(Cursor::new(text)));
        reader.read_to_end(&mut split).unwrap();
        assert_eq!(split, bytes);
        for invalid in ["Ā".as_bytes(), b"\x80", b"\xc2", b"\xc2\x41", b"\xc1\x81"] {
            let read = Latin1Reader::new(invalid).read_to_end(&mut Vec::new());
            assert!(read.is_err(), "{invalid:?}");
        }
    }
}
