//! One format by itself: the doors that each [`Format`] has of its own.

use std::io::{Read, Seek};
use std::path::Path;

use crate::error::Result;
use crate::format::Format;
use crate::inspect::Summary;

use super::{Checkpoint, OpenOptions};

impl Format {
    /// Lists a file as this format, whatever its first bytes look like.
    ///
    /// # Errors
    /// As [`Checkpoint::open`], and when the file is not of this format.
    ///
    /// ```
    /// let summary = anamnesis::format::npy::FORMAT.inspect("fixtures/npy/v1.npy")?;
    /// assert_eq!(summary.tensors.len(), 1);
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    pub fn inspect(&'static self, path: impl AsRef<Path>) -> Result<Summary> {
        Ok(OpenOptions::new().format(self).open(path)?.inspect())
    }

    /// Lists what a reader holds as this format.
    ///
    /// # Errors
    /// As [`inspect`](Self::inspect).
    pub fn inspect_reader(
        &'static self,
        reader: impl Read + Seek + Send + 'static,
    ) -> Result<Summary> {
        Ok(Checkpoint::from_reader_with(reader, &OpenOptions::new().format(self))?.inspect())
    }
}
