//! Ranges that are requested while their caller goes on, as a load has many of them under way.

use std::fmt;
use std::sync::Arc;

use tokio::task::AbortHandle;

use super::RemoteFile;
use super::stream::RangeEvent;
use crate::answer::RequestedRange;
use crate::blocks::BlockAt;
use crate::error::Result;
use crate::runtime::runtime;

/// Receives the bytes of a range, on a thread that all requests share: its methods return soon.
pub trait RangeReceiver: Send {
    /// Bytes from this offset of the file on: those that follow the ones before. `false` ends the request.
    fn arrived(&mut self, start: u64, bytes: &[u8]) -> bool;

    /// The server refuses requests for the moment or fails, and the request will be repeated: fewer at a time may do better.
    fn delayed(&mut self) {}

    /// The last call, unless the range is dropped before. Fewer bytes than requested have arrived if the file ends there, or
    /// [`arrived`](Self::arrived) returned `false`.
    fn ended(self: Box<Self>, outcome: Result<()>);
}

/// A range that is requested. Dropping it ends the request.
pub struct StartedRange(Option<AbortHandle>);

impl RemoteFile {
    /// Requests `len` bytes from `start` on as one range, and returns at once. How many are under way at a time is up to the
    /// caller. `hedge`: whether it repeats a range that is under way, to be counted as such.
    pub fn start(
        &self,
        start: u64,
        len: u64,
        hedge: bool,
        mut receiver: Box<dyn RangeReceiver>,
    ) -> StartedRange {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        let present = match state.blocks.at(start) {
            // there is no range of no bytes in HTTP
            _ if len == 0 => Some(Vec::new()),
            BlockAt::Arrived(bytes) => {
                let bytes = usize::try_from(len).ok().and_then(|len| bytes.get(..len));
                bytes.map(<[u8]>::to_vec)
            }
            _ => None,
        };
        let used = present
            .as_ref()
            .map_or(0, |bytes| state.blocks.note_used(start, bytes.len() as u64));
        drop(state);
        // a small file is in memory since it was opened
        if let Some(bytes) = present {
            shared.client.counters.used(used);
            if !bytes.is_empty() {
                receiver.arrived(start, &bytes);
            }
            receiver.ended(Ok(()));
            return StartedRange(None);
        }
        if hedge {
            shared.client.counters.hedged();
        }
        let runtime = match runtime() {
            Ok(runtime) => runtime,
            Err(error) => {
                receiver.ended(Err(error));
                return StartedRange(None);
            }
        };
        let task = runtime.spawn(async move {
            let range = RequestedRange::Between(start, start.saturating_add(len));
            let counters = &shared.client.counters;
            let deliver = |event| match event {
                RangeEvent::Bytes(at, part) => {
                    counters.used(part.len() as u64);
                    receiver.arrived(at, &part)
                }
                RangeEvent::Delayed => {
                    receiver.delayed();
                    true
                }
            };
            let outcome = shared.stream(range, deliver).await;
            receiver.ended(outcome);
        });
        StartedRange(Some(task.abort_handle()))
    }
}

impl Drop for StartedRange {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

impl fmt::Debug for StartedRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartedRange").finish_non_exhaustive()
    }
}
