//! From samples to events.

use std::collections::HashMap;
use std::time::Duration;

use super::pairs::{Fault, Pairs};
use super::points::Role;
use crate::event::{Event, Inode, Kind};
use crate::source::Want;

/// Samples of two rounds of watching that are the same one are this close, nanoseconds.
const TWICE: u64 = 1_000_000;

/// A sample whose file and pages were read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    pub(crate) role: Role,
    /// By which round of watching.
    pub(crate) round: u32,
    pub(crate) inode: Inode,
    /// The first page.
    pub(crate) index: u64,
    pub(crate) pages: u64,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) time: u64,
}

/// What is told of the samples that pass, oldest first.
#[derive(Debug)]
pub(crate) struct Teller {
    want: Want,
    /// As trace points name them, and as they are told.
    files: HashMap<Inode, Inode>,
    pairs: Pairs,
    last: Option<Told>,
}

impl Teller {
    pub(crate) fn new(want: Want) -> Self {
        Self {
            want,
            files: HashMap::new(),
            pairs: Pairs::default(),
            last: None,
        }
    }

    /// Tells of these only: by the names of the trace points, under which names.
    pub(crate) fn watch(&mut self, files: HashMap<Inode, Inode>) {
        self.files = files;
    }

    /// When what a fault was may be known.
    pub(crate) fn soon(&self, now: u64) -> Option<Duration> {
        self.pairs.soon(now).map(Duration::from_nanos)
    }

    /// What a sample tells, if anything.
    pub(crate) fn event(&mut self, told: &Told) -> Option<Event> {
        let &Told {
            role,
            index,
            pages,
            pid,
            tid,
            time,
            ..
        } = told;
        if role == Role::Major {
            return self.pairs.major(tid, time).and_then(missed);
        }
        let &inode = self.files.get(&told.inode)?;
        if self.again(told) {
            return None;
        }
        let at = Fault {
            inode,
            index,
            pid,
            tid,
            time,
        };
        match role {
            Role::Fault => {
                self.pairs.fault(at);
                None
            }
            Role::Ahead => self
                .pairs
                .ahead(tid, inode, index, pages, time)
                .and_then(missed),
            // of a fault, with more pages than were asked for
            Role::Sync => match self.pairs.ahead(tid, inode, index, pages, time) {
                Some(fault) => missed(fault),
                None => event(Kind::Miss, &at, pages),
            },
            Role::Added if self.want == Want::Misses => event(Kind::Miss, &at, pages),
            Role::Added | Role::Touch => event(Kind::Touch, &at, pages),
            Role::Major => None,
        }
    }

    /// The sample came through the events of the round before as well.
    fn again(&mut self, told: &Told) -> bool {
        let key = |told: &Told| (told.role, told.inode, told.index, told.pages, told.tid);
        let again = self.last.is_some_and(|last| {
            last.round != told.round
                && key(&last) == key(told)
                && told.time.saturating_sub(last.time) < TWICE
        });
        self.last = if again { None } else { Some(*told) };
        again
    }
}

fn missed(fault: Fault) -> Option<Event> {
    event(Kind::Miss, &fault, 1)
}

fn event(kind: Kind, at: &Fault, pages: u64) -> Option<Event> {
    let page = u64::try_from(rustix::param::page_size()).ok()?;
    let (start, len) = (at.index.checked_mul(page)?, pages.checked_mul(page)?);
    start.checked_add(len)?;
    Some(Event {
        kind,
        inode: at.inode,
        start,
        len,
        pid: at.pid,
        tid: at.tid,
        time: at.time,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Inode = Inode { dev: 1, ino: 2 };

    fn told(role: Role, round: u32, index: u64, pages: u64, time: u64) -> Told {
        Told {
            role,
            round,
            inode: FILE,
            index,
            pages,
            pid: 3,
            tid: 4,
            time,
        }
    }

    fn teller() -> Teller {
        let mut teller = Teller::new(Want::Misses);
        teller.watch(HashMap::from([(FILE, FILE)]));
        teller
    }

    #[test]
    fn the_same_sample_of_two_rounds_is_told_once() {
        let mut teller = teller();
        assert!(teller.event(&told(Role::Sync, 1, 0, 8, 100)).is_some());
        assert!(teller.event(&told(Role::Sync, 2, 0, 8, 400)).is_none());
        assert!(
            teller.event(&told(Role::Sync, 2, 0, 8, 500)).is_some(),
            "the same again, of the same round"
        );
        assert!(
            teller
                .event(&told(Role::Sync, 3, 0, 8, 500 + TWICE))
                .is_some(),
            "later"
        );
        assert!(
            teller
                .event(&told(Role::Sync, 4, 8, 8, 501 + TWICE))
                .is_some(),
            "other pages"
        );
    }

    #[test]
    fn a_fault_for_sequential_use_is_a_miss_of_one_page() {
        let mut teller = teller();
        let page = u64::try_from(rustix::param::page_size()).unwrap();
        assert_eq!(teller.event(&told(Role::Fault, 1, 5, 1, 100)), None);
        let miss = teller.event(&told(Role::Sync, 1, 5, 2048, 101)).unwrap();
        assert_eq!((miss.start, miss.len, miss.time), (5 * page, page, 100));
        assert_eq!(teller.event(&told(Role::Ahead, 1, 5, 2048, 102)), None);
        assert_eq!(teller.event(&told(Role::Major, 1, 0, 0, 103)), None);
    }

    #[test]
    fn a_fault_of_a_page_in_memory_and_bytes_past_the_end_of_numbers_are_not_told() {
        let mut teller = teller();
        assert_eq!(teller.event(&told(Role::Fault, 1, 5, 1, 100)), None);
        assert_eq!(
            teller.event(&told(Role::Ahead, 1, 6, 32, 101)),
            None,
            "the marker's read-ahead"
        );
        assert_eq!(
            teller.event(&told(Role::Sync, 1, u64::MAX - 1, 1, 102)),
            None
        );
        teller.watch(HashMap::new());
        assert_eq!(teller.event(&told(Role::Sync, 1, 0, 1, 103)), None);
    }
}
