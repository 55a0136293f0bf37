//! Calls that wait for a policy.

use std::collections::VecDeque;

use crate::Access;

/// A call that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    Start,
    Prefetch(Access),
    Evict(Option<Access>),
    Touch(Access),
}

/// How far back a neighbour of an access is looked for.
const NEIGHBOURS: usize = 64;

/// Calls that wait, in order. Neighbouring accesses of a thread are merged; of evictions only the newest waits; beyond
/// the bound the oldest accesses are dropped.
#[derive(Debug)]
pub(super) struct Mailbox {
    calls: VecDeque<Waiting>,
    bound: usize,
    pub(super) merged: u64,
    pub(super) dropped: u64,
}

impl Mailbox {
    pub(super) fn new(bound: usize) -> Self {
        Self {
            calls: VecDeque::new(),
            bound: bound.max(1),
            merged: 0,
            dropped: 0,
        }
    }

    pub(super) fn put(&mut self, call: Waiting) {
        match &call {
            Waiting::Start => {}
            Waiting::Evict(_) => {
                let before = self.calls.len();
                self.calls
                    .retain(|waiting| !matches!(waiting, Waiting::Evict(_)));
                self.merged += (before - self.calls.len()) as u64;
            }
            Waiting::Prefetch(new) => {
                let same = |waiting: &Waiting| matches!(waiting, Waiting::Prefetch(old) if old.tid == new.tid);
                if self.merge(new, same) {
                    return;
                }
            }
            Waiting::Touch(new) => {
                let same = |waiting: &Waiting| matches!(waiting, Waiting::Touch(old) if old.tid == new.tid);
                if self.merge(new, same) {
                    return;
                }
            }
        }
        self.calls.push_back(call);
        if self.calls.len() > self.bound {
            // a start is worth more than any access
            let oldest = self
                .calls
                .iter()
                .position(|waiting| *waiting != Waiting::Start)
                .unwrap_or(0);
            self.calls.remove(oldest);
            self.dropped += 1;
        }
    }

    pub(super) fn take(&mut self) -> Option<Waiting> {
        self.calls.pop_front()
    }

    pub(super) fn clear(&mut self) {
        self.calls.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Adds an access to the newest one of its thread, if that is its neighbour.
    fn merge(&mut self, new: &Access, same: impl Fn(&Waiting) -> bool) -> bool {
        let newest = self
            .calls
            .iter_mut()
            .rev()
            .take(NEIGHBOURS)
            .find(|waiting| same(waiting));
        let Some(Waiting::Prefetch(old) | Waiting::Touch(old)) = newest else {
            return false;
        };
        let (old_end, new_end) = (
            old.start.saturating_add(old.len),
            new.start.saturating_add(new.len),
        );
        let near = old.start <= new.start && new.start <= old_end;
        if !near || old.path != new.path || old.kind != new.kind || old.pid != new.pid {
            return false;
        }
        old.len = old_end.max(new_end) - old.start;
        old.time = old.time.max(new.time);
        self.merged += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::Kind;

    fn access(tid: u32, start: u64, len: u64) -> Access {
        Access {
            kind: Kind::Miss,
            path: Path::new("a").into(),
            start,
            len,
            pid: 1,
            tid,
            time: start,
        }
    }

    #[test]
    fn neighbours_of_a_thread_are_one_call() {
        let mut mail = Mailbox::new(10);
        for page in 0..100 {
            mail.put(Waiting::Prefetch(access(1, page * 4096, 4096)));
            mail.put(Waiting::Prefetch(access(2, (1000 + page) * 4096, 4096)));
        }
        assert_eq!((mail.len(), mail.merged, mail.dropped), (2, 198, 0));
        assert_eq!(
            mail.take(),
            Some(Waiting::Prefetch(Access {
                time: 99 * 4096,
                ..access(1, 0, 409_600)
            }))
        );
        mail.put(Waiting::Touch(access(2, 1100 * 4096, 4096))); // another kind of call
        mail.put(Waiting::Prefetch(access(2, 0, 4096))); // no neighbour
        assert_eq!(mail.len(), 3);
    }

    #[test]
    fn of_evictions_the_newest_waits() {
        let mut mail = Mailbox::new(10);
        mail.put(Waiting::Evict(None));
        mail.put(Waiting::Prefetch(access(1, 0, 1)));
        mail.put(Waiting::Evict(Some(access(1, 0, 1))));
        assert_eq!((mail.len(), mail.merged), (2, 1));
        assert!(matches!(mail.take(), Some(Waiting::Prefetch(_))));
        assert!(matches!(mail.take(), Some(Waiting::Evict(Some(_)))));
    }

    #[test]
    fn beyond_the_bound_the_oldest_are_dropped_but_never_the_start() {
        let mut mail = Mailbox::new(4);
        mail.put(Waiting::Start);
        for at in 0..10 {
            mail.put(Waiting::Prefetch(access(1, at << 20, 1)));
        }
        assert_eq!((mail.len(), mail.dropped), (4, 7));
        assert_eq!(mail.take(), Some(Waiting::Start));
        assert!(matches!(mail.take(), Some(Waiting::Prefetch(old)) if old.start == 7 << 20));
    }
}
