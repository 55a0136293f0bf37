//! Accesses relative to the ones before, so that what is regular becomes the same numbers again and again.

use std::collections::HashMap;

use crate::Runs;

/// An access without its place: what is between it and the accesses before in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Token {
    /// File minus the file of the access before; modulo 2³².
    pub(super) file: i32,
    /// First byte minus the end of the group's last access to this file; modulo 2⁶⁴.
    pub(super) gap: i64,
    pub(super) len: u64,
    pub(super) count: u32,
    /// Bytes between runs: stride minus length.
    pub(super) between: u64,
}

/// Where a group is: the file of its last access, and in each file the end of its last access there.
#[derive(Debug, Default)]
pub(super) struct Place {
    file: u32,
    ends: HashMap<u32, u64>,
}

impl Place {
    /// The token of the next access, which has the form of a template's.
    pub(super) fn token(&mut self, runs: &Runs) -> Token {
        let end = self.ends.insert(runs.file, runs.end()).unwrap_or(0);
        let file = runs.file.wrapping_sub(self.file).cast_signed();
        self.file = runs.file;
        Token {
            file,
            gap: runs.start.wrapping_sub(end).cast_signed(),
            len: runs.len,
            count: runs.count,
            between: runs.stride.saturating_sub(runs.len),
        }
    }

    /// The access of the next token; `None` if it has not the form of a template's.
    pub(super) fn access(&mut self, token: &Token) -> Option<Runs> {
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
        let runs = Runs {
            file,
            count: token.count,
            start,
            len: token.len,
            stride,
        };
        if !runs.is_normal() {
            return None;
        }
        self.ends.insert(file, runs.end());
        self.file = file;
        Some(runs)
    }
}
