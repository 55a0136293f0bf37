//! The threads of a run: how many, the loop of each, and how they end.
//!
//! All work that several threads do has this form. A worker takes the next item from whatever hands them out (a counter, a
//! queue), works on it, and ends when there is none left, when another worker has failed, or when its own work has: a cancelled
//! run is an error of the work. Threads never outlive the call, so that they borrow what they work on.
//!
//! A pool that is kept (rayon's, for example) would serve none of this: items are handed out in file order, which work stealing
//! does not keep; workers wait for reads, for which such a pool is not made; and starting a thread takes no longer than
//! 256 KiB of its work.

use std::panic::resume_unwind;
use std::sync::atomic::Ordering;
use std::sync::{LazyLock, mpsc};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Duration;

use crate::base::error::Result;
use crate::base::progress::{FirstError, RunProgress};
use crate::base::sync::AtomicU64;

/// Bytes of work that are worth a thread of their own: starting one takes about as long as dequantising or checking
/// this many.
const BYTES_PER_THREAD: u64 = 256 << 10;

/// The thread count to use: `requested`, or one per core if that is 0.
pub(crate) fn thread_count(requested: usize) -> usize {
    /// Queried once: `available_parallelism` reads half a dozen control-group files, which takes longer than a small
    /// load.
    static CORES: LazyLock<usize> =
        LazyLock::new(|| thread::available_parallelism().map_or(1, usize::from));
    if requested == 0 { *CORES } else { requested }
}

/// The thread count to use for `bytes` of work: `requested`, or if that is 0 one per core and at most one per
/// [`BYTES_PER_THREAD`].
pub(crate) fn thread_count_for(requested: usize, bytes: u64) -> usize {
    if requested != 0 {
        return requested;
    }
    let useful = usize::try_from(bytes / BYTES_PER_THREAD)
        .unwrap_or(usize::MAX)
        .max(1);
    thread_count(0).min(useful)
}

/// The loop of a worker: works on items until there is none left or a worker of the run has failed. The first error of the run
/// is kept in `failure`.
pub(crate) fn work_off<T>(
    failure: &FirstError,
    next: impl Fn() -> Option<T>,
    mut work: impl FnMut(T) -> Result<()>,
) {
    while !failure.is_set() {
        let Some(item) = next() else { return };
        if let Err(error) = work(item) {
            failure.set(error);
        }
    }
}

/// Runs `worker` on up to `threads` threads of this name, of which the calling one is one, and returns when all have ended. A
/// panic of one of them continues here.
pub(crate) fn on_threads(name: &str, threads: usize, worker: &(dyn Fn() + Sync)) {
    // no scope for one thread: it would cost a small load an allocation
    if threads <= 1 {
        return worker();
    }
    thread::scope(|scope| {
        // the calling thread suffices, so that a failure to start more is no error
        let others = (1..threads).map_while(|_| start(scope, name, worker));
        let others: Vec<_> = others.collect();
        worker();
        others.into_iter().for_each(join);
    });
}

/// Runs workers like [`on_threads`], but the calling thread invokes `watch` at this interval instead of working, for workers
/// that may all be blocked in the system at once. It works if no other thread can be started.
pub(crate) fn on_watched_threads(
    name: &str,
    threads: usize,
    worker: &(dyn Fn() + Sync),
    interval: Duration,
    watch: &dyn Fn(),
) {
    thread::scope(|scope| {
        // nothing is sent: the channel is closed when the last worker has dropped its end, also by a panic
        let (ended, all_ended) = mpsc::channel::<()>();
        let started = (0..threads).map_while(|_| {
            let ended = ended.clone();
            start(scope, name, move || {
                let _ended = ended;
                worker();
            })
        });
        let started: Vec<_> = started.collect();
        // this end would keep the channel open
        drop(ended);
        if started.is_empty() {
            worker();
        }
        while all_ended.recv_timeout(interval) == Err(mpsc::RecvTimeoutError::Timeout) {
            watch();
        }
        started.into_iter().for_each(join);
    });
}

fn start<'s>(
    scope: &'s Scope<'s, '_>,
    name: &str,
    worker: impl FnOnce() + Send + 's,
) -> Option<ScopedJoinHandle<'s, ()>> {
    let builder = thread::Builder::new().name(name.into());
    // a machine without room for another thread works with the ones that it has
    builder.spawn_scoped(scope, worker).ok()
}

/// Waits for a thread. The scope would replace the text of its panic by one of its own.
fn join(thread: ScopedJoinHandle<'_, ()>) {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic));
}

/// The numbers below a count, each handed out once, in order.
pub(crate) struct NumberQueue {
    next: AtomicU64,
    count: u64,
}

impl NumberQueue {
    pub(crate) fn below(count: u64) -> Self {
        let next = AtomicU64::new(0);
        Self { next, count }
    }

