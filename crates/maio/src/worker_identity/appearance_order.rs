//! Identifies workers by appearance: the first process that reads is worker 0.

use std::collections::HashMap;

use super::IdentityRule;

/// Numbers processes in the order of their first access.
#[derive(Debug, Default)]
pub(super) struct AppearanceOrder(HashMap<u32, u32>);

impl IdentityRule for AppearanceOrder {
    fn rank(&mut self, pid: u32) -> Option<u32> {
        let next = u32::try_from(self.0.len()).ok()?;
        Some(*self.0.entry(pid).or_insert(next))
    }
}
