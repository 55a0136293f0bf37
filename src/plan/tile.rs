//! Tiles: the ranges of rows in which an output is computed. They are computed on demand, not stored in the plan.

use std::ops::Range;

use super::{Decoder, PartRanges};

/// A range of rows of one output, and the bytes it is made from, except those that all tiles share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tile {
    /// The ranges to read.
    pub inputs: PartRanges,
    /// The rows of the decoder's grid.
    pub rows: Range<u64>,
}

pub(super) fn tiles(decoder: &dyn Decoder, per_tile: u64) -> impl Iterator<Item = Tile> + '_ {
    (0..decoder.grid().tiles(per_tile)).map(move |i| tile(decoder, per_tile, i))
}

/// Tile number `i` of those with `per_tile` rows each.
pub(crate) fn tile(decoder: &dyn Decoder, per_tile: u64, i: u64) -> Tile {
    // does not overflow: `i` is below the number of tiles
    let start = i * per_tile.max(1);
    let rows = start
        ..decoder
            .grid()
            .rows
            .min(start.saturating_add(per_tile.max(1)));
    Tile {
        inputs: decoder.inputs(rows.clone()),
        rows,
    }
}
