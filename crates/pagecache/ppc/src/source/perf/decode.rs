//! Turns samples into events, and decides which page faults were misses.
//!
//! A trace point of a page fault does not show whether the page was cached. The next sample of the same thread does: it
//! starts read-ahead over the page, or its fault ends as a major fault. See the [module](super) for the cases.

use std::collections::HashMap;
use std::time::Duration;

use super::tracepoints::SampleMeaning;
use crate::event::{Event, EventKind, Inode};
use crate::source::CaptureMode;

/// Two equal samples from the perf events of different generations are one if their times differ by less than this, in
/// nanoseconds.
const DUPLICATE_WINDOW: u64 = 1_000_000;
/// A fault's read-ahead starts within microseconds. Read-ahead that starts later than this, in nanoseconds, has another
/// cause.
const READ_AHEAD_WINDOW: u64 = 10_000_000;
/// A fault that waits for a device ends within this time, in nanoseconds.
const MAJOR_FAULT_WINDOW: u64 = 30_000_000_000;
/// Ages of a fault, in nanoseconds, at which the rings are read for its outcome: after the first read-ahead has started,
/// after the second a page that another thread was reading has arrived. These samples do not wake the consumer
/// themselves. Four checks, half a millisecond apart, took 12 to 30 ms of processor time per GiB of cold mapped memory;
/// these two take 8 to 18 ms (EXPERIMENTS.md).
const CHECK_AGES: [u64; 2] = [200_000, 2_000_000];
/// Maximum number of threads whose last fault is remembered.
const MAX_THREADS: usize = 1 << 14;

/// A sample with the file and the pages that its record names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileSample {
    pub(crate) meaning: SampleMeaning,
    /// Which call of `watch` opened the perf event.
    pub(crate) generation: u32,
    pub(crate) inode: Inode,
    /// Index of the first page.
    pub(crate) index: u64,
    pub(crate) pages: u64,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) time: u64,
}

/// A page fault that may have been a miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PageFault {
    inode: Inode,
    /// Index of the page.
    index: u64,
    pid: u32,
    tid: u32,
    /// When it began, in nanoseconds.
    time: u64,
}

/// The last page fault of each thread whose outcome is unknown.
#[derive(Debug, Default)]
struct PendingFaults {
    by_thread: HashMap<u32, PageFault>,
    newest: u64,
}

impl PendingFaults {
    /// Remembers a fault, in place of an earlier one of its thread.
    fn insert(&mut self, fault: PageFault) {
        if self.by_thread.len() >= MAX_THREADS {
            self.by_thread
                .retain(|_, old| fault.time.saturating_sub(old.time) < MAJOR_FAULT_WINDOW);
            if self.by_thread.len() >= MAX_THREADS {
                // faults of many threads at once: their outcomes are lost, and the memory stays bounded
                self.by_thread.clear();
            }
        }
        self.newest = fault.time;
        self.by_thread.insert(fault.tid, fault);
    }

    /// A thread starts read-ahead. Returns its fault if that was the cause, and forgets it.
    fn take_by_read_ahead(&mut self, ahead: &FileSample, inode: Inode) -> Option<PageFault> {
        let fault = *self.by_thread.get(&ahead.tid)?;
        let covered = fault
            .index
            .checked_sub(ahead.index)
            .is_some_and(|at| at < ahead.pages);
        let age = ahead.time.saturating_sub(fault.time);
        if fault.inode != inode || !covered || age > READ_AHEAD_WINDOW {
            // the fault stays: its own read-ahead may follow
            return None;
        }
        self.by_thread.remove(&ahead.tid)
    }

    /// A thread's page fault ended as a major fault. Returns the thread's last fault of a watched file, and forgets it.
    fn take_by_major_fault(&mut self, tid: u32, time: u64) -> Option<PageFault> {
        self.by_thread
            .remove(&tid)
            // a later major fault of the thread belongs to memory or a file that is not watched
            .filter(|fault| time.saturating_sub(fault.time) <= MAJOR_FAULT_WINDOW)
    }

    /// In how many nanoseconds the outcome of the newest fault should be checked.
    fn next_check(&self, now: u64) -> Option<u64> {
        let age = now.saturating_sub(self.newest);
        let next = CHECK_AGES.into_iter().find(|&check| age < check)?;
        (!self.by_thread.is_empty()).then_some(next - age)
    }
}

/// Decodes samples, which must be passed in the order of their times.
#[derive(Debug)]
pub(crate) struct SampleDecoder {
    mode: CaptureMode,
    /// Watched files: the inode in trace points → the inode in events.
    files: HashMap<Inode, Inode>,
    faults: PendingFaults,
    last: Option<FileSample>,
}

