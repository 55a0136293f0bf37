//! Memory usage of a scope compared with a threshold, cached for a short time.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::cache::{MemoryMeter, MemoryUsage};

/// For how long a reading is reused. Prefetch threads compute their headroom before every piece, and a reading parses
/// several files of the control groups.
const MAX_AGE: Duration = Duration::from_millis(2);
/// Evictions are requested when the used share of the limit is within this distance of the threshold, so that memory is
/// freed before prefetching has to stop.
const EVICTION_MARGIN: f64 = 0.05;

/// The memory usage of a scope and the threshold for it.
#[derive(Debug)]
pub(super) struct PressureMeter {
    memory: MemoryMeter,
    threshold: f64,
    last: Mutex<Option<(Instant, MemoryUsage)>>,
}

impl PressureMeter {
    pub(super) fn new(memory: MemoryMeter, threshold: f64) -> Self {
        Self {
            memory,
            threshold,
            last: Mutex::default(),
        }
    }

    /// Usage and limit; `None` if they cannot be read.
    fn usage(&self) -> Option<MemoryUsage> {
        // under the lock for the whole reading, so that threads that find it outdated at once read it once
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, usage)) = last.as_ref().filter(|(at, _)| at.elapsed() < MAX_AGE) {
            return Some(usage.clone());
        }
        let usage = self.memory.usage_without_file().ok()?;
        *last = Some((Instant::now(), usage.clone()));
        Some(usage)
    }

    /// How many bytes may be prefetched before the threshold is reached; unlimited if the usage cannot be read.
    pub(super) fn room(&self) -> u64 {
        self.usage()
            .map_or(u64::MAX, |usage| usage.room(self.threshold))
    }

    /// Whether policies should evict.
    pub(super) fn is_high(&self) -> bool {
        self.usage()
            .is_some_and(|usage| usage.share() > self.threshold - EVICTION_MARGIN)
    }
}
