//! The logical bytes of one stored tensor, borrowed where they are mapped.

use std::borrow::Cow;

use crate::base::error::{Error, Result};
use crate::plan::addressable;
use crate::read::catalog::TensorInfo;
use crate::read::checkpoint::Checkpoint;
use crate::read::source::read_exact_at;

/// Bytes of a piece: of both sides they stay in the second-level cache.
pub(super) const PIECE: u64 = 512 << 10;

/// How the logical bytes of a tensor are accessed.
#[derive(Clone, Copy)]
pub(super) enum ByteAccess<'c> {
    /// They are in memory, or mapped.
    Borrowed(&'c [u8]),
    /// Any range of the file can be read.
    Ranges,
    /// From the first byte to the last.
    InOrder,
}

/// A tensor and the access to its bytes.
#[derive(Clone, Copy)]
pub(super) struct TensorBytes<'c> {
    pub(super) checkpoint: &'c Checkpoint,
    pub(super) info: &'c TensorInfo,
    pub(super) access: ByteAccess<'c>,
}

impl<'c> TensorBytes<'c> {
    /// # Errors
    /// A tensor without elements of its own, and a member of an archive that is not what the directory says.
    pub(super) fn new(checkpoint: &'c Checkpoint, info: &'c TensorInfo) -> Result<Self> {
        let tensor = checkpoint.tensor_of(info);
        tensor.readable()?;
        let is_mapped = || checkpoint.source(info.bytes.file).mapped().is_some();
        let access = if tensor.is_stored_as_values() && is_mapped() {
            match tensor.bytes()? {
                Cow::Borrowed(bytes) => ByteAccess::Borrowed(bytes),
                // not with a map; reading in order is always possible
                Cow::Owned(_) => ByteAccess::InOrder,
            }
        } else if addressable(info) {
            ByteAccess::Ranges
        } else {
            ByteAccess::InOrder
        };
        Ok(Self {
            checkpoint,
            info,
            access,
        })
    }

    pub(super) fn is_in_order(&self) -> bool {
        matches!(self.access, ByteAccess::InOrder)
    }

    /// Bytes `start..start + len`, from a map or in `room`. Not for bytes that are read in order.
    pub(super) fn range<'r>(
        &'r self,
        start: u64,
        len: usize,
        room: &'r mut Vec<u8>,
    ) -> Result<&'r [u8]> {
        if let ByteAccess::Borrowed(bytes) = self.access {
            let from = usize::try_from(start).unwrap_or(usize::MAX);
            return bytes
                .get(from..from.saturating_add(len))
                .ok_or_else(|| Error::malformed("a tensor is shorter than its header says"));
        }
        let (at, file) = (
            self.info.bytes.start.saturating_add(start),
            self.info.bytes.file,
        );
        room.resize(len, 0);
        read_exact_at(self.checkpoint.source(file), at, room)
            .map_err(|e| self.checkpoint.place(Error::from(e).at(at), file))?;
        Ok(room)
    }

    /// Announces a range that will be read soon.
    pub(super) fn will_need(&self, start: u64, len: u64) {
        let bytes = self.info.bytes;
        let source = self.checkpoint.source(bytes.file);
        // bytes in memory need no advice
        if source.in_memory().is_none() && !self.is_in_order() && start < bytes.len {
            source.will_need(bytes.start + start, len.min(bytes.len - start));
        }
    }
}