impl SampleDecoder {
    pub(crate) fn new(mode: CaptureMode) -> Self {
        Self {
            mode,
            files: HashMap::new(),
            faults: PendingFaults::default(),
            last: None,
        }
    }

    /// Replaces the watched files: a map from the inode in trace points to the inode in events.
    pub(crate) fn watch(&mut self, files: HashMap<Inode, Inode>) {
        self.files = files;
    }

    /// How long to wait until the rings should be read for the outcome of a fault.
    pub(crate) fn next_check(&self, now: u64) -> Option<Duration> {
        self.faults.next_check(now).map(Duration::from_nanos)
    }

    /// The event that a sample results in, if any.
    pub(crate) fn decode(&mut self, sample: &FileSample) -> Option<Event> {
        let &FileSample {
            meaning,
            index,
            pages,
            pid,
            tid,
            time,
            ..
        } = sample;
        if meaning == SampleMeaning::MajorFault {
            return self
                .faults
                .take_by_major_fault(tid, time)
                .and_then(fault_miss);
        }
        // the rings may still hold samples of a file that is no longer watched
        let &inode = self.files.get(&sample.inode)?;
        if self.is_duplicate(sample) {
            return None;
        }
        let at = PageFault {
            inode,
            index,
            pid,
            tid,
            time,
        };
        match meaning {
            SampleMeaning::Fault => {
                self.faults.insert(at);
                None
            }
            SampleMeaning::ReadAhead => self
                .faults
                .take_by_read_ahead(sample, inode)
                .and_then(fault_miss),
            // for a fault in memory mapped for sequential use, the sample's length is the read-ahead's
            SampleMeaning::SyncRead => match self.faults.take_by_read_ahead(sample, inode) {
                Some(fault) => fault_miss(fault),
                None => event(EventKind::Miss, &at, pages),
            },
            SampleMeaning::Inserted if self.mode == CaptureMode::Misses => {
                event(EventKind::Miss, &at, pages)
            }
            SampleMeaning::Inserted | SampleMeaning::Touch => event(EventKind::Touch, &at, pages),
            SampleMeaning::MajorFault => None,
        }
    }

    /// Whether the sample was written by the perf events of two generations, which overlap while `watch` replaces one by
    /// the other.
    fn is_duplicate(&mut self, sample: &FileSample) -> bool {
        let key = |sample: &FileSample| {
            (
                sample.meaning,
                sample.inode,
                sample.index,
                sample.pages,
                sample.tid,
            )
        };
        let duplicate = self.last.is_some_and(|last| {
            // two equal samples of one generation are two accesses
            last.generation != sample.generation
                && key(&last) == key(sample)
                && sample.time.saturating_sub(last.time) < DUPLICATE_WINDOW
        });
        // a third equal sample is an access of its own
        self.last = if duplicate { None } else { Some(*sample) };
        duplicate
    }
}

fn fault_miss(fault: PageFault) -> Option<Event> {
    // one page: the rest of the read-ahead is the kernel's choice, and no access
    event(EventKind::Miss, &fault, 1)
}