    pub(crate) fn next(&self) -> Option<u64> {
        // relaxed: the number alone decides who works on what, and results are published by locks or the end of the threads
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        (number < self.count).then_some(number)
    }
}

/// Calls `work` with each number below `count`, from up to `threads` threads of this name. Numbers are started in order, one at a
/// time: their work differs by orders of magnitude, so that equal shares would not end together. `room` makes the memory of a
/// thread.
///
/// # Errors
/// The first error of the run, after which no further number is started.
pub(crate) fn side_by_side<R>(
    name: &str,
    count: u64,
    threads: usize,
    progress: &RunProgress<'_>,
    room: impl Fn() -> R + Sync,
    work: impl Fn(u64, &mut R) -> Result<()> + Sync,
) -> Result<()> {
    let numbers = NumberQueue::below(count);
    let useful = usize::try_from(count).unwrap_or(usize::MAX);
    on_threads(name, threads.min(useful), &|| {
        let mut own = room();
        let next = || numbers.next();
        work_off(&progress.failure, next, |number| work(number, &mut own));
    });
    progress.failure.outcome()
}

/// Works side by side, like [`side_by_side`], on the items of a list; `work` receives the index of each too.
pub(crate) fn for_each_of<T: Sync, R>(
    name: &str,
    items: &[T],
    threads: usize,
    progress: &RunProgress<'_>,
    room: impl Fn() -> R + Sync,
    work: impl Fn(usize, &T, &mut R) -> Result<()> + Sync,
) -> Result<()> {
    side_by_side(
        name,
        items.len() as u64,
        threads,
        progress,
        room,
        |number, own| {
            let index = usize::try_from(number).expect("an index of a list");
            work(index, &items[index], own)
        },
    )
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Mutex;
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::base::error::Error;
    use crate::base::progress::RunControl;

    #[test]
    fn little_work_gets_one_thread_unless_more_are_requested() {
        assert_eq!(thread_count_for(0, 0), 1);
        assert_eq!(thread_count_for(0, 2 * BYTES_PER_THREAD - 1), 1);
        assert_eq!(thread_count_for(0, u64::MAX), thread_count(0));
        assert_eq!(thread_count_for(7, 0), 7);
    }
    #[test]
    fn every_number_is_worked_on_once_and_none_after_an_error() {
        for threads in [1, 3] {
            let seen = Mutex::new(Vec::new());
            let progress = RunProgress::new(0, &RunControl::default());
            let room = || 0;
            side_by_side("test", 20, threads, &progress, room, |number, own| {
                *own += 1;
                seen.lock().unwrap().push((number, *own));
                Ok(())
            })
            .unwrap();
            let mut seen = seen.into_inner().unwrap();
            seen.sort_unstable();
            assert!(seen.iter().map(|(number, _)| *number).eq(0..20));
            // the memory of a thread is its own, and lasts as long as the thread
            let begun = seen.iter().filter(|(_, own)| *own == 1).count();
            assert!((1..=threads).contains(&begun), "{begun}");
        }
        let last = Mutex::new(0);
        let progress = RunProgress::new(0, &RunControl::default());
        let items: Vec<usize> = (0..20).collect();
        let room = || ();
        let refused = for_each_of("test", &items, 1, &progress, room, |index, item, ()| {
            assert_eq!(index, *item);
            *last.lock().unwrap() = *item;
            if *item == 3 {
                return Err(Error::invalid_argument("three"));
            }
            Ok(())
        });
        assert!(refused.unwrap_err().to_string().contains("three"));
        assert_eq!(last.into_inner().unwrap(), 3);
    }

    #[test]
    fn a_panic_continues_on_the_calling_thread_with_its_own_text() {
        let caller = thread::current().id();
        let other_ended = AtomicBool::new(false);
        let worker = || {
            if thread::current().id() != caller {
                assert_eq!(thread::current().name(), Some("test"));
                panic!("this text");
            }
            other_ended.store(true, Ordering::Relaxed);
        };
        let interval = Duration::from_millis(1);
        let runs: [&dyn Fn(); 2] = [&|| on_threads("test", 2, &worker), &|| {
            on_watched_threads("test", 2, &worker, interval, &|| ())
        }];
        for run in runs {
            let panic = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
            assert_eq!(panic.downcast_ref(), Some(&"this text"));
        }
        assert!(other_ended.into_inner(), "the caller was the other worker");
    }

    #[test]
    fn a_watch_is_invoked_while_all_workers_are_blocked() {
        let (watched, of_watch) = mpsc::channel();
        let of_watch = Mutex::new(of_watch);
        let worker = || of_watch.lock().unwrap().recv().unwrap();
        let interval = Duration::from_millis(1);
        // each worker ends when the watch was invoked for it
        on_watched_threads("test", 3, &worker, interval, &|| watched.send(()).unwrap());
    }
}
