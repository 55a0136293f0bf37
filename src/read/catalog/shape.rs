//! The sizes of a tensor.

use std::ops::{Deref, DerefMut};

use smallvec::SmallVec;

use crate::base::error::Result;
use crate::base::limits::Budget;

/// Sizes per dimension, outermost first (row-major; the reverse of GGUF's `ne[]`). Empty for a scalar.
///
/// Dereferences to `[u64]`. Up to four dimensions are stored inline, which saves an allocation per tensor.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Shape(SmallVec<[u64; 4]>);

/// The sizes alone, as in messages: `[2, 3]`.
impl std::fmt::Debug for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self[..].fmt(f)
    }
}

impl Shape {
    /// The shape of a scalar: no dimensions.
    #[inline]
    pub fn new() -> Self {
        Self::default()
    }

    /// A shape with these sizes.
    #[inline]
    pub fn from_slice(sizes: &[u64]) -> Self {
        Self(SmallVec::from_slice(sizes))
    }

    /// The sizes as a slice.
    #[inline]
    pub fn as_slice(&self) -> &[u64] {
        &self.0
    }

    /// Appends an innermost dimension whose number of predecessors a file decides, and charges the memory by which the
    /// shape grows.
    #[inline]
    pub(crate) fn push_charged(&mut self, size: u64, budget: &Budget) -> Result<()> {
        if self.0.len() == self.0.capacity() {
            // twice what is held, and a copy of it while it is moved out of the inline storage
            let grown = 3 * size_of_val(&*self.0) as u64;
            budget.memory(grown, "a shape")?;
        }
        self.0.push(size);
        Ok(())
    }

    /// Appends an innermost dimension.
    #[inline]
    pub fn push(&mut self, size: u64) {
        self.0.push(size);
    }
}

impl Deref for Shape {
    type Target = [u64];

    #[inline]
    fn deref(&self) -> &[u64] {
        &self.0
    }
}

impl DerefMut for Shape {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u64] {
        &mut self.0
    }
}

impl From<&[u64]> for Shape {
    #[inline]
    fn from(sizes: &[u64]) -> Self {
        Self::from_slice(sizes)
    }
}

impl<const N: usize> From<[u64; N]> for Shape {
    #[inline]
    fn from(sizes: [u64; N]) -> Self {
        Self::from_slice(&sizes)
    }
}

impl FromIterator<u64> for Shape {
    fn from_iter<I: IntoIterator<Item = u64>>(sizes: I) -> Self {
        Self(SmallVec::from_iter(sizes))
    }
}

impl<'s> IntoIterator for &'s Shape {
    type Item = &'s u64;
    type IntoIter = std::slice::Iter<'s, u64>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}
