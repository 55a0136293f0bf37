//! The pairs that both passes go over.

use crate::base::limits::Budget;

use super::CheckpointDiff;
use super::alike::SideTensor;
use super::pairing::TensorPair;
use super::sides::Side;

/// All pairs of a run, and what a pass needs.
pub(super) struct ComparedPairs<'p, 'c> {
    pub(super) diff: &'p CheckpointDiff<'c>,
    pub(super) pairs: &'p [TensorPair],
    pub(super) a: &'p Side<'p>,
    pub(super) b: &'p Side<'p>,
    pub(super) threads: usize,
    pub(super) budget: &'p Budget,
}

impl<'p> ComparedPairs<'p, '_> {
    /// The two tensors of a pair.
    pub(super) fn sides(&self, pair: &TensorPair) -> (SideTensor<'p, 'p>, SideTensor<'p, 'p>) {
        let x = SideTensor {
            side: self.a,
            tensor: &self.a.tensors[pair.a],
        };
        let y = SideTensor {
            side: self.b,
            tensor: &self.b.tensors[pair.b],
        };
        (x, y)
    }

    /// Whether one byte that differs is all that the caller wants to know.
    pub(super) fn first_byte_decides(&self) -> bool {
        self.diff.verdict_only && !self.diff.values
    }
}
