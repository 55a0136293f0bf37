//! How many threads a run uses.

use std::sync::LazyLock;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_work_gets_one_thread_unless_more_are_requested() {
        assert_eq!(thread_count_for(0, 0), 1);
        assert_eq!(thread_count_for(0, 2 * BYTES_PER_THREAD - 1), 1);
        assert_eq!(thread_count_for(0, u64::MAX), thread_count(0));
        assert_eq!(thread_count_for(7, 0), 7);
    }
}
