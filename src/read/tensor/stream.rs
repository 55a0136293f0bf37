//! Streamed reading of one tensor: inflating, gathering, byte swapping and checksums, in bounded memory where the
//! elements are stored in C order.

use std::borrow::Cow;
use std::io::{ErrorKind, Read};

use crate::base::error::{Error, Result};
use crate::base::limits::{over, zeroed};
use crate::base::progress::CHECK_INTERVAL;
use crate::read::catalog::{Layout, Packing, quote};
use crate::read::source::range_reader::{Content, Latin1Reader, RangeReader};

use super::integrity::Checksum;
use super::{Tensor, byte_order, gather, integrity};

/// Bytes of a piece of a streamed read: small enough for the second-level cache.
pub(super) const CHUNK: usize = 256 << 10;

/// An event of a streamed read. The callback that receives it cancels the read by returning an error.
pub(super) enum StreamEvent<'b> {
    /// This many stored bytes were read or verified; their values follow later.
    Stored(usize),
    /// The next values.
    Values(&'b [u8]),
}

/// Receives the events of a streamed read.
pub(super) type Events<'e> = &'e mut dyn FnMut(StreamEvent<'_>) -> Result<()>;

impl<'c> Tensor<'c> {
    pub(super) fn allocate(&self, len: u64) -> Result<Vec<u8>> {
        let allowed = self.checkpoint.limits().tensor_bytes;
        self.within(len, allowed)?;
        let refused = || self.over(len, allowed);
        let len = usize::try_from(len).map_err(|_| refused())?;
        zeroed(len).ok_or_else(refused)
    }

    fn within(&self, needed: u64, allowed: u64) -> Result<()> {
        if needed > allowed {
            Err(self.over(needed, allowed))
        } else {
            Ok(())
        }
    }

    #[cold]
    fn over(&self, needed: u64, allowed: u64) -> Error {
        let what = format!("tensor {}", quote(&self.info.name));
        over(needed, allowed, what, "tensor_bytes")
    }

    /// Bytes that the stored elements take once inflated.
    fn span_len(&self) -> u64 {
        match self.info.packing {
            Packing::Raw => self.info.bytes.len,
            _ => gather::span(self.info).unwrap_or_else(|| self.info.nbytes()),
        }
    }

    pub(super) fn stored_span(
        &self,
        each: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<Cow<'c, [u8]>> {
        self.readable()?;
        if let Layout::Chunked(_) = self.info.layout {
            return Err(Error::unsupported(format!(
                "tensor {} is stored in chunks, which have no order in common: read its values",
                quote(&self.info.name)
            )));
        }
        if self.info.packing == Packing::Raw
            && let Some(map) = self.checkpoint.source(self.info.bytes.file).mapped()
        {
            integrity::verify(self.checkpoint, self.info)?;
            return self.slice(map).map(Cow::Borrowed);
        }
        let mut out = self.allocate(self.span_len())?;
        let (mut content, mut checksum) = self.content()?;
        for piece in out.chunks_mut(CHECK_INTERVAL) {
            self.fill(&mut content, piece)?;
            checksum.update(piece);
            each(piece.len())?;
        }
        // after the last byte, because the checksum covers the whole member; a mismatch discards what was read
        checksum.finish()?;
        Ok(Cow::Owned(out))
    }

    /// Refuses a tensor that has no elements to read.
    pub(crate) fn readable(&self) -> Result<()> {
        let name = || quote(&self.info.name);
        match &self.info.layout {
            Layout::Absent => Err(Error::unsupported(format!(
                "tensor {} was saved without data (PyTorch's meta device)",
                name()
            ))),
            Layout::Sparse(_) => Err(Error::unsupported(format!(
                "tensor {} is sparse: read its parts, or make it dense before saving",
                name()
            ))),
            _ => Ok(()),
        }
    }

    /// A reader of the stored bytes from the tensor's first byte on, and the checksum of the bytes before it.
    fn content(&self) -> Result<(Content<'c>, Checksum<'c>)> {
        integrity::verify(self.checkpoint, self.info)?;
        let bytes = self.info.bytes;
        let source = self.checkpoint.source(bytes.file);
        let mut checksum = Checksum::new(self.checkpoint, self.info, self.span_len())?;
        let packing = self.info.packing;
        let range = RangeReader::new(source, bytes.start, bytes.len);
        let mut content = Content::new(range, packing.is_deflated());
        if let Packing::Deflate { mut skip, .. } | Packing::DeflatedLatin1 { mut skip, .. } =
            packing
        {
            // deflate cannot seek: the header of the array in front of the tensor is inflated and dropped
            let mut piece = [0; 4 << 10];
            while skip > 0 {
                let n = piece.len().min(usize::try_from(skip).unwrap_or(usize::MAX));
                self.fill(&mut content, &mut piece[..n])?;
                checksum.update(&piece[..n]);
                skip -= n as u64;
            }
        }
        if packing.is_latin1() {
            content = Content::Latin1(Box::new(Latin1Reader::new(content)));
        }
        Ok((content, checksum))
    }

    fn fill(&self, content: &mut Content<'_>, out: &mut [u8]) -> Result<()> {
        content
            .read_exact(out)
            .map_err(|e| match (content, e.kind()) {
                (
                    Content::Deflated(_) | Content::Latin1(_),
                    ErrorKind::UnexpectedEof | ErrorKind::InvalidInput | ErrorKind::InvalidData,
                ) => {
                    let what = format!(
                        "tensor {} does not inflate or decode to its size: {e}",
                        quote(&self.info.name)
                    );
                    Error::malformed(what).at(self.info.bytes.start)
                }
                _ => Error::from(e).at(self.info.bytes.start),
            })
    }

    pub(super) fn stream(&self, each: Events<'_>) -> Result<()> {
        self.readable()?;
        self.bounded()?;
        if let Layout::Chunked(chunks) = &self.info.layout {
            return self.stream_chunks(chunks, each);
        }
        let swap = byte_order::swap(self.info);
        let emit = |each: Events<'_>, piece: &mut [u8]| {
            if let Some(units) = &swap {
                byte_order::reverse_numbers(piece, units);
            }
            gather::flip_signs(piece, self.info);
            each(StreamEvent::Values(piece))
        };
        if !matches!(self.info.layout, Layout::RowMajor) {
            let span = self.stored_span(&mut |bytes| each(StreamEvent::Stored(bytes)))?;
            // borrowed bytes passed no reader, so their checksum is computed here; every byte is about to be read
            // anyway
            if let Cow::Borrowed(span) = span {
                let checksum = Checksum::new(self.checkpoint, self.info, span.len() as u64)?;
                checksum.of(span, &mut |bytes| each(StreamEvent::Stored(bytes)))?;
            }
            return gather::in_order(self.info, &span, CHUNK, |piece| emit(each, piece));
        }
        let (mut content, mut checksum) = self.content()?;
        let mut left = self.info.nbytes();
        // pieces end at whole elements, because numbers are reversed piece by piece. 16 bytes, the longest plain
        // element, suits all others
        let item = swap
            .as_ref()
            .map_or(16, |units| byte_order::item_bytes(units).max(1));
        let whole = (CHUNK / item).max(1) * item;
        let mut piece = vec![0; whole.min(usize::try_from(left).unwrap_or(usize::MAX))];
        while left > 0 {
            let n = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            self.fill(&mut content, &mut piece[..n])?;
            checksum.update(&piece[..n]);
            emit(each, &mut piece[..n])?;
            left -= n as u64;
        }
        checksum.finish()
    }

    /// Refuses a tensor over [`Limits::expansion`](crate::Limits::expansion), or one that cannot be read into memory
    /// within [`Limits::tensor_bytes`](crate::Limits::tensor_bytes).
    pub(super) fn bounded(&self) -> Result<()> {
        /// Elements up to this length are never too expanded: a small file may contain a view that repeats its storage.
        const FREE: u64 = 1 << 30;
        let limits = self.checkpoint.limits();
        let stored = match &self.info.layout {
            Layout::Chunked(chunks) => chunks.iter().map(|chunk| chunk.part.bytes.len).sum(),
            _ => self.info.bytes.len,
        };
        let needed = self.info.nbytes();
        if needed > FREE.max(stored.saturating_mul(limits.expansion)) {
            let what = format!(
                "tensor {}, of {stored} stored bytes,",
                quote(&self.info.name)
            );
            let times = needed.div_ceil(stored.max(1));
            return Err(over(times, limits.expansion, what, "expansion"));
        }
        self.within(needed, limits.tensor_bytes)
    }
}
