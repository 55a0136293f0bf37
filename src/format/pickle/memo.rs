//! The memo: values that the pickle will refer to again, by numbers of its own choice.

use hashbrown::HashMap;

use crate::error::Result;
use crate::limits::Budget;

use super::heap::Id;

/// Writers count from 0, so numbers are indices of a table. A number far beyond the table goes into
/// a map instead: it must not make the table long.
#[derive(Default)]
pub(super) struct Memo {
    dense: Vec<Option<Id>>,
    sparse: HashMap<u32, Id>,
    /// Distinct numbers, which is what MEMOIZE counts.
    len: u32,
}

const WHAT: &str = "the pickle's memo";

impl Memo {
    /// How far beyond its end the table grows at once.
    const STEP: usize = 256;

    pub(super) fn put(&mut self, number: u32, id: Id, budget: &Budget) -> Result<()> {
        let index = number as usize;
        if index >= self.dense.len() + Self::STEP {
            budget.memory(48, WHAT)?; // a map's entry, with its share of the empty ones
            self.len += u32::from(self.sparse.insert(number, id).is_none());
            return Ok(());
        }
        if index >= self.dense.len() {
            let len = (index + 1).next_multiple_of(Self::STEP);
            // twice: a growing vector keeps room to spare
            budget.memory(
                2 * ((len - self.dense.len()) * size_of::<Option<Id>>()) as u64,
                WHAT,
            )?;
            self.dense.resize(len, None);
        }
        let known = self.dense[index].is_some()
            || (!self.sparse.is_empty() && self.sparse.contains_key(&number));
        self.len += u32::from(!known);
        self.dense[index] = Some(id);
        Ok(())
    }

    pub(super) fn get(&self, number: u32) -> Option<Id> {
        // a number can be in both: the table then has the later value
        let dense = self.dense.get(number as usize).copied().flatten();
        dense.or_else(|| self.sparse.get(&number).copied())
    }

    pub(super) fn len(&self) -> u32 {
        self.len
    }
}
