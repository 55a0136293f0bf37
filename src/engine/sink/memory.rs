//! A sink that stores outputs in the caller's memory.

use crate::base::error::{Error, Result};
use crate::plan::TensorSpec;

use super::Sink;

/// Stores outputs in buffers of the caller, one per output, in plan order.
#[derive(Debug)]
pub struct MemorySink<'b> {
    buffers: Vec<&'b mut [u8]>,
}

impl<'b> MemorySink<'b> {
    /// A sink of these buffers; each must have exactly the length of its output.
    pub fn new(buffers: Vec<&'b mut [u8]>) -> Self {
        Self { buffers }
    }
}

impl Sink for MemorySink<'_> {
    fn begin(&mut self, outputs: &[TensorSpec]) -> Result<()> {
        if outputs.len() != self.buffers.len() {
            return Err(Error::invalid_argument(format!(
                "the plan has {} outputs, and the sink {} buffers",
                outputs.len(),
                self.buffers.len()
            )));
        }
        for (output, buffer) in outputs.iter().zip(&self.buffers) {
            // tiles are decoded right into these buffers, so that a wrong length has to be found before the first
            // tile
            if output.nbytes() != Some(buffer.len() as u64) {
                return Err(Error::invalid_argument(format!(
                    "{output} does not fit a buffer of {} bytes",
                    buffer.len()
                )));
            }
        }
        Ok(())
    }

    fn output_memory(&mut self) -> Option<Vec<&mut [u8]>> {
        Some(self.buffers.iter_mut().map(|b| &mut **b).collect())
    }

    fn put(&self, _: usize, _: u64, _: &[u8]) -> Result<()> {
        unreachable!("a sink that provides memory is not called")
    }
}
