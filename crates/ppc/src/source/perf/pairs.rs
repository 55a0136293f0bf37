//! Which page faults were misses: each is told apart by what the same thread does next.

use std::collections::HashMap;

use crate::event::Inode;

/// Read-ahead follows its fault within microseconds; one that comes later has another cause.
const AHEAD: u64 = 10_000_000;
/// A fault that waits for a device is over by then.
const MAJOR: u64 = 30_000_000_000;
/// How old a fault is when it is looked for what follows it: read-ahead has begun, or another thread's page has come.
const LOOKS: [u64; 2] = [200_000, 2_000_000];
/// Threads that are remembered.
const THREADS: usize = 1 << 14;

/// A fault that may have been a miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) inode: Inode,
    /// The page.
    pub(crate) index: u64,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    /// When it began, nanoseconds.
    pub(crate) time: u64,
}

/// The last fault of every thread.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    faults: HashMap<u32, Fault>,
    newest: u64,
}

impl Pairs {
    /// A thread faults.
    pub(crate) fn fault(&mut self, fault: Fault) {
        if self.faults.len() >= THREADS {
            self.faults
                .retain(|_, old| fault.time.saturating_sub(old.time) < MAJOR);
            if self.faults.len() >= THREADS {
                self.faults.clear();
            }
        }
        self.newest = fault.time;
        self.faults.insert(fault.tid, fault);
    }

    /// A thread begins to read ahead: its fault, if that was the reason.
    pub(crate) fn ahead(
        &mut self,
        tid: u32,
        inode: Inode,
        index: u64,
        pages: u64,
        time: u64,
    ) -> Option<Fault> {
        let fault = *self.faults.get(&tid)?;
        let covered = fault.index.checked_sub(index).is_some_and(|at| at < pages);
        if fault.inode != inode || !covered || time.saturating_sub(fault.time) > AHEAD {
            return None;
        }
        self.faults.remove(&tid)
    }

    /// A thread waited for a device in a fault: which, if it was one of ours.
    pub(crate) fn major(&mut self, tid: u32, time: u64) -> Option<Fault> {
        self.faults
            .remove(&tid)
            .filter(|fault| time.saturating_sub(fault.time) <= MAJOR)
    }

    /// When what a fault was may be known, in nanoseconds from now.
    pub(crate) fn soon(&self, now: u64) -> Option<u64> {
        let age = now.saturating_sub(self.newest);
        let next = LOOKS.into_iter().find(|&look| age < look)?;
        (!self.faults.is_empty()).then_some(next - age)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Inode = Inode { dev: 1, ino: 2 };

    fn fault(index: u64, tid: u32, time: u64) -> Fault {
        Fault {
            inode: FILE,
            index,
            pid: 1,
            tid,
            time,
        }
    }

    #[test]
    fn read_ahead_over_the_page_tells_a_miss_once() {
        let mut pairs = Pairs::default();
        pairs.fault(fault(10, 7, 100));
        let [first, last] = LOOKS;
        assert_eq!(pairs.soon(100), Some(first));
        assert_eq!(pairs.soon(100 + first), Some(last - first));
        assert_eq!(
            (pairs.soon(99 + last), pairs.soon(100 + last)),
            (Some(1), None)
        );
        assert_eq!(pairs.ahead(8, FILE, 0, 32, 200), None, "another thread");
        assert_eq!(
            pairs.ahead(7, Inode { dev: 1, ino: 3 }, 0, 32, 200),
            None,
            "another file"
        );
        assert_eq!(
            pairs.ahead(7, FILE, 11, 32, 200),
            None,
            "read-ahead of a page that was there"
        );
        assert_eq!(
            pairs.ahead(7, FILE, 0, 10, 200),
            None,
            "read-ahead before it"
        );
        assert_eq!(pairs.ahead(7, FILE, 10, 1, 200), Some(fault(10, 7, 100)));
        assert_eq!(pairs.ahead(7, FILE, 0, 32, 200), None);
        assert_eq!(pairs.major(7, 300), None);
    }

    #[test]
    fn a_major_fault_without_read_ahead_tells_the_last() {
        let mut pairs = Pairs::default();
        pairs.fault(fault(10, 7, 100));
        pairs.fault(fault(11, 7, 200));
        assert_eq!(
            pairs.ahead(7, FILE, 0, 32, 200 + AHEAD + 1),
            None,
            "too late"
        );
        assert_eq!(pairs.major(7, 50_000_000), Some(fault(11, 7, 200)));
        pairs.fault(fault(10, 7, 100));
        assert_eq!(pairs.major(7, 101 + MAJOR), None, "swap, long after");
    }

    #[test]
    fn threads_that_come_and_go_take_no_memory() {
        let mut pairs = Pairs::default();
        for tid in 0..100_000 {
            pairs.fault(fault(1, tid, u64::from(tid)));
        }
        assert!(pairs.faults.len() <= THREADS);
    }
}
