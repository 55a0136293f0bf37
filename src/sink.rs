//! Sinks: where the outputs of a plan are stored.

mod memory;
mod null;
pub(crate) mod safetensors;

use crate::error::Result;
use crate::plan::TensorSpec;

pub use memory::MemorySink;
pub use null::NullSink;
pub use safetensors::{SafetensorsSink, Sharding, write_companions};

/// Stores outputs. Parts of them arrive in any order, from several threads.
///
/// A sink that has memory for the outputs returns it from [`output_memory`](Self::output_memory), and elements are decoded right into it.
/// Any other sink receives them part by part through [`put`](Self::put), from buffers that stay in the cache.
pub trait Sink: Sync {
    /// Receives the list of outputs. Called once, before anything else.
    ///
    /// # Errors
    /// The outputs cannot be stored: no space, or a name or dtype that the sink does not support.
    fn begin(&mut self, outputs: &[TensorSpec]) -> Result<()>;

    /// Memory for each output, of exactly its length. With `None`, [`put`](Self::put) is called instead.
    fn output_memory(&mut self) -> Option<Vec<&mut [u8]>> {
        None
    }

    /// Stores bytes of the output with index `output`, from its byte `start` on.
    ///
    /// # Errors
    /// The bytes cannot be stored.
    fn put(&self, output: usize, start: u64, bytes: &[u8]) -> Result<()>;

    /// Called once, after all outputs are complete. A sink that is dropped without it leaves nothing behind.
    ///
    /// # Errors
    /// The outputs cannot be published.
    fn end(&mut self) -> Result<()> {
        Ok(())
    }
}
