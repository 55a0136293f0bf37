//! The logical bytes of a tensor from the first to the last, as many at a time as the caller wants.
//!
//! A tensor that is inflated, gathered or verified is passed chunk by chunk to a callback. To compare two such tensors in step,
//! each is read by a thread of its own, a few chunks ahead.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};

use crate::base::error::{Error, ErrorKind, Result};
use crate::read::tensor::Tensor;

use super::tensor_bytes::{ByteAccess, TensorBytes};

/// Tensors of at most this many bytes are read at once: a thread would cost more than it saves.
const AT_ONCE: u64 = 1 << 20;

/// Chunks that a thread is ahead of its reader.
// one is compared and one is ready; more would only take memory
const CHUNKS_AHEAD: usize = 2;

/// Reads the bytes of one tensor.
pub(super) struct ByteReader<'s, 'c> {
    bytes: ReaderBytes<'s, 'c>,
    /// Bytes that were read.
    done: u64,
}

enum ReaderBytes<'s, 'c> {
    Direct(TensorBytes<'c>),
    AtOnce(Vec<u8>),
    Thread(ChunkReader<'s>),
}

/// The chunks that a thread reads.
struct ChunkReader<'s> {
    chunks: Receiver<Vec<u8>>,
    current: Vec<u8>,
    /// Bytes of `current` that were read.
    at: usize,
    thread: Option<ScopedJoinHandle<'s, Result<()>>>,
}

impl<'s, 'c> ByteReader<'s, 'c> {
    pub(super) fn new(tensor: &TensorBytes<'c>, scope: &'s Scope<'s, '_>) -> Result<Self>
    where
        'c: 's,
    {
        let bytes = match tensor.access {
            ByteAccess::Borrowed(_) | ByteAccess::Ranges => ReaderBytes::Direct(*tensor),
            ByteAccess::InOrder => {
                let of = tensor.checkpoint.tensor_of(tensor.info);
                if tensor.info.nbytes() <= AT_ONCE {
                    ReaderBytes::AtOnce(of.bytes()?.into_owned())
                } else {
                    // bounded: the faster side waits for the slower one
                    let (sender, chunks) = sync_channel(CHUNKS_AHEAD);
                    ReaderBytes::Thread(ChunkReader {
                        chunks,
                        current: Vec::new(),
                        at: 0,
                        thread: Some(scope.spawn(move || send_chunks(of, &sender))),
                    })
                }
            }
        };
        Ok(Self { bytes, done: 0 })
    }

    /// Reads the next bytes, which the tensor must have.
    pub(super) fn read(&mut self, out: &mut [u8]) -> Result<()> {
        let start = self.done;
        self.done += out.len() as u64;
        match &mut self.bytes {
            ReaderBytes::Direct(tensor) => {
                let mut room = Vec::new();
                out.copy_from_slice(tensor.range(start, out.len(), &mut room)?);
                Ok(())
            }
            ReaderBytes::AtOnce(bytes) => {
                let from = usize::try_from(start).unwrap_or(usize::MAX);
                // a member may hold fewer bytes than the header of its array states
                let found = bytes.get(from..from.saturating_add(out.len()));
                out.copy_from_slice(found.ok_or_else(too_short)?);
                Ok(())
            }
            ReaderBytes::Thread(reader) => reader.read(out),
        }
    }

    /// Ends a tensor that was read to its last byte: a checksum that does not agree is an error of its end.
    pub(super) fn finish(&mut self) -> Result<()> {
        match &mut self.bytes {
            ReaderBytes::Thread(reader) => reader.next_chunk().map(|_| ()),
            _ => Ok(()),
        }
    }
}

impl ChunkReader<'_> {
    fn read(&mut self, mut out: &mut [u8]) -> Result<()> {
        while !out.is_empty() {
            if self.at == self.current.len() && !self.next_chunk()? {
                return Err(too_short());
            }
            let n = out.len().min(self.current.len() - self.at);
            out[..n].copy_from_slice(&self.current[self.at..][..n]);
            self.at += n;
            out = &mut out[n..];
        }
        Ok(())
    }

    /// Receives a chunk; `false` at the end. An error comes from the thread.
    fn next_chunk(&mut self) -> Result<bool> {
        if let Ok(chunk) = self.chunks.recv() {
            (self.current, self.at) = (chunk, 0);
            return Ok(true);
        }
        let Some(thread) = self.thread.take() else {
            return Ok(false);
        };
        // the channel is closed before the result is known: a checksum fails after the last chunk
        match thread.join() {
            Ok(read) => read.map(|()| false),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

/// Sends the chunks of a tensor until its end, or until its reader is dropped.
fn send_chunks(tensor: Tensor<'_>, sender: &SyncSender<Vec<u8>>) -> Result<()> {
    tensor.chunks(|chunk| {
        let sent = sender.send(chunk.to_vec());
        // the reader stops at the first difference, which ends this thread too
        sent.map_err(|_| Error::new(ErrorKind::Cancelled))
    })
}

#[cold]
fn too_short() -> Error {
    Error::malformed("a tensor has fewer bytes than its header says")
}
