//! Tiles: the pieces in which an output is made.

use std::ops::Range;

use super::{Decoder, Spans};

/// Some rows of an output and what they are made from, besides what all tiles share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tile {
    /// What is read.
    pub inputs: Spans,
    /// Which rows of the decoder's grid come out.
    pub rows: Range<u64>,
}

pub(super) fn tiles(decoder: &dyn Decoder, per_tile: u64) -> impl Iterator<Item = Tile> + '_ {
    (0..decoder.grid().tiles(per_tile)).map(move |i| tile(decoder, per_tile, i))
}

/// The tile with this number.
pub(crate) fn tile(decoder: &dyn Decoder, per_tile: u64, i: u64) -> Tile {
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
