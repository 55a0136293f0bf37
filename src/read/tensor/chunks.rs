//! Reads a chunked tensor: its chunks one after the other where that is C order, else all of them into memory.

use crate::base::error::{Error, Result};
use crate::read::catalog::{TensorChunk, quote};

use super::Tensor;
use super::stream::{CHUNK, Events, StreamEvent};

impl Tensor<'_> {
    /// Streams the values of the whole tensor. The chunks are ordered by their offsets.
    pub(super) fn stream_chunks(&self, chunks: &[TensorChunk], each: Events<'_>) -> Result<()> {
        let shape = &self.info.shape;
        // rows that were distributed over processes: the usual case, in bounded memory
        let is_split_by_rows = chunks
            .iter()
            .all(|chunk| chunk.part.shape.get(1..) == shape.get(1..));
        if is_split_by_rows {
            return chunks.iter().try_for_each(|chunk| {
                let part = self.checkpoint.tensor_of(&chunk.part);
                part.in_file(part.stream(each))
            });
        }
        let mut whole = self.allocate(self.info.nbytes())?;
        for chunk in chunks {
            let rows = self.chunk_rows(chunk)?;
            let mut done = 0;
            let part = self.checkpoint.tensor_of(&chunk.part);
            let read = part.stream(&mut |event| match event {
                StreamEvent::Stored(bytes) => each(StreamEvent::Stored(bytes)),
                StreamEvent::Values(piece) => {
                    rows.copy(done, piece, &mut whole);
                    done += piece.len();
                    each(StreamEvent::Stored(piece.len()))
                }
            });
            part.in_file(read)?;
        }
        whole
            .chunks(CHUNK)
            .try_for_each(|piece| each(StreamEvent::Values(piece)))
    }

    /// Where the rows of a chunk are in the whole tensor.
    fn chunk_rows(&self, chunk: &TensorChunk) -> Result<ChunkRows> {
        let invalid = || {
            let what = format!("tensor {} has an invalid chunk", quote(&self.info.name));
            Error::malformed(what)
        };
        let item = self.info.encoding.item_bytes().ok_or_else(invalid)?;
        let mut stride = usize::try_from(item).map_err(|_| invalid())?;
        let (mut len, mut base, mut dims) = (stride, 0, Vec::new());
        let mut contiguous = true;
        let sizes = self.info.shape.iter().zip(chunk.part.shape.iter());
        for ((&whole, &own), &offset) in sizes.zip(chunk.offsets.iter()).rev() {
            let [whole, own, offset] = [whole, own, offset].map(usize::try_from);
            let (Ok(whole), Ok(own), Ok(offset)) = (whole, own, offset) else {
                return Err(invalid());
            };
            base += offset * stride;
            if contiguous {
                len *= own;
            } else {
                dims.push((own, stride));
            }
            // the dimensions inside of one that is split are whole, so they and its own indices are one run of bytes
            contiguous &= own == whole;
            stride *= whole;
        }
        Ok(ChunkRows { len, base, dims })
    }
}

/// The rows of a chunk in the bytes of the whole tensor.
struct ChunkRows {
    /// Bytes of a row.
    len: usize,
    /// Offset of the first row.
    base: usize,
    /// Size and stride in bytes of the dimensions that number the rows, innermost first.
    dims: Vec<(usize, usize)>,
}

impl ChunkRows {
    /// Copies a piece of the chunk's values, which begins `at` bytes after its first value.
    fn copy(&self, mut at: usize, mut piece: &[u8], whole: &mut [u8]) {
        while !piece.is_empty() {
            let (mut row, inside) = (at / self.len, at % self.len);
            let mut to = self.base + inside;
            for &(size, stride) in &self.dims {
                to += row % size * stride;
                row /= size;
            }
            let (first, rest) = piece.split_at(piece.len().min(self.len - inside));
            whole[to..to + first.len()].copy_from_slice(first);
            at += first.len();
            piece = rest;
        }
    }
}
