//! Identifies workers by appearance: the first process that reads is worker 0.

use std::collections::HashMap;

use super::{IdentityRule, MAX_PROCESSES};

/// Numbers processes in the order of their first access.
///
/// A process that does not read is forgotten after [`MAX_PROCESSES`] others have appeared, or at the latest after twice as
/// many. One that reads keeps its number: it is looked up whenever [`WorkerIdentifier`](super::WorkerIdentifier) has
/// cleared its own map, which it does at least as often as this one.
#[derive(Debug, Default)]
pub(super) struct AppearanceOrder {
    recent: HashMap<u32, u32>,
    /// The content of `recent` when it was last full.
    older: HashMap<u32, u32>,
    next: u32,
}

impl IdentityRule for AppearanceOrder {
    fn rank(&mut self, pid: u32) -> Option<u32> {
        if let Some(&rank) = self.recent.get(&pid) {
            return Some(rank);
        }
        let rank = self.older.remove(&pid).unwrap_or_else(|| {
            let rank = self.next;
            self.next = self.next.wrapping_add(1);
            rank
        });
        if self.recent.len() >= MAX_PROCESSES {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(pid, rank);
        Some(rank)
    }
}

impl AppearanceOrder {
    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.recent.len() + self.older.len()
    }
}
