//! How many threads work.

use std::sync::LazyLock;

/// Bytes that are worth a thread, which takes as long to start as making or checking so many does.
const SHARE: u64 = 256 << 10;

/// So many threads; as many as there are cores for 0.
pub(crate) fn threads(asked: usize) -> usize {
    /// Asked once: the answer takes a look into half a dozen files of the control groups, longer than a small load.
    static CORES: LazyLock<usize> =
        LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from));
    if asked == 0 { *CORES } else { asked }
}

/// So many threads; for 0 as many as there are cores, and as so many bytes are worth.
pub(crate) fn threads_for(asked: usize, bytes: u64) -> usize {
    let worth = usize::try_from(bytes / SHARE).unwrap_or(usize::MAX).max(1);
    if asked == 0 {
        threads(0).min(worth)
    } else {
        asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_bytes_are_worth_one_thread_unless_more_are_asked_for() {
        assert_eq!(threads_for(0, 0), 1);
        assert_eq!(threads_for(0, 2 * SHARE - 1), 1);
        assert_eq!(threads_for(0, u64::MAX), threads(0));
        assert_eq!(threads_for(7, 0), 7);
    }
}
