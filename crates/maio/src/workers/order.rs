//! The first process that reads is the first worker.

use std::collections::HashMap;

use super::Rule;

/// Counts processes.
#[derive(Debug, Default)]
pub(super) struct Order(HashMap<u32, u32>);

impl Rule for Order {
    fn rank(&mut self, pid: u32) -> Option<u32> {
        let next = u32::try_from(self.0.len()).ok()?;
        Some(*self.0.entry(pid).or_insert(next))
    }
}
