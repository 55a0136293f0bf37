//! Where files are written and published: in the local file system, or in a bucket.
//!
//! The content of the files (cut, headers, names, index) is common; how they get their names, so that a reader finds a
//! complete checkpoint or none, is not.

use std::fmt;
use std::path::PathBuf;

use crate::base::error::Result;
use crate::engine::companions::CompanionFile;
use crate::plan::TensorSpec;

use super::Sharding;
use super::cut::FileCut;
use super::file::Shard;

/// Where a run writes to.
#[derive(Clone, Debug)]
pub(super) struct OutputTarget {
    pub(super) path: PathBuf,
    pub(super) sharding: Sharding,
    pub(super) overwrite: bool,
    pub(super) stem: String,
    /// The ending of the files.
    pub(super) extension: &'static str,
    /// How URLs are accessed.
    #[cfg(feature = "remote")]
    pub(super) urls: crate::read::source::files::UrlOptions,
}

/// The files of a run.
pub(super) struct NewFiles<'f> {
    pub(super) cut: &'f FileCut,
    pub(super) outputs: &'f [TensorSpec],
    pub(super) companions: &'f [CompanionFile],
}

/// A kind of place that files are written to. Dropped before the files are published, it removes what it has written.
pub(super) trait OutputPlace: fmt::Debug + Send + Sync {
    /// Checks what is there, begins the files, and returns their paths. A refusal changes nothing.
    fn create(&mut self, new: &NewFiles<'_>) -> Result<Vec<PathBuf>>;

    /// Writes bytes of a file, from its byte `start` on. A place that has to wait calls `wait`, with whether requests are under
    /// way, and ends the wait when that returns false.
    fn write(
        &self,
        file: usize,
        start: u64,
        bytes: &[u8],
        wait: &mut dyn FnMut(bool) -> bool,
    ) -> Result<()>;

    /// The file of this number, if bytes of other files can be copied to it.
    fn file(&self, file: usize) -> Option<&Shard> {
        let _ = file;
        None
    }

    /// Gives the files their names, after all bytes have been written.
    fn publish(&mut self, wait: &mut dyn FnMut(bool) -> bool) -> Result<()>;

    /// Writes companion files alone.
    fn write_companions(&mut self, files: &[CompanionFile]) -> Result<()>;

    /// Whether bytes have to arrive about in the order of the files.
    fn is_ordered(&self) -> bool {
        false
    }

    /// Removes what was written, after a failure. Returns what could not be removed, and what to do about it.
    fn discard(&mut self) -> Option<String> {
        None
    }
}
