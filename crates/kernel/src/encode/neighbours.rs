//! The points of a grid that are nearest to each point off the grid.
//!
//! llama.cpp sorts all points of a grid for each point off it, which takes seconds; the nearest ones follow from a histogram of the
//! distances, in milliseconds.

use std::sync::OnceLock;

use crate::tables;

/// A grid, its map from packed codes to entries, and the neighbours of all other codes.
pub(super) struct NeighbourGrid {
    /// Coordinates of each point: twice its code plus one.
    points: Vec<[i8; 8]>,
    /// Coordinates of a point: eight, or four.
    dims: usize,
    /// Bits of a code.
    bits: usize,
    /// For packed codes: the entry, or minus one minus the place of the list of neighbours.
    map: Vec<i32>,
    /// Lists: a count, and that many entries.
    lists: Vec<u16>,
}

impl NeighbourGrid {
    /// A grid of points with `dims` codes below `levels`, and lists of the points at the `wanted` least distances.
    fn new(codes: &[[u8; 8]], dims: usize, levels: u8, wanted: usize) -> Self {
        let bits = if levels <= 4 { 2 } else { 3 };
        let coordinate = |code: u8| 2 * code.cast_signed() + 1;
        let points: Vec<[i8; 8]> = codes.iter().map(|codes| codes.map(coordinate)).collect();
        let mut made = Self {
            points,
            dims,
            bits,
            map: vec![i32::MIN; 1 << (bits * dims)],
            lists: Vec::new(),
        };
        for (entry, codes) in codes.iter().enumerate() {
            let packed = made.pack(&codes[..dims]);
            made.map[packed] = entry as i32;
        }
        let mut distances = vec![0_u16; codes.len()];
        let count = usize::from(levels).pow(dims as u32);
        let mut point = [0_u8; 8];
        for _ in 0..count {
            let packed = made.pack(&point[..dims]);
            if made.map[packed] == i32::MIN {
                made.map[packed] = -1 - made.lists.len() as i32;
                made.add_list(point.map(coordinate), wanted, &mut distances);
            }
            // the next point, as a number of `levels` digits
            for code in &mut point[..dims] {
                *code += 1;
                if *code < levels {
                    break;
                }
                *code = 0;
            }
        }
        made
    }

    fn add_list(&mut self, point: [i8; 8], wanted: usize, distances: &mut [u16]) {
        // the greatest distance is 4 · 14² of codes of three bits
        let mut counts = [0_u16; 1024];
        for (distance, other) in distances.iter_mut().zip(&self.points) {
            let squares = point.iter().zip(other).take(self.dims);
            let squares = squares.map(|(a, b)| i16::from(a - b) * i16::from(a - b));
            *distance = squares.sum::<i16>().cast_unsigned();
            counts[usize::from(*distance)] += 1;
        }
        let start = self.lists.len();
        self.lists.push(0);
        let near = counts.iter().enumerate().filter(|(_, count)| **count > 0);
        for (distance, _) in near.take(wanted) {
            let own = distances.iter().enumerate();
            let own = own.filter(|(_, own)| usize::from(**own) == distance);
            self.lists.extend(own.map(|(entry, _)| entry as u16));
        }
        self.lists[start] = (self.lists.len() - start - 1) as u16;
    }

    /// Codes as one number.
    pub(super) fn pack(&self, codes: &[u8]) -> usize {
        let codes = codes.iter().enumerate();
        codes.fold(0, |packed, (i, code)| {
            packed | usize::from(*code) << (self.bits * i)
        })
    }

    /// The entry of packed codes, or their neighbours.
    pub(super) fn find(&self, packed: usize) -> Result<u16, &[u16]> {
        match self.map[packed] {
            entry @ 0.. => Ok(entry as u16),
            place => {
                let start = (-1 - place) as usize;
                Err(&self.lists[start + 1..][..usize::from(self.lists[start])])
            }
        }
    }

    /// The codes of an entry.
    pub(super) fn codes(&self, entry: u16) -> [u8; 8] {
        self.points[usize::from(entry)].map(|c| ((c - 1) / 2).cast_unsigned())
    }

    /// The coordinates of an entry.
    pub(super) fn point(&self, entry: u16) -> &[i8; 8] {
        &self.points[usize::from(entry)]
    }
}

/// Eight codes of a decoder's entry, whose bytes are the values of codes.
fn eight<const N: usize>(table: &[u64; N], code: fn(u8) -> u8) -> Vec<[u8; 8]> {
    table
        .iter()
        .map(|entry| entry.to_le_bytes().map(code))
        .collect()
}

fn four<const N: usize>(table: &[u32; N], code: fn(u8) -> u8) -> Vec<[u8; 8]> {
    let codes = |entry: &u32| {
        let [a, b, c, d] = entry.to_le_bytes().map(code);
        [a, b, c, d, 0, 0, 0, 0]
    };
    table.iter().map(codes).collect()
}

/// Values of IQ2's grids.
fn iq2_code(value: u8) -> u8 {
    match value {
        0x08 => 0,
        0x19 => 1,
        _ => 2,
    }
}

macro_rules! grids {
    ($($name:ident: $codes:expr, $dims:literal, $levels:literal, $wanted:literal;)*) => {
        $(pub(super) fn $name() -> &'static NeighbourGrid {
            static GRID: OnceLock<NeighbourGrid> = OnceLock::new();
            GRID.get_or_init(|| NeighbourGrid::new(&$codes, $dims, $levels, $wanted))
        })*
    };
}

grids! {
    iq2_xxs: eight(&tables::IQ2_XXS, iq2_code), 8, 3, 2;
    iq2_xs: eight(&tables::IQ2_XS, iq2_code), 8, 3, 2;
    iq2_s: eight(&tables::IQ2_S, iq2_code), 8, 3, 1;
    // −1, 0 and 1
    iq1: eight(&tables::IQ1, |value| value.wrapping_add(1)), 8, 3, 3;
    // 0x04, 0x0c, … 0x3e
    iq3_xxs: four(&tables::IQ3_XXS, |value| value / 8), 4, 8, 2;
    // 1, 3, … 15
    iq3_s: four(&tables::IQ3_S, |value| value / 2), 4, 8, 3;
}
