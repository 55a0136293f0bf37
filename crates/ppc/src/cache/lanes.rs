//! Lists and whose turn it is.

mod lane;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use crate::cache::list::{Cursor, Cut, Piece};
use crate::cache::progress::LaneProgress;
use crate::{Ios, Namespace};
use lane::{Lane, Stream};

/// Files that a list may name in vain before it is given up.
const REFUSED: usize = 32;

/// A piece that one thread has.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) piece: Piece,
    pub(super) over: Arc<AtomicBool>,
    pub(super) stream: Stream,
    pub(super) lane: u32,
    turn: u64,
}

/// How a piece ended.
#[derive(Debug)]
pub(super) enum End {
    /// It is done, or its list is over.
    Done,
    /// This is left of it, for later.
    Rest(Piece),
    /// Its file cannot be read.
    Refused,
}

/// All lanes. The first is next.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    turns: VecDeque<Lane>,
    /// Ranges so far that went past their file's end.
    past_end: u64,
}

impl Lanes {
    pub(super) fn len(&self) -> usize {
        self.turns.len()
    }

    fn position(&self, root: &Path, number: u32) -> Option<usize> {
        self.turns
            .iter()
            .position(|lane| lane.number == number && lane.namespace.root() == root)
    }

    pub(super) fn has(&self, root: &Path, number: u32) -> bool {
        self.position(root, number).is_some()
    }

    /// Gives a lane its list, for which `width` threads read at once. Returns whether one was not done.
    pub(super) fn submit(
        &mut self,
        namespace: &Arc<Namespace>,
        number: u32,
        width: usize,
        ios: Ios,
    ) -> bool {
        let mut new = Lane {
            number,
            width,
            namespace: Arc::clone(namespace),
            ios,
            cursor: Cursor::default(),
            rest: Vec::new(),
            taken: 0,
            refused: Vec::new(),
            over: Arc::default(),
            streams: Vec::new(),
            held: 0,
        };
        let Some(at) = self.position(namespace.root(), number) else {
            self.turns.push_back(new);
            return false;
        };
        let old = &mut self.turns[at];
        old.over.store(true, SeqCst);
        if Arc::ptr_eq(&old.namespace, namespace) {
            new.streams = std::mem::take(&mut old.streams);
        }
        let unfinished = old.held > 0 || !old.is_taken();
        *old = new;
        unfinished
    }

    /// Ends the lists that `which` says yes to, and returns how many.
    pub(super) fn interrupt(&mut self, which: impl Fn(&Path, u32) -> bool) -> u64 {
        let mut ended = 0;
        self.turns.retain(|lane| {
            let ends = which(lane.namespace.root(), lane.number);
            if ends {
                lane.over.store(true, SeqCst);
                ended += 1;
            }
            !ends
        });
        ended
    }

    /// The next piece of a lane that fewer threads read for than are to.
    pub(super) fn claim(&mut self, cut: Cut) -> Option<Claim> {
        for _ in 0..self.turns.len() {
            let mut lane = self.turns.pop_front()?;
            let piece = if lane.held < lane.width {
                lane.next(cut)
            } else {
                None
            };
            self.past_end += std::mem::take(&mut lane.cursor.past_end);
            let claim = piece.map(|(turn, piece)| {
                lane.held += 1;
                let stream = lane.stream(&piece);
                Claim {
                    piece,
                    over: Arc::clone(&lane.over),
                    stream,
                    lane: lane.number,
                    turn,
                }
            });
            if !lane.is_done() {
                self.turns.push_back(lane);
            }
            if claim.is_some() {
                return claim;
            }
        }
        None
    }

    /// Whether [`claim`](Self::claim) has something to give.
    pub(super) fn has_work(&self) -> bool {
        self.turns
            .iter()
            .any(|lane| lane.held < lane.width && !lane.is_taken())
    }

    /// Takes a piece back.
    pub(super) fn finish(&mut self, claim: Claim, end: End) {
        let Some(at) = self.position(claim.stream.files.namespace().root(), claim.lane) else {
            return;
        };
        let lane = &mut self.turns[at];
        if Arc::ptr_eq(&lane.namespace, claim.stream.files.namespace()) {
            lane.streams.push(claim.stream);
        }
        if Arc::ptr_eq(&lane.over, &claim.over) {
            lane.held -= 1;
            match end {
                End::Done => {}
                End::Rest(piece) => lane.rest.push((claim.turn, piece)),
                End::Refused => lane.refused.push(claim.piece.path),
            }
            if lane.refused.len() > REFUSED {
                lane.cursor.index = lane.ios.len();
            }
        }
        if lane.is_done() {
            self.turns.remove(at);
        }
    }

    /// Ranges so far that went past their file's end.
    pub(super) fn past_end(&self) -> u64 {
        self.past_end
    }

    pub(super) fn progress(&self) -> Vec<LaneProgress> {
        self.turns.iter().map(Lane::progress).collect()
    }
}
