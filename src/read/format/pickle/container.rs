//! The opcodes that construct tuples, lists, dicts and sets from the stack, and those that add items to them.

use crate::base::error::{Error, Result};

use super::Machine;
use super::value_heap::PickleValue;

impl Machine<'_, '_> {
    /// Replaces the values on the stack from index `from` on by a tuple of them.
    pub(super) fn tuple(&mut self, from: usize) -> Result<()> {
        let span = self.heap.add_items(&self.stack[from..])?;
        self.stack.truncate(from);
        self.push_value(PickleValue::Tuple(span))
    }

    /// Replaces the values on the stack from index `from` on by a container of them; `kind` makes its value.
    pub(super) fn container(
        &mut self,
        from: usize,
        kind: impl FnOnce(u32) -> PickleValue,
    ) -> Result<()> {
        let index = self.heap.add_container(&self.stack[from..])?;
        self.stack.truncate(from);
        self.push_value(kind(index))
    }

    /// Moves the values on the stack from index `from` on into a container.
    fn extend(&mut self, from: usize, index: u32) -> Result<()> {
        self.heap.extend(index, &self.stack[from..])?;
        self.stack.truncate(from);
        Ok(())
    }

    /// The value on the stack below index `from`, which items are added to. It must be above the last MARK. For an opaque
    /// object, the container of its items, of this kind.
    fn target(
        &mut self,
        from: usize,
        kind: impl FnOnce(u32) -> PickleValue,
    ) -> Result<PickleValue> {
        // a value below the last MARK belongs to an outer construction
        let floor = self.marks.last().copied().unwrap_or(0);
        let at = from.checked_sub(1).filter(|&at| at >= floor);
        let at = at.ok_or_else(|| {
            Error::malformed("the pickle adds items without a container on the stack")
        })?;
        let target = self.heap.get(self.stack[at]);
        // an object of a class that is derived from a container
        if let PickleValue::Call(index) = target
            && let Some(items) = self.heap.opaque_items(index, kind)?
        {
            return Ok(items);
        }
        Ok(target)
    }

    pub(super) fn append(&mut self, from: usize, name: &str) -> Result<()> {
        match self.target(from, PickleValue::List)? {
            PickleValue::List(index) => self.extend(from, index),
            _ => Err(Error::malformed(format!(
                "{name}: the target is not a list"
            ))),
        }
    }

    pub(super) fn add_items(&mut self, from: usize) -> Result<()> {
        match self.target(from, PickleValue::Set)? {
            PickleValue::Set(index) => self.extend(from, index),
            _ => Err(Error::malformed("ADDITEMS: the target is not a set")),
        }
    }

    /// Checks that the values from index `from` on are pairs of key and value.
    pub(super) fn pairs(&self, from: usize) -> Result<()> {
        if !(self.stack.len() - from).is_multiple_of(2) {
            return Err(Error::malformed("a dict has a key with no value"));
        }
        Ok(())
    }

    pub(super) fn set_items(&mut self, from: usize) -> Result<()> {
        self.pairs(from)?;
        let dict = |items| PickleValue::Dict {
            items,
            class: false,
        };
        match self.target(from, dict)? {
            PickleValue::Dict { items, .. } => self.extend(from, items),
            _ => Err(Error::malformed("SETITEM: the target is not a dict")),
        }
    }
}
