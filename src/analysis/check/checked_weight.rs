//! A weight, and what was counted in its values.

use crate::plan::Job;
use crate::read::catalog::elements;

use super::value_sink::OutputValues;

/// A weight whose values were looked at.
pub(super) struct ScannedWeight {
    pub(super) job: Job,
    pub(super) values: OutputValues,
}

impl ScannedWeight {
    /// Elements of the output.
    pub(super) fn elements(&self) -> u64 {
        elements(&self.job.output.shape).unwrap_or(u64::MAX)
    }
}
