//! The bytes of ranges, in the order in which a decoder named them.

use crate::plan::PartBytes;

/// The inputs of a decoder that wraps others, consumed in the order of its own list of ranges.
#[derive(Debug)]
pub(crate) struct InputCursor<'i>(&'i [PartBytes<'i>]);

impl<'i> InputCursor<'i> {
    pub(crate) fn new(inputs: &'i [PartBytes<'i>]) -> Self {
        Self(inputs)
    }

    /// The next `count` ranges: as many as an inner decoder names for its rows. The wrapper has listed them in the same
    /// order, by the same computation.
    pub(crate) fn take(&mut self, count: usize) -> &'i [PartBytes<'i>] {
        self.0
            .split_off(..count)
            .expect("one for each range that was named")
    }

    /// The next range.
    pub(crate) fn next(&mut self) -> PartBytes<'i> {
        self.take(1)[0]
    }
}
