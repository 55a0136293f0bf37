//! Numbered pieces of work, done by several threads.

use std::sync::atomic::Ordering;

use crate::base::error::Result;
use crate::base::progress::RunProgress;
use crate::base::sync::AtomicU64;

/// Calls `work` with each number below `count`, in about their order. `room` makes the memory of a thread. Ends at the first
/// error, which it returns.
pub(super) fn for_each<R>(
    threads: usize,
    count: u64,
    progress: &RunProgress<'_>,
    room: impl Fn() -> R + Sync,
    work: impl Fn(u64, &mut R) -> Result<()> + Sync,
) -> Result<()> {
    let next = AtomicU64::new(0);
    let worker = || {
        let mut own = room();
        while !progress.failure.is_set() {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                break;
            }
            if let Err(error) = work(number, &mut own) {
                progress.failure.set(error);
            }
        }
    };
    let threads = u64::try_from(threads).unwrap_or(u64::MAX).min(count);
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(worker);
        }
        // the calling thread is one of them
        worker();
    });
    progress.failure.outcome()
}

/// Pieces of several items, numbered through: of each item as many as it has.
#[derive(Debug)]
pub(super) struct PieceNumbers {
    /// The number of the first piece of each item, and the number of all.
    starts: Vec<u64>,
}

impl PieceNumbers {
    pub(super) fn new(counts: impl IntoIterator<Item = u64>) -> Self {
        let mut starts = vec![0];
        let mut end = 0u64;
        for count in counts {
            end = end.saturating_add(count);
            starts.push(end);
        }
        Self { starts }
    }

    /// The number of all pieces.
    pub(super) fn count(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// The item that a piece is of, and its number among those of the item.
    pub(super) fn find(&self, piece: u64) -> (usize, u64) {
        let item = self.starts.partition_point(|start| *start <= piece) - 1;
        (item, piece - self.starts[item])
    }
}

#[cfg(test)]
mod tests {
    use super::PieceNumbers;

    #[test]
    fn pieces_are_numbered_through() {
        let numbers = PieceNumbers::new([2, 0, 1, 3]);
        let found: Vec<_> = (0..numbers.count()).map(|i| numbers.find(i)).collect();
        assert_eq!(found, [(0, 0), (0, 1), (2, 0), (3, 0), (3, 1), (3, 2)]);
        assert_eq!(PieceNumbers::new([]).count(), 0);
    }
}
