//! What several threads share of a run that may fail: who fails first tells, and the others stop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Result};

/// The first error of a run, if there was one.
#[derive(Default)]
pub(crate) struct Failure {
    seen: AtomicBool,
    first: Mutex<Option<Error>>,
}

impl Failure {
    /// Whether there is nothing left to do.
    pub(crate) fn is_seen(&self) -> bool {
        self.seen.load(Ordering::Relaxed)
    }

    /// Keeps the first; those of other threads follow from stopping.
    pub(crate) fn tell(&self, error: Error) {
        self.seen.store(true, Ordering::Relaxed);
        self.first
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(error);
    }

    /// The outcome of the run.
    pub(crate) fn outcome(&self) -> Result<()> {
        self.first
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
            .map_or(Ok(()), Err)
    }
}
