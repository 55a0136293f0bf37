//! Prefetch queues, and the round-robin order in which threads claim pieces from them.
//!
//! The structure is plain data; the prefetcher locks it. A thread claims a piece, reads it without the lock, and
//! finishes it. A queue whose list was replaced meanwhile is recognised by the identity of its cancellation flag, so
//! that a late `finish` cannot alter the new list.

mod queue;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use crate::cache::pieces::{ListCursor, PieceLimits, PrefetchPiece};
use crate::cache::progress::QueueProgress;
use crate::sync::AtomicBool;
use crate::{Namespace, RangeList};
use queue::{PrefetchQueue, ReadStream};

/// Unreadable files after which the rest of a list is dropped.
const MAX_UNREADABLE: usize = 32;

/// A piece that a thread has claimed.
#[derive(Debug)]
pub(super) struct PieceClaim {
    pub(super) piece: PrefetchPiece,
    /// Set when the list is replaced or interrupted.
    pub(super) cancelled: Arc<AtomicBool>,
    pub(super) stream: ReadStream,
    pub(super) queue: u32,
    /// Number of the claim in its list; see [`PrefetchQueue::remainders`].
    number: u64,
}

/// How a piece ended.
#[derive(Debug)]
pub(super) enum ClaimOutcome {
    /// The piece was read, or its list was replaced or interrupted.
    Done,
    /// This remainder is to be claimed again.
    Remainder(PrefetchPiece),
    /// Its file cannot be read; later pieces of it are skipped.
    Unreadable,
}

/// All queues with unfinished lists; the first is served next.
#[derive(Debug, Default)]
pub(super) struct PrefetchQueues {
    queues: VecDeque<PrefetchQueue>,
    /// Number of ranges so far that extend beyond the end of their file.
    past_end: u64,
}

impl PrefetchQueues {
    pub(super) fn len(&self) -> usize {
        self.queues.len()
    }

    fn position(&self, root: &Path, number: u32) -> Option<usize> {
        self.queues
            .iter()
            .position(|queue| queue.number == number && queue.namespace.root() == root)
    }

    pub(super) fn has(&self, root: &Path, number: u32) -> bool {
        self.position(root, number).is_some()
    }

    /// Sets a queue's list, which up to `width` threads read at once. Returns whether this replaced an unfinished
    /// list.
    pub(super) fn submit(
        &mut self,
        namespace: &Arc<Namespace>,
        number: u32,
        width: usize,
        ranges: RangeList,
    ) -> bool {
        let mut new = PrefetchQueue {
            number,
            width,
            namespace: Arc::clone(namespace),
            ranges,
            cursor: ListCursor::default(),
            remainders: Vec::new(),
            claims_so_far: 0,
            unreadable: Vec::new(),
            cancelled: Arc::default(),
            streams: Vec::new(),
            claims: 0,
        };
        let Some(at) = self.position(namespace.root(), number) else {
            self.queues.push_back(new);
            return false;
        };
        let old = &mut self.queues[at];
        old.cancelled.store(true, SeqCst);
        if Arc::ptr_eq(&old.namespace, namespace) {
            // a list is usually replaced by one that continues in the same files: its streams keep their descriptors
            // and read-ahead
            new.streams = std::mem::take(&mut old.streams);
        }
        let unfinished = old.claims > 0 || !old.is_claimed();
        *old = new;
        unfinished
    }

    /// Cancels the lists of the queues that `which` selects, and returns their number.
    pub(super) fn interrupt(&mut self, which: impl Fn(&Path, u32) -> bool) -> u64 {
        let mut ended = 0;
        self.queues.retain(|queue| {
            let ends = which(queue.namespace.root(), queue.number);
            if ends {
                queue.cancelled.store(true, SeqCst);
                ended += 1;
            }
            !ends
        });
        ended
    }

    /// Claims the next piece of the first queue that has one and is read by fewer than `width` threads.
    pub(super) fn claim(&mut self, limits: PieceLimits) -> Option<PieceClaim> {
        // each queue once: a queue at its maximum of threads is passed over and goes to the end
        for _ in 0..self.queues.len() {
            let mut queue = self.queues.pop_front()?;
            let piece = if queue.claims < queue.width {
                queue.next(limits)
            } else {
                None
            };
            // counted over all lists; this one may end here
            self.past_end += std::mem::take(&mut queue.cursor.past_end);
            let claim = piece.map(|(number, piece)| {
                queue.claims += 1;
                let stream = queue.stream(&piece);
                PieceClaim {
                    piece,
                    cancelled: Arc::clone(&queue.cancelled),
                    stream,
                    queue: queue.number,
                    number,
                }
            });
            if !queue.is_done() {
                self.queues.push_back(queue);
            }
            if claim.is_some() {
                return claim;
            }
        }
        None
    }

    /// Whether [`claim`](Self::claim) could return a piece.
    pub(super) fn has_work(&self) -> bool {
        self.queues
            .iter()
            .any(|queue| queue.claims < queue.width && !queue.is_claimed())
    }

    /// Ends a claim. A remainder goes back to its queue, unless the list was replaced.
    pub(super) fn finish(&mut self, claim: PieceClaim, outcome: ClaimOutcome) {
        let Some(at) = self.position(claim.stream.files.namespace().root(), claim.queue) else {
            return;
        };
        let queue = &mut self.queues[at];
        // a stream of an older snapshot has descriptors of files that may have been replaced
        if Arc::ptr_eq(&queue.namespace, claim.stream.files.namespace()) {
            queue.streams.push(claim.stream);
        }
        if Arc::ptr_eq(&queue.cancelled, &claim.cancelled) {
            queue.claims -= 1;
            match outcome {
                ClaimOutcome::Done => {}
                ClaimOutcome::Remainder(piece) => queue.remainders.push((claim.number, piece)),
                ClaimOutcome::Unreadable => queue.unreadable.push(claim.piece.path),
            }
            if queue.unreadable.len() > MAX_UNREADABLE {
                queue.cursor.index = queue.ranges.len();
            }
        }
        if queue.is_done() {
            self.queues.remove(at);
        }
    }

    /// Number of ranges so far that extend beyond the end of their file.
    pub(super) fn past_end(&self) -> u64 {
        self.past_end
    }

    pub(super) fn progress(&self) -> Vec<QueueProgress> {
        self.queues.iter().map(PrefetchQueue::progress).collect()
    }
}
