//! The bytes of one range, over as many answers as it takes.

use bytes::Bytes;

use super::SharedFile;
use crate::answer::{Answer, FileVersion, RequestedRange};
use crate::error::{Error, ErrorKind, Result};

/// A report of a stream.
pub(super) enum RangeEvent {
    /// Bytes from this offset on.
    Bytes(u64, Bytes),
    /// The server refuses requests for the moment, or fails, and the request will be repeated.
    Delayed,
}

impl SharedFile {
    /// Passes the bytes of a range to `deliver` as they arrive, in order, until it returns `false`. An answer that breaks
    /// off goes on where it ended, under the same version.
    pub(super) async fn stream(
        &self,
        range: RequestedRange,
        deliver: impl FnMut(RangeEvent) -> bool + Send,
    ) -> Result<()> {
        self.stream_from(None, range, deliver).await
    }

    /// Like [`stream`](Self::stream), but the first answer may have been received.
    pub(super) async fn stream_from(
        &self,
        mut first: Option<Answer>,
        range: RequestedRange,
        mut deliver: impl FnMut(RangeEvent) -> bool + Send,
    ) -> Result<()> {
        let mut rest = range;
        let mut broken = 0;
        loop {
            let mut answer = match first.take() {
                Some(answer) => answer,
                None => {
                    // read anew for each answer: the first one may have set it
                    let version = self.lock().version.clone();
                    let mut on_delay = || {
                        deliver(RangeEvent::Delayed);
                    };
                    self.client
                        .range(&self.resource, rest, version.as_ref(), &mut on_delay)
                        .await?
                }
            };
            self.learn(&answer.version)?;
            let mut at = answer.start;
            let error = loop {
                match answer.next().await {
                    Ok(Some(part)) => {
                        let from = at;
                        at += part.len() as u64;
                        if !deliver(RangeEvent::Bytes(from, part)) {
                            return Ok(());
                        }
                    }
                    Ok(None) => break None,
                    Err(error) => break Some(error),
                }
            };
            let end = match rest {
                RequestedRange::Between(_, end) => end.min(answer.version.len),
                RequestedRange::Last(_) => answer.end,
            };
            if at >= end {
                return Ok(());
            }
            // some servers answer less than was requested; that is not a failure while it is something
            let progress = at > answer.start;
            if let Some(error) = error {
                broken += 1;
                // progress does not reset the count: a server that breaks off after each byte would be repeated for
                // ever
                if error.kind() != ErrorKind::Network || broken > self.client.options.retries {
                    return Err(error);
                }
                self.client.counters.retried();
            } else if !progress {
                return Err(Error::refused("the server answers a range with no bytes"));
            }
            rest = RequestedRange::Between(at, end);
        }
    }

    /// Keeps the first version, and compares the others with it: answers to first requests that ran side by side.
    fn learn(&self, version: &FileVersion) -> Result<()> {
        let mut state = self.lock();
        if let Some(known) = &state.version {
            return known.check(version);
        }
        let len = version.len;
        state.version = Some(version.clone());
        state.blocks.cut(len);
        if state.tail > 0 {
            // the last bytes are on their way, and their place is known now
            let tail = state.tail;
            state.blocks.request(len.saturating_sub(tail), len, tail);
        }
        drop(state);
        self.changed.notify_all();
        Ok(())
    }
}
