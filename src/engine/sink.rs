//! Sinks: where the outputs of a plan are stored.

pub(crate) mod container;
pub(crate) mod files;
mod memory;
mod null;
mod reordered;
mod writer;

use std::ops::ControlFlow;

use crate::base::error::{Error, Result};
use crate::plan::{PlanId, TensorSpec};

pub use container::{Container, GGUF, GgufType, GgufValue, HeaderValue, NPY, NPZ, SAFETENSORS};
pub(crate) use files::in_place;
pub(crate) use files::{FileOrigin, check_replaceable, file_form, file_metadata, found_file};
pub use files::{
    FileSink, OutputDirectory, OutputFile, SafetensorsSink, Sharding, write_companions,
};
pub use memory::MemorySink;
pub use null::NullSink;
pub(crate) use reordered::ReorderedSink;
pub use writer::TensorWriter;

/// Stores outputs. Parts of them arrive in any order, from several threads.
///
/// A sink that has memory for the outputs returns it from [`output_memory`](Self::output_memory), and elements are decoded right into it.
/// Any other sink receives them part by part through [`put`](Self::put), from buffers that stay in the cache.
pub trait Sink: Sync {
    /// Receives, before anything else, what computes the id of the plan. A sink that does not store the id does not call it:
    /// the digest of a large plan costs time.
    fn identify(&mut self, _id: &dyn Fn() -> PlanId) {}

    /// Receives the list of outputs. Called once, before their bytes.
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

    /// The order in which the outputs have to be made, once [`begin`](Self::begin) was called: each index once. With `None`, in any.
    fn order(&self) -> Option<Vec<usize>> {
        None
    }

    /// Like [`put`](Self::put), for a caller that makes outputs in the [order](Self::order) of the sink, with several
    /// threads. A sink that waits for bytes which others of them put calls `flow` at least every 100 ms, and returns an
    /// error once it returns `Break`.
    ///
    /// # Errors
    /// The errors of [`put`](Self::put), and [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
    fn put_while(
        &self,
        output: usize,
        start: u64,
        bytes: &[u8],
        flow: &dyn Fn() -> ControlFlow<()>,
    ) -> Result<()> {
        let _ = flow;
        self.put(output, start, bytes)
    }

    /// Called once, after all outputs are complete. A sink that is dropped without it leaves nothing behind.
    ///
    /// # Errors
    /// The outputs cannot be published.
    fn end(&mut self) -> Result<()> {
        Ok(())
    }

    /// Like [`end`](Self::end), for a sink that waits for others: it calls `flow` as in [`put_while`](Self::put_while).
    ///
    /// # Errors
    /// The errors of [`end`](Self::end), and [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
    fn end_while(&mut self, flow: &dyn Fn() -> ControlFlow<()>) -> Result<()> {
        let _ = flow;
        self.end()
    }

    /// Called once in place of [`end`](Self::end), or after it, when the run has failed. A sink that has to undo what it has done elsewhere does it
    /// now, and returns the error, with what could not be undone.
    fn fail(&mut self, error: Error) -> Error {
        error
    }
}
