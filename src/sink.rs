//! Sinks: where outputs are kept.

mod memory;
mod null;
pub(crate) mod safetensors;

use crate::error::Result;
use crate::plan::TensorSpec;

pub use memory::Memory;
pub use null::Null;
pub use safetensors::{Extent, SafetensorsSink};

/// Keeps outputs. Pieces arrive in any order, from several threads.
///
/// A sink that has memory for the outputs lends it, and elements are made right in it; another gets them
/// piece by piece from buffers that stay in the cache.
pub trait Sink: Sync {
    /// Says what will come. Called once, first.
    ///
    /// # Errors
    /// If there is no room for it.
    fn begin(&mut self, outputs: &[TensorSpec]) -> Result<()>;

    /// Room for each output, as long as it is. `None`: [`put`](Self::put) is called instead.
    fn lend(&mut self) -> Option<Vec<&mut [u8]>> {
        None
    }

    /// Keeps bytes of output number `output`, from byte `start` of it.
    ///
    /// # Errors
    /// If they cannot be kept.
    fn put(&self, output: usize, start: u64, bytes: &[u8]) -> Result<()>;

    /// Called once, last, if all outputs came. A sink that is dropped before leaves nothing behind.
    ///
    /// # Errors
    /// If the outputs cannot be kept after all.
    fn end(&mut self) -> Result<()> {
        Ok(())
    }
}
