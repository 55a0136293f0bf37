//! The bounded queue of calls to a policy.

use std::collections::VecDeque;

use crate::FileAccess;
use crate::coalesce::merged_len;

/// A call to a policy that has not been made yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum QueuedCall {
    Start,
    Prefetch(FileAccess),
    Evict(Option<FileAccess>),
    Touch(FileAccess),
}

/// How many of the newest calls are searched for one that a new access can be merged with. Bounds the time that the event
/// loop spends under the lock.
const MERGE_WINDOW: usize = 64;

/// The queued calls, oldest first. Adjacent accesses of a thread are merged, only the newest eviction is kept, and when
/// the queue is full its oldest access is dropped.
#[derive(Debug)]
pub(super) struct CallQueue {
    calls: VecDeque<QueuedCall>,
    capacity: usize,
    pub(super) merged: u64,
    pub(super) dropped: u64,
}

impl CallQueue {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            calls: VecDeque::new(),
            capacity: capacity.max(1),
            merged: 0,
            dropped: 0,
        }
    }

    pub(super) fn push(&mut self, call: QueuedCall) {
        match &call {
            QueuedCall::Start => {}
            QueuedCall::Evict(_) => {
                let before = self.calls.len();
                self.calls
                    // an eviction concerns the memory pressure now: an older request says nothing that the new one does
                    // not
                    .retain(|queued| !matches!(queued, QueuedCall::Evict(_)));
                self.merged += (before - self.calls.len()) as u64;
            }
            QueuedCall::Prefetch(new) => {
                let same = |queued: &QueuedCall| matches!(queued, QueuedCall::Prefetch(old) if old.tid == new.tid);
                if self.merge(new, same) {
                    return;
                }
            }
            QueuedCall::Touch(new) => {
                let same = |queued: &QueuedCall| matches!(queued, QueuedCall::Touch(old) if old.tid == new.tid);
                if self.merge(new, same) {
                    return;
                }
            }
        }
        self.calls.push_back(call);
        if self.calls.len() > self.capacity {
            // `start` is never dropped in favour of an access: it is queued once per service start
            let oldest = self
                .calls
                .iter()
                .position(|queued| *queued != QueuedCall::Start)
                .unwrap_or(0);
            self.calls.remove(oldest);
            self.dropped += 1;
        }
    }

    pub(super) fn pop(&mut self) -> Option<QueuedCall> {
        self.calls.pop_front()
    }

    pub(super) fn clear(&mut self) {
        self.calls.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Extends the newest access that `same` accepts by `new`, if the two are adjacent. Returns whether it did.
    fn merge(&mut self, new: &FileAccess, same: impl Fn(&QueuedCall) -> bool) -> bool {
        let newest = self
            .calls
            .iter_mut()
            .rev()
            .take(MERGE_WINDOW)
            .find(|queued| same(queued));
        let Some(QueuedCall::Prefetch(old) | QueuedCall::Touch(old)) = newest else {
            return false;
        };
        if old.path != new.path || old.kind != new.kind || old.pid != new.pid {
            return false;
        }
        let Some(len) = merged_len((old.start, old.len), (new.start, new.len)) else {
            return false;
        };
        old.len = len;
        old.time = old.time.max(new.time);
        self.merged += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::EventKind;

    fn access(tid: u32, start: u64, len: u64) -> FileAccess {
        FileAccess {
            kind: EventKind::Miss,
            path: Path::new("a").into(),
            start,
            len,
            pid: 1,
            tid,
            time: start,
        }
    }

    #[test]
    fn adjacent_accesses_of_a_thread_are_merged() {
        let mut queue = CallQueue::new(10);
        for page in 0..100 {
            queue.push(QueuedCall::Prefetch(access(1, page * 4096, 4096)));
            queue.push(QueuedCall::Prefetch(access(2, (1000 + page) * 4096, 4096)));
        }
        assert_eq!((queue.len(), queue.merged, queue.dropped), (2, 198, 0));
        assert_eq!(
            queue.pop(),
            Some(QueuedCall::Prefetch(FileAccess {
                time: 99 * 4096,
                ..access(1, 0, 409_600)
            }))
        );
        queue.push(QueuedCall::Touch(access(2, 1100 * 4096, 4096))); // another callback
        queue.push(QueuedCall::Prefetch(access(2, 0, 4096))); // not adjacent
        assert_eq!(queue.len(), 3);
    }

    #[test]
    fn only_the_newest_eviction_is_kept() {
        let mut queue = CallQueue::new(10);
        queue.push(QueuedCall::Evict(None));
        queue.push(QueuedCall::Prefetch(access(1, 0, 1)));
        queue.push(QueuedCall::Evict(Some(access(1, 0, 1))));
        assert_eq!((queue.len(), queue.merged), (2, 1));
        assert!(matches!(queue.pop(), Some(QueuedCall::Prefetch(_))));
        assert!(matches!(queue.pop(), Some(QueuedCall::Evict(Some(_)))));
    }

    #[test]
    fn a_full_queue_drops_its_oldest_access_and_keeps_the_start() {
        let mut queue = CallQueue::new(4);
        queue.push(QueuedCall::Start);
        for n in 0..10 {
            queue.push(QueuedCall::Prefetch(access(1, n << 20, 1)));
        }
        assert_eq!((queue.len(), queue.dropped), (4, 7));
        assert_eq!(queue.pop(), Some(QueuedCall::Start));
        assert!(matches!(queue.pop(), Some(QueuedCall::Prefetch(old)) if old.start == 7 << 20));
    }
}
