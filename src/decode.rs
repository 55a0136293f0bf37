//! Decoders: what schemes are made of. Each knows one way in which stored bytes make rows of elements,
//! and leaves the arithmetic to a kernel.

#![allow(clippy::cast_possible_truncation)] // planning saw that a tile fits in this machine's memory

mod affine;
mod blocks;
pub(crate) mod cast;
mod cells;
mod columns;
mod derived;
mod factors;
mod flat;
mod gemv;
pub(crate) mod grouped;
mod indexed;
mod mingled;
mod packed_rows;
mod paired;
mod reordered;
mod rescaled;
mod shuffled;
mod smoothed;
mod turned;
mod ue5m3;
mod views;

use crate::error::{Error, Result};
use crate::limits::zeroed;

pub(crate) use affine::{Affine, Affinity};
pub(crate) use blocks::Blocks;
pub(crate) use cast::Cast;
pub(crate) use columns::{ColumnZeros, Columns, GroupOf, LessOne, ZeroOrder};
pub(crate) use derived::{Derived, Numbers, Place, Source, View};
pub(crate) use factors::Factors;
pub(crate) use flat::{Flat, PerGroup};
pub(crate) use gemv::Gemv;
pub(crate) use grouped::{Codes, Global, Grouped, Planes, Scales, Zeros};
pub(crate) use indexed::Indexed;
pub(crate) use mingled::{Mingled, Seen};
pub(crate) use paired::Paired;
pub(crate) use reordered::{PerRow, Reordered};
pub(crate) use rescaled::Rescaled;
pub(crate) use shuffled::{Nibbles, Shuffled};
pub(crate) use smoothed::{LowRank, Smoothed};
pub(crate) use turned::{Factor, Order, Side, Turned};
pub(crate) use ue5m3::Ue5m3;
pub(crate) use views::{Swizzled, Tiled, Transposed, Woven};

/// Memory for `rows` rows of `row_bytes` bytes of a tile.
fn scratch(rows: usize, row_bytes: usize) -> Result<Vec<u8>> {
    let full = || Error::from(std::io::Error::from(std::io::ErrorKind::OutOfMemory));
    let nbytes = rows.checked_mul(row_bytes).ok_or_else(full)?;
    zeroed(nbytes).ok_or_else(full)
}
