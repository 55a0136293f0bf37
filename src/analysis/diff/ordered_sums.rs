//! Sums of pieces that arrive in any order, added in theirs: the result does not depend on the number of threads.

use std::collections::BTreeMap;

use super::moments::Moments;

/// The sum of the first pieces, and what arrived ahead of its turn.
#[derive(Debug, Default)]
pub(super) struct OrderedSums {
    sum: Moments,
    /// The number of the piece that is added next.
    next: u64,
    /// Pieces behind it: about one per thread.
    early: BTreeMap<u64, Moments>,
}

impl OrderedSums {
    pub(super) fn add(&mut self, piece: u64, sums: Moments) {
        self.early.insert(piece, sums);
        while let Some(sums) = self.early.remove(&self.next) {
            self.sum.append(&sums);
            self.next += 1;
        }
    }

    /// The sum of all pieces. Where a comparison ended early, of those that were compared.
    pub(super) fn sum(mut self) -> Moments {
        for sums in self.early.values() {
            self.sum.append(sums);
        }
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_added_in_their_order() {
        let piece = |aa: f64| Moments {
            aa,
            ..Moments::default()
        };
        // sums of these in another order are others
        let values = [1.0, 1e16, -1e16, 3.0];
        let sum_of = |order: [u64; 4]| {
            let mut sums = OrderedSums::default();
            for i in order {
                sums.add(i, piece(values[usize::try_from(i).unwrap()]));
            }
            assert!(sums.early.is_empty());
            sums.sum().aa
        };
        assert_eq!(sum_of([0, 1, 2, 3]), 3.0);
        assert_eq!(sum_of([3, 1, 2, 0]), 3.0);
        assert_eq!(sum_of([2, 3, 0, 1]), 3.0);
    }
}
