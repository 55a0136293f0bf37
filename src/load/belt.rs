//! The belt between those who read and those who take: pieces of extents out, filled pieces in, whole extents off.
//!
//! Extents are begun in their order, as many as [`Reading::ahead`] allows; each gets a buffer of the pool, cut into
//! pieces that are read independently. Whoever takes waits for the last piece of its extent. A reader that fails or
//! dies stops the belt: everybody who waits then hears why.

mod begin;

use std::collections::VecDeque;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use zeropool::{BufferPool, Part, Shared};

use super::coalesce::Coalesced;
use super::fault::Fault;
use super::way::{Tally, Way};
use super::{Chunk, Coming, Feed, Reading, TICK};
use crate::catalog::ByteRange;
use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::execute::{STEP, unless_stopped};

/// How a belt cuts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// Bytes of a piece.
    pub(super) piece: usize,
    /// Offsets and lengths of pieces are multiples of it; the last piece of a file asks for more than there is.
    pub(super) align: u64,
}

/// A piece to be read, into a part that comes with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    extent: usize,
    number: usize,
    /// Which file.
    pub(super) file: u32,
    /// Where it begins in the file.
    pub(super) start: u64,
    /// Bytes that have to come; what the part has more is for alignment.
    pub(super) wanted: usize,
}

pub(super) struct Belt<'c> {
    checkpoint: &'c Checkpoint,
    pool: BufferPool,
    ahead: u64,
    cut: Cut,
    list: Coalesced,
    tally: Arc<Tally>,
    state: Mutex<State>,
    /// A piece may be had, or the end was reached.
    room: Condvar,
    /// An extent is whole or a step nearer to it, or the belt stopped.
    whole: Condvar,
}

#[derive(Default)]
struct State {
    pieces: VecDeque<(Piece, Part)>,
    slots: Vec<Slot>,
    /// Extents that were begun.
    begun: usize,
    /// Somebody is getting the next one's buffer.
    beginning: bool,
    /// Extents that somebody waits for: all in front of this one.
    needed: usize,
    /// Bytes of extents that were begun and not taken.
    ahead: u64,
    stopped: Option<Fault>,
}

enum Slot {
    Waiting,
    Filling {
        left: usize,
        parts: Vec<Option<Part>>,
    },
    Whole {
        bytes: Shared,
        reads: u32,
    },
    Taken,
}

impl Slot {
    /// Bytes that have come, of an extent that is not whole.
    fn come(&self, cut: &Cut) -> usize {
        match self {
            // the last piece may be shorter
            Self::Filling { left, parts } => (parts.len() - left).saturating_mul(cut.piece),
            Self::Waiting | Self::Whole { .. } | Self::Taken => 0,
        }
    }
}

/// What can be done next.
pub(super) enum Next {
    Piece(Piece, Part),
    /// Nothing until something is taken.
    Later,
    /// Everything was begun, or the belt was stopped.
    Over,
}

impl<'c> Belt<'c> {
    pub(super) fn new(reading: &Reading<'c>, list: Coalesced, cut: Cut, tally: Arc<Tally>) -> Self {
        let slots = list.extents.iter().map(|_| Slot::Waiting).collect();
        let state = State {
            slots,
            ..State::default()
        };
        Self {
            checkpoint: reading.checkpoint,
            pool: reading.pool.clone(),
            ahead: reading.ahead,
            cut,
            list,
            tally,
            state: Mutex::new(state),
            room: Condvar::new(),
            whole: Condvar::new(),
        }
    }

    /// Whether there is no more to read than one piece.
    pub(super) fn is_one_piece(&self) -> bool {
        let from = |bytes: &ByteRange| bytes.start / self.cut.align * self.cut.align;
        match &*self.list.extents {
            [] => true,
            [only] => only.bytes.end().saturating_sub(from(&only.bytes)) <= self.cut.piece as u64,
            _ => false,
        }
    }

    /// A piece to read. Waits for room if `wait`, else says [`Next::Later`].
    pub(super) fn next(&self, wait: bool) -> Next {
        let mut state = self.state.lock();
        loop {
            if state.stopped.is_some() {
                return Next::Over;
            }
            if let Some((piece, part)) = state.pieces.pop_front() {
                return Next::Piece(piece, part);
            }
            let Some(extent) = self.list.extents.get(state.begun) else {
                return Next::Over;
            };
            let fits = state.ahead.saturating_add(extent.bytes.len) <= self.ahead;
            if !state.beginning && (fits || state.ahead == 0 || state.begun < state.needed) {
                let before = state.begun;
                state = self.begin(state, wait);
                if !wait && state.begun == before && state.stopped.is_none() {
                    return Next::Later;
                }
            } else if wait || state.beginning {
                self.room.wait(&mut state);
            } else {
                return Next::Later;
            }
        }
    }

