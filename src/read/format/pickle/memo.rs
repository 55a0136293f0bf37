//! The memo of the pickle machine: values that the pickle can refer to again, by numbers that the pickle chooses.

use hashbrown::HashMap;

use crate::base::error::Result;
use crate::base::limits::Budget;

use super::value_heap::ValueId;

/// The memo. Real writers count from 0, so numbers are indices of a table. A number far beyond the end of the table is
/// kept in a map instead: otherwise the two opcodes that store at number 2³² - 1 would allocate gigabytes.
#[derive(Default)]
pub(super) struct Memo {
    dense: Vec<Option<ValueId>>,
    sparse: HashMap<u32, ValueId>,
    /// Number of distinct numbers stored: MEMOIZE stores at this number.
    len: u32,
}

const WHAT: &str = "the pickle's memo";

impl Memo {
    /// Number of entries by which the table grows.
    const STEP: usize = 256;

    pub(super) fn put(&mut self, number: u32, id: ValueId, budget: &Budget) -> Result<()> {
        let index = number as usize;
        // so that an opcode adds at most two steps of empty entries to the table
        if index >= self.dense.len() + Self::STEP {
            budget.memory(48, WHAT)?; // an entry of the map with its share of empty buckets
            self.len += u32::from(self.sparse.insert(number, id).is_none());
            return Ok(());
        }
        if index >= self.dense.len() {
            let len = (index + 1).next_multiple_of(Self::STEP);
            // twice, because a vector doubles its capacity when it grows
            budget.memory(
                2 * ((len - self.dense.len()) * size_of::<Option<ValueId>>()) as u64,
                WHAT,
            )?;
            self.dense.resize(len, None);
        }
        // MEMOIZE numbers by the count of distinct entries, so that storing twice at one number must not count twice
        let known = self.dense[index].is_some()
            || (!self.sparse.is_empty() && self.sparse.contains_key(&number));
        self.len += u32::from(!known);
        self.dense[index] = Some(id);
        Ok(())
    }

    pub(super) fn get(&self, number: u32) -> Option<ValueId> {
        // a number can be in both, if the table grew over it: the table then has the later value
        let dense = self.dense.get(number as usize).copied().flatten();
        dense.or_else(|| self.sparse.get(&number).copied())
    }

    pub(super) fn len(&self) -> u32 {
        self.len
    }
}
