//! A sink whose outputs are made in another order than that in which it knows them.

use std::ops::ControlFlow;

use crate::base::error::Result;
use crate::plan::TensorSpec;

use super::Sink;

/// Passes the bytes of an output to a sink under the number that the sink knows. The sink has begun, and provides no memory.
pub(crate) struct ReorderedSink<'s> {
    pub(crate) sink: &'s mut dyn Sink,
    /// The sink's numbers, in the order in which outputs are made.
    pub(crate) order: &'s [usize],
}

impl Sink for ReorderedSink<'_> {
    fn begin(&mut self, _outputs: &[TensorSpec]) -> Result<()> {
        Ok(())
    }

    fn put(&self, output: usize, start: u64, bytes: &[u8]) -> Result<()> {
        self.sink.put(self.order[output], start, bytes)
    }

    fn put_while(
        &self,
        output: usize,
        start: u64,
        bytes: &[u8],
        flow: &dyn Fn() -> ControlFlow<()>,
    ) -> Result<()> {
        self.sink.put_while(self.order[output], start, bytes, flow)
    }
}
