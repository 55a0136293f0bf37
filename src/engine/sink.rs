//! Sinks: where the outputs of a plan are stored.

pub(crate) mod container;
pub(crate) mod files;
mod memory;
mod null;
mod reordered;
mod writer;

use std::ops::ControlFlow;
use std::path::Path;

use crate::base::error::{Error, Result};
use crate::plan::{PlanId, TensorSpec};
use crate::read::source::Source;

pub use container::{Container, GGUF, GgufType, GgufValue, HeaderValue, NPY, NPZ, SAFETENSORS};
pub(crate) use files::in_place;
pub(crate) use files::{FileOrigin, check_replaceable, file_form, file_metadata, found_file};
pub use files::{
    FileSink, OutputDirectory, OutputFile, SafetensorsSink, Sharding, check_target,
    safetensors_header, write_companions,
};
pub use memory::MemorySink;
pub use null::NullSink;
pub(crate) use reordered::ReorderedSink;
pub use writer::TensorWriter;

/// An output whose bytes are a range of a source as they are stored.
#[derive(Clone, Copy)]
pub struct StoredOutput<'s> {
    /// Index of the output.
    pub output: usize,
    /// The file that has the bytes.
    pub source: &'s dyn Source,
    /// The path of that file, for errors.
    pub path: Option<&'s Path>,
    /// Offset of the first byte in the source.
    pub start: u64,
    /// Bytes of the output; not 0.
    pub len: u64,
}

/// Copies outputs from file to file: what a [`Sink`] offers that writes files. Their bytes need not pass through the memory of
/// the process, and those that follow one another in both files are copied together.
///
/// ```
/// use anamnesis::catalog::Shape;
/// use anamnesis::plan::TensorSpec;
/// use anamnesis::sink::{FileSink, Sharding, Sink, StoredOutput};
/// use anamnesis::source::FileSource;
/// use anamnesis::{Checkpoint, Dtype};
///
/// # let path = std::env::temp_dir().join(format!("anamnesis-copies-{}.safetensors", std::process::id()));
/// let mut sink = FileSink::new(&path, Sharding::SingleFile);
/// sink.begin(&[TensorSpec::new("w", Shape::from_slice(&[8]), Dtype::U8)])?;
/// let source = FileSource::new(std::fs::File::open("fixtures/safetensors/all_dtypes.safetensors")?)?;
/// let output = StoredOutput { output: 0, source: &source, path: None, start: 0, len: 8 };
/// // a sink of memory, or of a bucket, has none
/// if let Some(copies) = sink.copies() {
///     copies.copy(&[output], 1, &|_| Ok(()))?;
/// }
/// sink.end()?;
/// assert_eq!(Checkpoint::open(&path)?.tensors().len(), 1);
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), anamnesis::Error>(())
/// ```
pub trait StoredCopies: Sync {
    /// Stores these outputs, each of them whole, from up to `threads` threads. `copied` is called with the number of bytes that
    /// were stored since the last call, at least after every 4 MiB; its error ends the copy.
    ///
    /// # Errors
    /// Bytes that cannot be read, with the path of their source; the errors of [`Sink::put`]; an error of `copied`.
    fn copy(
        &self,
        outputs: &[StoredOutput<'_>],
        threads: usize,
        copied: &(dyn Fn(u64) -> Result<()> + Sync),
    ) -> Result<()>;
}

impl std::fmt::Debug for StoredOutput<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut fields = f.debug_struct("StoredOutput");
        fields
            .field("number", &self.output)
            .field("path", &self.path);
        fields.field("start", &self.start).field("len", &self.len);
        fields.finish_non_exhaustive()
    }
}

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

    /// The sink's own way to store outputs that are ranges of files, once [`begin`](Self::begin) was called. With `None`, they are
    /// [put](Self::put) as others are.
    fn copies(&self) -> Option<&dyn StoredCopies> {
        None
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
