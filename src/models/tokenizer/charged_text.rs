//! A text whose growth is charged on the budget.

use std::io;

use crate::base::error::{Error, Result};
use crate::base::limits::Budget;

/// A text that is written piece by piece.
pub(super) struct ChargedText<'b> {
    bytes: Vec<u8>,
    budget: &'b Budget,
    what: &'static str,
    /// The error of the budget: writers report errors of their own type.
    refusal: Option<Error>,
}

impl<'b> ChargedText<'b> {
    pub(super) fn new(budget: &'b Budget, what: &'static str) -> Self {
        Self {
            bytes: Vec::new(),
            budget,
            what,
            refusal: None,
        }
    }

    /// The text, or what ended the writing.
    pub(super) fn finish(self, written: serde_json::Result<()>) -> Result<Vec<u8>> {
        match (self.refusal, written) {
            (Some(refusal), _) => Err(refusal),
            (None, Ok(())) => Ok(self.bytes),
            // a metadata value that JSON cannot hold; keys and values are texts and numbers otherwise
            (None, Err(error)) => Err(Error::malformed(error.to_string())),
        }
    }
}

impl io::Write for ChargedText<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Err(refusal) = self.budget.reserve(&mut self.bytes, bytes.len(), self.what) {
            self.refusal = Some(refusal);
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
