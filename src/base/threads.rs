//! How many threads a run uses.

use std::sync::atomic::Ordering;
use std::sync::{LazyLock, PoisonError};

use crate::base::error::Result;
use crate::base::sync::{AtomicUsize, PoisonMutex};

/// Bytes of work that are worth a thread of their own: starting one takes about as long as dequantising or checking
/// this many.
const BYTES_PER_THREAD: u64 = 256 << 10;

/// The thread count to use: `requested`, or one per core if that is 0.
pub(crate) fn thread_count(requested: usize) -> usize {
    /// Queried once: `available_parallelism` reads half a dozen control-group files, which takes longer than a small
    /// load.
    static CORES: LazyLock<usize> =
        LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from));
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

/// Calls `work` with the numbers 0 to `count`, from up to `threads` threads, of which the calling one is one. Numbers are
/// started in order, one at a time: their work differs by orders of magnitude, so that equal shares would not end together.
///
/// # Errors
/// The first error of `work`, after which no further number is started.
pub(crate) fn side_by_side(
    count: usize,
    threads: usize,
    work: &(dyn Fn(usize) -> Result<()> + Sync),
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let failure = PoisonMutex::new(None);
    let worker = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return;
            }
            if let Err(error) = work(number) {
                next.store(count, Ordering::Relaxed);
                let mut failure = failure.lock().unwrap_or_else(PoisonError::into_inner);
                failure.get_or_insert(error);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(count) {
            scope.spawn(worker);
        }
        worker();
    });
    let failure = failure.into_inner().unwrap_or_else(PoisonError::into_inner);
    failure.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::Error;

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
            let seen = PoisonMutex::new(Vec::new());
            side_by_side(20, threads, &|number| {
                seen.lock().unwrap().push(number);
                Ok(())
            })
            .unwrap();
            let mut seen = seen.into_inner().unwrap();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..20), "{threads}");
        }
        let last = PoisonMutex::new(0);
        let refused = side_by_side(20, 1, &|number| {
            *last.lock().unwrap() = number;
            if number == 3 {
                return Err(Error::invalid_argument("three"));
            }
            Ok(())
        });
        assert!(refused.unwrap_err().to_string().contains("three"));
        assert_eq!(last.into_inner().unwrap(), 3);
    }
}
