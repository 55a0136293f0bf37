//! Pieces of several tensors, numbered through, for threads that take one at a time.

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

    /// The item that a piece is of, and its number among the pieces of the item.
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