fn event(kind: EventKind, at: &PageFault, pages: u64) -> Option<Event> {
    let page = u64::try_from(rustix::param::page_size()).ok()?;
    let (start, len) = (at.index.checked_mul(page)?, pages.checked_mul(page)?);
    // a range that wraps is not of a file
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

    fn sample(
        meaning: SampleMeaning,
        generation: u32,
        index: u64,
        pages: u64,
        time: u64,
    ) -> FileSample {
        FileSample {
            meaning,
            generation,
            inode: FILE,
            index,
            pages,
            pid: 3,
            tid: 4,
            time,
        }
    }

    fn decoder() -> SampleDecoder {
        let mut decoder = SampleDecoder::new(CaptureMode::Misses);
        decoder.watch(HashMap::from([(FILE, FILE)]));
        decoder
    }

    #[test]
    fn duplicates_of_two_generations_are_dropped() {
        use SampleMeaning::SyncRead;
        let mut decoder = decoder();
        let mut is_event = |generation, index, time| {
            decoder
                .decode(&sample(SyncRead, generation, index, 8, time))
                .is_some()
        };
        assert!(is_event(1, 0, 100));
        assert!(!is_event(2, 0, 400));
        assert!(is_event(2, 0, 500), "the same generation");
        assert!(is_event(3, 0, 500 + DUPLICATE_WINDOW), "later");
        assert!(is_event(4, 8, 501 + DUPLICATE_WINDOW), "other pages");
    }

    #[test]
    fn a_fault_in_sequential_memory_is_a_miss_of_one_page() {
        use SampleMeaning::{Fault, MajorFault, ReadAhead, SyncRead};
        let mut decoder = decoder();
        let page = u64::try_from(rustix::param::page_size()).unwrap();
        assert_eq!(decoder.decode(&sample(Fault, 1, 5, 1, 100)), None);
        let miss = decoder.decode(&sample(SyncRead, 1, 5, 2048, 101)).unwrap();
        assert_eq!((miss.start, miss.len, miss.time), (5 * page, page, 100));
        assert_eq!(decoder.decode(&sample(ReadAhead, 1, 5, 2048, 102)), None);
        assert_eq!(decoder.decode(&sample(MajorFault, 1, 0, 0, 103)), None);
    }

    #[test]
    fn faults_of_cached_pages_and_overflowing_ranges_are_no_events() {
        use SampleMeaning::{Fault, ReadAhead, SyncRead};
        let mut decoder = decoder();
        assert_eq!(decoder.decode(&sample(Fault, 1, 5, 1, 100)), None);
        assert_eq!(
            decoder.decode(&sample(ReadAhead, 1, 6, 32, 101)),
            None,
            "read-ahead at the marker"
        );
        assert_eq!(
            decoder.decode(&sample(SyncRead, 1, u64::MAX - 1, 1, 102)),
            None
        );
        decoder.watch(HashMap::new());
        assert_eq!(decoder.decode(&sample(SyncRead, 1, 0, 1, 103)), None);
    }

    fn fault(index: u64, tid: u32, time: u64) -> PageFault {
        PageFault {
            inode: FILE,
            index,
            pid: 1,
            tid,
            time,
        }
    }

    fn read_ahead(tid: u32, index: u64, pages: u64, time: u64) -> FileSample {
        FileSample {
            tid,
            ..sample(SampleMeaning::ReadAhead, 1, index, pages, time)
        }
    }

    #[test]
    fn a_fault_is_a_miss_once_if_read_ahead_covers_its_page() {
        let mut faults = PendingFaults::default();
        faults.insert(fault(10, 7, 100));
        let [first, last] = CHECK_AGES;
        assert_eq!(faults.next_check(100), Some(first));
        assert_eq!(faults.next_check(100 + first), Some(last - first));
        assert_eq!(
            (faults.next_check(99 + last), faults.next_check(100 + last)),
            (Some(1), None)
        );
        let other = Inode { dev: 1, ino: 3 };
        let mut take = |sample: FileSample, inode: Inode| faults.take_by_read_ahead(&sample, inode);
        assert_eq!(
            take(read_ahead(8, 0, 32, 200), FILE),
            None,
            "another thread"
        );
        assert_eq!(take(read_ahead(7, 0, 32, 200), other), None, "another file");
        assert_eq!(
            take(read_ahead(7, 11, 32, 200), FILE),
            None,
            "read-ahead that starts after the page"
        );
        assert_eq!(
            take(read_ahead(7, 0, 10, 200), FILE),
            None,
            "read-ahead that ends before the page"
        );
        assert_eq!(
            take(read_ahead(7, 10, 1, 200), FILE),
            Some(fault(10, 7, 100))
        );
        assert_eq!(take(read_ahead(7, 0, 32, 200), FILE), None);
        assert_eq!(faults.take_by_major_fault(7, 300), None);
    }

    #[test]
    fn the_last_fault_is_a_miss_if_a_major_fault_follows_without_read_ahead() {
        let mut faults = PendingFaults::default();
        faults.insert(fault(10, 7, 100));
        faults.insert(fault(11, 7, 200));
        let late = read_ahead(7, 0, 32, 200 + READ_AHEAD_WINDOW + 1);
        assert_eq!(faults.take_by_read_ahead(&late, FILE), None);
        assert_eq!(
            faults.take_by_major_fault(7, 50_000_000),
            Some(fault(11, 7, 200))
        );
        faults.insert(fault(10, 7, 100));
        assert_eq!(
            faults.take_by_major_fault(7, 101 + MAJOR_FAULT_WINDOW),
            None,
            "a later major fault, of swapped memory"
        );
    }

    #[test]
    fn the_number_of_remembered_threads_is_bounded() {
        let mut faults = PendingFaults::default();
        for tid in 0..100_000 {
            faults.insert(fault(1, tid, u64::from(tid)));
        }
        assert!(faults.by_thread.len() <= MAX_THREADS);
    }
}
