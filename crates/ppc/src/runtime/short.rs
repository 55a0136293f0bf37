//! Whether memory is short, looked at often and read seldom.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::cache::{Memory, Usage};

/// A figure that is younger is believed.
const FRESH: Duration = Duration::from_millis(2);

/// The memory of a scope, against a threshold.
#[derive(Debug)]
pub(super) struct Short {
    memory: Memory,
    threshold: f64,
    last: Mutex<Option<(Instant, Usage)>>,
}

impl Short {
    pub(super) fn new(memory: Memory, threshold: f64) -> Self {
        Self {
            memory,
            threshold,
            last: Mutex::default(),
        }
    }

    /// What is used and may be; `None` where it cannot be read.
    fn usage(&self) -> Option<Usage> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, usage)) = last.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return Some(usage.clone());
        }
        let usage = self.memory.used().ok()?;
        *last = Some((Instant::now(), usage.clone()));
        Some(usage)
    }

    /// Bytes that may still be brought; all where it cannot be read.
    pub(super) fn room(&self) -> u64 {
        self.usage()
            .map_or(u64::MAX, |usage| usage.room(self.threshold))
    }

    /// Whether policies shall be asked what to let go: a little before nothing more can be brought.
    pub(super) fn is_near(&self) -> bool {
        const NEAR: f64 = 0.05;
        self.usage()
            .is_some_and(|usage| usage.share() > self.threshold - NEAR)
    }
}
