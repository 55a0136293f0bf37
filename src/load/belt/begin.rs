//! Beginning an extent: its buffer, and the pieces it is cut into.

use std::time::Instant;

use parking_lot::MutexGuard;
use zeropool::{Buffer, GetError};

use super::super::PATIENCE;
use super::super::fault::Fault;
use super::{Belt, Piece, Slot, State};

impl Belt<'_> {
    /// Gets the next extent's buffer and cuts it. Leaves all as it is if the pool is full and it must not `wait`.
    pub(super) fn begin<'b>(
        &'b self,
        mut state: MutexGuard<'b, State>,
        wait: bool,
    ) -> MutexGuard<'b, State> {
        let number = state.begun;
        let wanted = self.list.extents[number].bytes;
        state.beginning = true;
        drop(state);
        let start = wanted.start / self.cut.align * self.cut.align;
        let len = wanted.end().next_multiple_of(self.cut.align) - start;
        let parts = self
            .buffer(len, wait)
            .map(|buffer| buffer.map(|buffer| buffer.split(self.cut.piece)));
        let mut state = self.state.lock();
        state.beginning = false;
        match parts {
            Ok(None) => {}
            Ok(Some(parts)) => {
                state.begun += 1;
                state.ahead = state.ahead.saturating_add(wanted.len);
                let none = std::iter::repeat_with(|| None).take(parts.len()).collect();
                state.slots[number] = Slot::Filling {
                    left: parts.len(),
                    parts: none,
                };
                state
                    .pieces
                    .extend(parts.into_iter().enumerate().map(|(i, part)| {
                        let start = start + part.offset() as u64;
                        let wanted = usize::try_from(wanted.end() - start)
                            .unwrap_or(usize::MAX)
                            .min(part.len());
                        (
                            Piece {
                                extent: number,
                                number: i,
                                file: self.list.extents[number].bytes.file,
                                start,
                                wanted,
                            },
                            part,
                        )
                    }));
            }
            Err(fault) => {
                state.stopped.get_or_insert(fault);
                self.whole.notify_all();
            }
        }
        self.room.notify_all();
        state
    }

    /// A buffer for so many bytes. A full pool is waited for, unless somebody waits for us and nothing comes back: they
    /// may hold what we wait for.
    fn buffer(&self, len: u64, wait: bool) -> Result<Option<Buffer>, Fault> {
        let fault = |text: String, os| {
            let budget = self.pool.budget() as u64;
            Fault::Pool {
                needed: len,
                text,
                os,
                budget,
            }
        };
        let size = usize::try_from(len)
            .map_err(|_| fault("more than this machine can address".into(), None))?;
        let mut last = None;
        // since when somebody waits for us
        let mut since = None;
        loop {
            if !self.is_needed() {
                since = None;
            } else if since.get_or_insert_with(Instant::now).elapsed() >= PATIENCE {
                return Err(fault(last.unwrap_or_default(), None));
            }
            let found = if wait {
                self.pool.get_timeout(size, PATIENCE / 50)
            } else {
                self.pool.try_get(size)
            };
            match found {
                Ok(buffer) => return Ok(Some(buffer)),
                Err(GetError::Spent { .. } | GetError::TimedOut { .. }) if !wait => {
                    return Ok(None);
                }
                Err(e @ (GetError::Spent { .. } | GetError::TimedOut { .. })) => {
                    last = Some(e.to_string())
                }
                Err(GetError::OutOfMemory { source, .. } | GetError::Pin { source, .. }) => {
                    return Err(fault(source.to_string(), source.raw_os_error()));
                }
                Err(e) => return Err(fault(e.to_string(), None)),
            }
            if self.state.lock().stopped.is_some() {
                return Err(Fault::Over);
            }
        }
    }

    /// Whether somebody waits for an extent that was not begun.
    fn is_needed(&self) -> bool {
        let state = self.state.lock();
        state.needed > state.begun
    }
}
