//! The keys that are made.

use crate::base::error::Result;
use crate::base::limits::Budget;
use crate::read::format::gguf::GgufValue;

const WHAT: &str = "the general keys";

/// Keys with their values, which are charged.
pub(super) struct KeyList<'b> {
    budget: &'b Budget,
    pub(super) keys: Vec<(String, GgufValue)>,
}

impl<'b> KeyList<'b> {
    pub(super) fn new(budget: &'b Budget) -> Self {
        Self {
            budget,
            keys: Vec::new(),
        }
    }

    /// Adds `general.NAME`.
    pub(super) fn push(&mut self, name: &str, value: GgufValue) -> Result<()> {
        let key = format!("general.{name}");
        self.budget.text(key.len(), WHAT)?;
        self.budget.text(value.bytes().len(), WHAT)?;
        self.budget.push(&mut self.keys, (key, value), WHAT)
    }
}
