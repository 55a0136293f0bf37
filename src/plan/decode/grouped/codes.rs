//! The codes of a [`Grouped`](super::Grouped): their packing, and the planes that rows share.

use std::ops::Range;

use crate::base::kernel::{CodePacking, CodeValue};

/// How codes are stored, and which value each stands for.
#[derive(Debug)]
pub(crate) struct Codes {
    pub(crate) packing: CodePacking,
    pub(crate) value: CodeValue,
    /// Bytes of a stored row.
    pub(crate) row_bytes: u64,
    /// Several rows share the bytes of one stored row. `None`: each row has its own bytes.
    pub(crate) planes: Option<Planes>,
}

/// Codes in planes: row `p * stored + r` is in stored row `r`, in the bits of plane `p` of each word.
#[derive(Debug)]
pub(crate) struct Planes {
    /// Stored rows.
    pub(crate) stored: u64,
    /// Bytes of a stored word; it holds one code of each plane.
    pub(crate) word: usize,
    /// Bits of a code.
    pub(crate) bits: u32,
    /// The lowest bit of each plane's codes.
    pub(crate) shifts: Vec<u32>,
}

/// Rows whose codes are contiguous and in the same plane.
pub(crate) struct CodeRun {
    pub(crate) stored: Range<u64>,
    pub(crate) packing: CodePacking,
}

impl Codes {
    /// Codes of which each row has its own bytes.
    pub(crate) fn new(packing: CodePacking, value: CodeValue, row_bytes: u64) -> Self {
        Self {
            packing,
            value,
            row_bytes,
            planes: None,
        }
    }

    /// The stored rows of these rows, plane by plane.
    pub(crate) fn runs(&self, rows: Range<u64>) -> impl Iterator<Item = CodeRun> + '_ {
        let stored = self
            .planes
            .as_ref()
            // without planes, all rows are in one
            .map_or(u64::MAX, |planes| planes.stored);
        let planes = rows.start / stored..rows.end.div_ceil(stored);
        planes.map(move |plane| {
            // a run lies in one plane; a tile that crosses planes has several
            let base = plane * stored;
            let packing = match &self.planes {
                Some(planes) => {
                    CodePacking::Plane(planes.word, planes.shifts[plane as usize], planes.bits)
                }
                None => self.packing,
            };
            CodeRun {
                stored: rows.start.max(base) - base..(rows.end - base).min(stored),
                packing,
            }
        })
    }
}
