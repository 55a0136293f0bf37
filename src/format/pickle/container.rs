//! Tuples, lists, dicts and sets: made of what lies on the stack, and filled from it.

use crate::error::{Error, Result};

use super::Machine;
use super::heap::Value;

impl Machine<'_, '_> {
    /// Makes what lies on the stack from `from` on into a tuple.
    pub(super) fn tuple(&mut self, from: usize) -> Result<()> {
        let span = self.heap.add_items(&self.stack[from..])?;
        self.stack.truncate(from);
        self.value(Value::Tuple(span))
    }

    pub(super) fn container(&mut self, from: usize, kind: impl FnOnce(u32) -> Value) -> Result<()> {
        let index = self.heap.add_open(&self.stack[from..])?;
        self.stack.truncate(from);
        self.value(kind(index))
    }

    /// Moves what lies on the stack from `from` on into the container below it.
    fn extend(&mut self, from: usize, index: u32) -> Result<()> {
        self.heap.extend(index, &self.stack[from..])?;
        self.stack.truncate(from);
        Ok(())
    }

    /// The container that lies under `from`.
    fn target(&self, from: usize) -> Result<Value> {
        let floor = self.marks.last().copied().unwrap_or(0);
        match from.checked_sub(1).filter(|&at| at >= floor) {
            Some(at) => Ok(self.heap.get(self.stack[at])),
            None => Err(Error::malformed(
                "the pickle fills a container that is not there",
            )),
        }
    }

    pub(super) fn append(&mut self, from: usize, name: &str) -> Result<()> {
        match self.target(from)? {
            Value::List(index) => self.extend(from, index),
            _ => Err(Error::malformed(format!(
                "{name} to something that is not a list"
            ))),
        }
    }

    pub(super) fn add_items(&mut self, from: usize) -> Result<()> {
        match self.target(from)? {
            Value::Set(index) => self.extend(from, index),
            _ => Err(Error::malformed("ADDITEMS to something that is not a set")),
        }
    }

    pub(super) fn pairs(&self, from: usize) -> Result<()> {
        if !(self.stack.len() - from).is_multiple_of(2) {
            return Err(Error::malformed("a dict with a key and no value"));
        }
        Ok(())
    }

    pub(super) fn set_items(&mut self, from: usize) -> Result<()> {
        self.pairs(from)?;
        match self.target(from)? {
            Value::Dict { items, .. } => self.extend(from, items),
            _ => Err(Error::malformed("SETITEM on something that is not a dict")),
        }
    }
}