    /// Takes a piece back whose wanted bytes have come.
    pub(super) fn filled(&self, piece: Piece, part: Part) {
        let mut state = self.state.lock();
        let Slot::Filling { left, parts } = &mut state.slots[piece.extent] else {
            return;
        };
        parts[piece.number] = Some(part);
        *left -= 1;
        let come = (parts.len() - *left).saturating_mul(self.cut.piece);
        if *left > 0 {
            // whoever watches hears of every step
            if come / STEP > (come - self.cut.piece) / STEP {
                self.whole.notify_all();
            }
            return;
        }
        let parts: Vec<Part> = parts.iter_mut().filter_map(Option::take).collect();
        let buffer = Part::join(parts)
            .unwrap_or_else(|_| unreachable!("the parts of one buffer, each in its place"));
        let reads = self.list.extents[piece.extent].reads;
        state.slots[piece.extent] = Slot::Whole {
            bytes: buffer.freeze(),
            reads,
        };
        self.whole.notify_all();
    }

    /// Stops, since these bytes could not be read.
    pub(super) fn failed(&self, file: u32, offset: u64, error: &io::Error) {
        let (kind, os, text) = (error.kind(), error.raw_os_error(), error.to_string());
        self.stop(Fault::Read {
            file,
            offset,
            kind,
            os,
            text,
        });
    }

    fn stop(&self, fault: Fault) {
        let mut state = self.state.lock();
        state.stopped.get_or_insert(fault);
        state.pieces.clear();
        self.room.notify_all();
        self.whole.notify_all();
    }

    /// Stops the belt when it is dropped: whether `body` returned or panicked, nobody is left to take.
    pub(super) fn end(&self) -> End<'_, 'c> {
        End(self)
    }

    /// Stops the belt if it is dropped by a panic.
    pub(super) fn guard(&self) -> Guard<'_, 'c> {
        Guard(self)
    }
}

impl<'c> Feed<'c> for Belt<'c> {
    fn take(&self, read: usize) -> Result<Chunk<'c>> {
        self.take_watched(read, &mut |_| ControlFlow::Continue(()))
    }

    fn take_watched(&self, read: usize, watch: Coming<'_>) -> Result<Chunk<'c>> {
        let unknown = || Error::misuse(format!("there is no read {read}"));
        let place = *self.list.places.get(read).ok_or_else(unknown)?;
        if place.len == 0 {
            return Ok(Chunk::Lent(&[]));
        }
        let mut state = self.state.lock();
        // what was told, and whether it has been for long
        let (mut told, mut late) = (0, false);
        loop {
            if let Slot::Whole { bytes, reads } = &mut state.slots[place.extent] {
                let ByteRange { start, len, .. } = self.list.extents[place.extent].bytes;
                // what lies in front was read for alignment
                let lead = start % self.cut.align;
                let from = usize::try_from(lead + place.start).expect("within a buffer");
                let chunk =
                    bytes.slice(from..from + usize::try_from(place.len).expect("within a buffer"));
                *reads -= 1;
                if *reads == 0 {
                    state.slots[place.extent] = Slot::Taken;
                    state.ahead = state.ahead.saturating_sub(len);
                    self.room.notify_all();
                }
                return Ok(Chunk::Pooled(chunk));
            }
            if matches!(state.slots[place.extent], Slot::Taken) {
                return Err(Error::misuse(format!("read {read} was taken before")));
            }
            if let Some(fault) = &state.stopped {
                return Err(fault.clone().error(self.checkpoint));
            }
            if state.needed <= place.extent {
                state.needed = place.extent + 1;
                self.room.notify_all();
            }
            let come = state.slots[place.extent].come(&self.cut);
            if late || come >= told + STEP {
                drop(state);
                unless_stopped(watch(place.len.min(come as u64)))?;
                (told, late) = (come, false);
                state = self.state.lock();
                continue;
            }
            late = self.whole.wait_for(&mut state, TICK).timed_out();
        }
    }

    fn way(&self) -> Option<Way> {
        Some(self.tally.way())
    }
}

/// See [`Belt::end`].
pub(super) struct End<'b, 'c>(&'b Belt<'c>);

impl Drop for End<'_, '_> {
    fn drop(&mut self) {
        self.0.stop(Fault::Over);
    }
}

/// See [`Belt::guard`].
pub(super) struct Guard<'b, 'c>(&'b Belt<'c>);

impl Drop for Guard<'_, '_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop(Fault::Died);
        }
    }
}
