//! Expresses accesses relative to earlier ones, so that regular sequences become equal tokens.

use std::collections::HashMap;

use crate::{StridedFileRange, StridedRange};

/// An access relative to the earlier accesses of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Token {
    /// File number minus the previous access's file number, modulo 2³².
    pub(super) file: i32,
    /// First byte minus the end of the group's last access to this file, modulo 2⁶⁴.
    pub(super) gap: i64,
    pub(super) len: u64,
    pub(super) count: u32,
    /// Bytes between runs: stride minus length.
    pub(super) between: u64,
}

/// The position of a group: the file of its last access, and for each file the end of the last
/// access to it.
#[derive(Debug, Default)]
pub(super) struct GroupPosition {
    file: u32,
    ends: HashMap<u32, u64>,
}

impl GroupPosition {
    /// Converts the next access, which is in normal form, to a token.
    pub(super) fn token(&mut self, range: &StridedFileRange) -> Token {
        let bytes = &range.bytes;
        let end = self.ends.insert(range.file, bytes.end()).unwrap_or(0);
        let file = range.file.wrapping_sub(self.file).cast_signed();
        self.file = range.file;
        Token {
            file,
            // modulo 2^64, so that any start follows any end; the reader's check of the normal form refuses what is out
            // of range
            gap: bytes.start.wrapping_sub(end).cast_signed(),
            len: bytes.len,
            count: u32::try_from(bytes.count).expect("the normal form counts with 32 bits"),
            between: bytes.gap(),
        }
    }

    /// Converts the next token to an access; `None` if it is not in normal form.
    pub(super) fn access(&mut self, token: &Token) -> Option<StridedFileRange> {
        let file = self.file.wrapping_add_signed(token.file);
        let start = self
            .ends
            .get(&file)
            .copied()
            .unwrap_or(0)
            .wrapping_add_signed(token.gap);
        let stride = if token.count == 1 {
            0
        } else {
            token.len.checked_add(token.between)?
        };
        let bytes = StridedRange {
            start,
            len: token.len,
            count: token.count.into(),
            stride,
        };
        if !bytes.is_normal() {
            return None;
        }
        self.ends.insert(file, bytes.end());
        self.file = file;
        Some(StridedFileRange { file, bytes })
    }
}
