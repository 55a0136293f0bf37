//! Long reads, which go past the blocks.

use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;

use bytes::Bytes;

use super::stream::RangeEvent;
use super::{PIECE, SharedFile};
use crate::answer::RequestedRange;
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::{LOOK, runtime};

impl SharedFile {
    /// A large read: pieces side by side, copied into the buffer as they arrive, kept nowhere.
    pub(super) fn read_straight(self: &Arc<Self>, start: u64, buf: &mut [u8]) -> Result<()> {
        // the cache of headers lacks what is read here
        if let Some(kept) = &mut self.lock().kept {
            kept.is_new = true;
        }
        let (send, receive) = std::sync::mpsc::channel();
        let end = start + buf.len() as u64;
        let mut at = start;
        while at < end {
            let stop = end.min(at + PIECE);
            let (shared, send) = (Arc::clone(self), send.clone());
            let range = RequestedRange::Between(at, stop);
            runtime()?.spawn(async move {
                let _slot = shared.slot().await;
                let deliver = |event| match event {
                    RangeEvent::Bytes(at, part) => send.send(Ok((at, part))).is_ok(),
                    RangeEvent::Delayed => true,
                };
                if let Err(error) = shared.stream(range, deliver).await {
                    let _ = send.send(Err(error)); // the reader has failed already
                }
            });
            at = stop;
        }
        // the channel ends with the last task, so that a task that panics does not leave the reader waiting
        drop(send);
        let mut left = buf.len();
        while left > 0 {
            let (at, part): (u64, Bytes) = match receive.recv_timeout(LOOK) {
                Ok(part) => part?,
                Err(RecvTimeoutError::Timeout) => {
                    self.client.check_wanted()?;
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let what = "a request ended without an answer";
                    return Err(Error::new(ErrorKind::Network, what));
                }
            };
            let offset = usize::try_from(at - start).expect("inside of the buffer");
            buf[offset..offset + part.len()].copy_from_slice(&part);
            self.client.counters.used(part.len() as u64);
            left -= part.len();
        }
        Ok(())
    }
}
