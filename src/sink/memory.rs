//! Outputs in the caller's memory.

use crate::error::{Error, Result};
use crate::plan::TensorSpec;

use super::Sink;

/// Buffers that the caller owns, one per output, in the plan's order.
#[derive(Debug)]
pub struct Memory<'b> {
    buffers: Vec<&'b mut [u8]>,
}

impl<'b> Memory<'b> {
    /// These buffers; each must be as long as its output.
    pub fn new(buffers: Vec<&'b mut [u8]>) -> Self {
        Self { buffers }
    }
}

impl Sink for Memory<'_> {
    fn begin(&mut self, outputs: &[TensorSpec]) -> Result<()> {
        if outputs.len() != self.buffers.len() {
            return Err(Error::misuse(format!(
                "{} outputs, and {} buffers",
                outputs.len(),
                self.buffers.len()
            )));
        }
        for (output, buffer) in outputs.iter().zip(&self.buffers) {
            if output.nbytes() != Some(buffer.len() as u64) {
                return Err(Error::misuse(format!(
                    "{output} does not fit a buffer of {} bytes",
                    buffer.len()
                )));
            }
        }
        Ok(())
    }

    fn lend(&mut self) -> Option<Vec<&mut [u8]>> {
        Some(self.buffers.iter_mut().map(|b| &mut **b).collect())
    }

    fn put(&self, _: usize, _: u64, _: &[u8]) -> Result<()> {
        unreachable!("elements are made in the memory that was lent")
    }
}
