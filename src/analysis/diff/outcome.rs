//! The findings about one pair, and their consequences.

use super::ValueTolerance;
use super::moments::Moments;

/// The findings about a pair.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PairOutcome {
    /// Whether the stored bytes are equal, of tensors that are stored alike.
    pub(super) bytes_equal: Option<bool>,
    /// The sums over the values, element by element.
    pub(super) sums: Option<Moments>,
    /// Whether one is the other, transposed.
    pub(super) transposed: bool,
}

impl PairOutcome {
    /// Whether the tensors are equal: by their bytes, or by their values where equal values may have other bytes.
    pub(super) fn is_equal(&self) -> bool {
        match self.bytes_equal {
            Some(equal) => equal,
            None => self.sums.is_some_and(|sums| sums.differing == 0),
        }
    }

    /// Whether the stored bytes were compared, and are equal.
    pub(super) fn has_equal_bytes(&self) -> bool {
        self.bytes_equal == Some(true)
    }

    /// Whether the values are equal, or within a tolerance.
    pub(super) fn is_within(&self, tolerance: Option<ValueTolerance>) -> bool {
        if self.has_equal_bytes() {
            return true;
        }
        let Some(sums) = self.sums else { return false };
        if sums.differing == 0 {
            return true;
        }
        let Some(ValueTolerance { nmse, max_abs }) = tolerance else {
            return false;
        };
        // the sums leave these elements out, so no tolerance covers them
        sums.not_finite == 0
            // without bounds nothing is tolerated
            && (nmse.is_some() || max_abs.is_some())
            && nmse.is_none_or(|most| sums.nmse().is_some_and(|nmse| nmse <= most))
            && max_abs.is_none_or(|most| sums.max <= most)
    }
}
