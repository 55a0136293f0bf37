//! Transposing a panel of a stored matrix: columns of packed codes become rows of one byte per code.
//!
//! The common layouts (4 and 8 bits) are transposed in registers: stored rows are loaded as they lie, then words and bytes
//! are exchanged by [`Simd::transpose_u32`] and [`Simd::transpose_u8`]. The other widths go through an array.

use std::ops::Range;

use super::super::{Simd, Stage};
use super::codes::{column_code, planar, stream};
use super::{CodeWidth, ColumnCodes, ColumnGeometry};
use crate::unroll::unroll;

/// Codes of a column in a panel: a multiple of 32, so that packed units are never split.
pub(super) const CHUNK: usize = 512;
/// Columns of a panel. With 512 codes each, a panel takes 18 KiB of the first-level cache; experiment 35 compares other
/// shapes.
pub(super) const WIDTH: usize = 32;
/// Bytes of a panel's row: a chunk, and one cache line that a vector load from any position may reach into.
pub(super) const PANEL_ROW: usize = CHUNK + 64;

/// Codes, one byte each, by column. Rows are aligned to cache lines, so that no vector of 32 codes spans two lines: a tenth
/// faster (experiment 35).
#[repr(align(64))]
pub(super) struct Panel(pub(super) [[u8; PANEL_ROW]; WIDTH]);

impl Panel {
    pub(super) fn new() -> Self {
        Self([[0; PANEL_ROW]; WIDTH])
    }
}

/// Fills a panel with the codes of the columns `which` (indices into the geometry's columns) and the elements `rows`. A
/// stage, since all output types have the same panels.
pub(super) struct PanelTransposition<'p> {
    pub(super) columns: &'p ColumnGeometry,
    pub(super) bytes: &'p [u8],
    pub(super) which: Range<usize>,
    pub(super) rows: Range<usize>,
    pub(super) panel: &'p mut Panel,
}

impl Stage for PanelTransposition<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        transpose(simd, self);
    }
}

#[inline(always)]
fn transpose<S: Simd>(simd: S, transposition: PanelTransposition<'_>) {
    let PanelTransposition {
        columns,
        bytes,
        which,
        rows,
        panel,
    } = transposition;
    let stride = columns.stride;
    match columns.codes {
        ColumnCodes::Down(width) => {
            // 32 codes of a column are as many words as a code has bits
            let stored = rows.start / 32 * width.bits() as usize;
            let bytes = &bytes[(stored * stride).min(bytes.len())..];
            match width {
                // 4 and 8 bits are a single plane, so both layouts are the same
                CodeWidth::Stream(4) | CodeWidth::Planar(4) => {
                    transpose_words::<S, 4>(simd, bytes, stride, which, rows.len(), panel)
                }
                CodeWidth::Stream(8) | CodeWidth::Planar(8) => {
                    transpose_words::<S, 8>(simd, bytes, stride, which, rows.len(), panel)
                }
                CodeWidth::Stream(2) => {
                    unpack_down::<2>(bytes, stride, which, rows.len(), panel, stream::<2>)
                }
                CodeWidth::Stream(3) => {
                    unpack_down::<3>(bytes, stride, which, rows.len(), panel, stream::<3>)
                }
                CodeWidth::Stream(5) => {
                    unpack_down::<5>(bytes, stride, which, rows.len(), panel, stream::<5>)
                }
                CodeWidth::Stream(6) => {
                    unpack_down::<6>(bytes, stride, which, rows.len(), panel, stream::<6>)
                }
                CodeWidth::Stream(_) => {
                    unpack_down::<7>(bytes, stride, which, rows.len(), panel, stream::<7>)
                }
                CodeWidth::Planar(2) => {
                    unpack_down::<2>(bytes, stride, which, rows.len(), panel, planar::<2>)
                }
                CodeWidth::Planar(3) => {
                    unpack_down::<3>(bytes, stride, which, rows.len(), panel, planar::<3>)
                }
                CodeWidth::Planar(5) => {
                    unpack_down::<5>(bytes, stride, which, rows.len(), panel, planar::<5>)
                }
                CodeWidth::Planar(6) => {
                    unpack_down::<6>(bytes, stride, which, rows.len(), panel, planar::<6>)
                }
                CodeWidth::Planar(_) => {
                    unpack_down::<7>(bytes, stride, which, rows.len(), panel, planar::<7>)
                }
            }
        }
        ColumnCodes::Awq4 => transpose_awq(
            simd,
            &bytes[rows.start * stride..],
            stride,
            which,
            rows.len(),
            panel,
        ),
        ColumnCodes::Across(width) => unpack_across(
            &bytes[rows.start * stride..],
            stride,
            width,
            which,
            rows.len(),
            panel,
            false,
        ),
        ColumnCodes::AwqStream(width) => unpack_across(
            &bytes[rows.start * stride..],
            stride,
            width,
            which,
            rows.len(),
            panel,
            true,
        ),
        ColumnCodes::Bytes => transpose_bytes(
            simd,
            &bytes[rows.start * stride..],
            stride,
            which,
            rows.len(),
            panel,
        ),
    }
}

/// The `N` bytes from `start` on, of which `len` matter. Near the end of the input the rest is zero.
#[inline(always)]
fn row_part<const N: usize>(bytes: &[u8], start: usize, len: usize) -> [u8; N] {
    let bytes = bytes.get(start..).unwrap_or_default();
    // enough input, though bytes from `len` on belong to other columns: they are never read from the panel
    if let Some(whole) = bytes.first_chunk() {
        return *whole;
    }
    let mut padded = [0; N];
    let len = len.min(bytes.len());
    padded[..len].copy_from_slice(&bytes[..len]);
    padded
}

/// The bytes that `count` rows' parts of `N` bytes lie in, or `None` if the input ends before. One check here replaces a
/// check per row: AWQ 3.0 → 4.6, GPTQ 4.5 → 6.4 × 10⁹ elements per second (experiment 25).
#[inline(always)]
fn stack<const N: usize>(bytes: &[u8], start: usize, stride: usize, count: usize) -> Option<&[u8]> {
    bytes.get(start..)?.get(..(count - 1) * stride + N)
}

/// The part of row `k` in a [`stack`]. Indexing by row number is kept: walking the stack by chunks takes 15 % more
/// instructions (experiment 44).
#[inline(always)]
fn part<const N: usize>(stack: &[u8], stride: usize, k: usize) -> &[u8; N] {
    stack[k * stride..]
        .first_chunk()
        .expect("the stack holds a part of each row")
}

/// Transposes GPTQ's words with codes of `B` bits, 4 or 8, eight columns at a time.
///
/// Four stored rows of eight words are loaded, of which each word holds consecutive codes of its column. Transposed as
/// words, 16 bytes of a vector are the codes of one column, and only nibbles are left to unpack.
#[inline(always)]
fn transpose_words<S: Simd, const B: usize>(
    simd: S,
    bytes: &[u8],
    stride: usize,
    which: Range<usize>,
    count: usize,
    panel: &mut Panel,
) {
    // 32 codes of a column are 4 words of 4 bits or 8 words of 8 bits: one or two groups of four stored rows
    for unit in 0..count.div_ceil(32) {
        for (first, lines) in which.clone().step_by(8).zip(panel.0.as_chunks_mut::<8>().0) {
            let len = (which.end - first).min(8) * 4;
            for four in 0..B / 4 {
                let mut rows = [simd.splat_u8(0); 4];
                let start = (unit * B + 4 * four) * stride + first * 4;
                if let (32, Some(stack)) = (len, stack::<32>(bytes, start, stride, 4)) {
                    for (k, row) in rows.iter_mut().enumerate() {
                        *row = simd.load_u8(part(stack, stride, k));
                    }
                } else {
                    for (b, row) in rows.iter_mut().enumerate() {
                        *row = simd.load_u8(&row_part(bytes, start + b * stride, len));
                    }
                }
                // vector i has the four words of column i in its low half, of column i + 4 in its high half
                let transposed = simd.transpose_u32(rows);
                for (i, words) in transposed.into_iter().enumerate() {
                    // four words are 32 codes of 4 bits, two to a byte, or 16 codes of 8 bits
                    if B == 4 {
                        let codes = simd.unpack_nibbles_interleaved(words);
                        *slot(&mut lines[i], unit * 32) = simd.to_u8_array(codes[0]);
                        *slot(&mut lines[i + 4], unit * 32) = simd.to_u8_array(codes[1]);
                    } else {
                        let codes = simd.to_u8_array(words);
                        // 16 bytes are columns i and i + 4 again
                        let halves = codes.as_chunks::<16>().0;
                        *slot(&mut lines[i], unit * 32 + four * 16) = halves[0];
                        *slot(&mut lines[i + 4], unit * 32 + four * 16) = halves[1];
                    }
                }
            }
        }
    }
}

/// Where `N` codes go in a panel's row.
#[inline(always)]
fn slot<const N: usize>(line: &mut [u8; PANEL_ROW], at: usize) -> &mut [u8; N] {
    line[at..]
        .first_chunk_mut()
        .expect("a chunk is a multiple of 32 codes")
}

/// Transposes 16 rows of 32 bytes halfway, `$row` being the vector of row `$k`: element `[w][i]` of the result has, of
/// bytes `4 * w .. 4 * w + 4` of each half, rows `4 * i .. 4 * i + 4`, byte by byte. Transposing the words of element `[w]`
/// completes it.
///
/// A macro, since a closure must not hold operations (see [`crate::isa::kernel`]). Rows are loaded four at a time where
/// they are used: an array of 16 was stored and reloaded, which stalled on store forwarding (experiment 36).
macro_rules! transpose_fours {
    ($simd:ident, $k:ident => $row:expr) => {{
        let mut fours = [[$simd.splat_u8(0); 4]; 4];
        for i in 0..4 {
            let rows = unroll!($k in [4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3] => $row);
            for (four, transposed) in fours.iter_mut().zip($simd.transpose_u32(rows)) {
                four[i] = $simd.transpose_u8(transposed);
            }
        }
        fours
    }};
}

/// Transposes bytes, 16 rows of up to 32 columns at a time.
#[inline(always)]
fn transpose_bytes<S: Simd>(
    simd: S,
    bytes: &[u8],
    stride: usize,
    which: Range<usize>,
    count: usize,
    panel: &mut Panel,
) {
    // flipping the sign bit makes signed codes unsigned, with a zero point of 128
    let sign = simd.splat_u8(0x80);
    let len = which.len();
    for start in (0..count).step_by(16) {
        let at = start * stride + which.start;
        let transposed = if let (32, Some(stack)) = (len, stack::<32>(bytes, at, stride, 16)) {
            // adding 0x80 flips the sign bit, as an exclusive or would, for which there is no operation
            transpose_fours!(simd, k => simd.add_u8(sign, simd.load_u8(part(stack, stride, k))))
        } else {
            transpose_fours!(simd, k => simd.add_u8(sign, simd.load_u8(&row_part(bytes, at + k * stride, len))))
        };
        for (j, fours) in transposed.into_iter().enumerate() {
            for (b, codes) in simd.transpose_u32(fours).into_iter().enumerate() {
                let codes = simd.to_u8_array(codes);
                let halves = codes.as_chunks::<16>().0;
                *slot(&mut panel.0[4 * j + b], start) = halves[0];
                *slot(&mut panel.0[4 * j + b + 16], start) = halves[1];
            }
        }
    }
}

/// Transposes GPTQ's words of other widths through an array: `B` words of a column hold 32 codes.
#[inline(always)]
fn unpack_down<const B: usize>(
    bytes: &[u8],
    stride: usize,
    which: Range<usize>,
    count: usize,
    panel: &mut Panel,
    expand: impl Fn(&[[u8; 4]; B], &mut [u8; 32]),
) {
    for unit in 0..count.div_ceil(32) {
        let mut transposed = [[[0; 4]; B]; WIDTH];
        for b in 0..B {
            // a depth that is no multiple of 32 may lack the last words
            let Some(row) = bytes.get((unit * B + b) * stride..) else {
                break;
            };
            let row = row
                .as_chunks::<4>()
                .0
                .get(which.clone())
                .unwrap_or_default();
            if let Some(row) = row.first_chunk::<WIDTH>() {
                for i in 0..WIDTH {
                    transposed[i][b] = row[i];
                }
            } else {
                for (word, transposed) in row.iter().zip(&mut transposed) {
                    transposed[b] = *word;
                }
            }
        }
        for (words, line) in transposed.iter().zip(&mut panel.0).take(which.len()) {
            let out = line[unit * 32..]
                .first_chunk_mut()
                .expect("a chunk is a multiple of 32 codes");
            expand(words, out);
        }
    }
}

/// The position of each of eight codes in AWQ's word, in nibbles: code 1 is nibble 4.
pub const AWQ_ORDER: [usize; 8] = [0, 4, 1, 5, 2, 6, 3, 7];

/// Transposes AWQ's words, four words (32 columns) and 32 rows at a time. Bytes are transposed first and nibbles split last,
/// which halves the bytes to move.
#[inline(always)]
fn transpose_awq<S: Simd>(
    simd: S,
    bytes: &[u8],
    stride: usize,
    which: Range<usize>,
    count: usize,
    panel: &mut Panel,
) {
    let low_nibble = simd.splat_u8(15);
    let len = which.len() / 2;
    for start in (0..count).step_by(32) {
        let at = start * stride + which.start / 2;
        // rows k and k + 16 share a vector, so that a transposed vector has 32 codes of a column
        let transposed = if let (16, Some(stack)) = (len, stack::<16>(bytes, at, stride, 32)) {
            transpose_fours!(simd, k => simd.concat_u8x16(part(stack, stride, k), part(stack, stride, k + 16)))
        } else {
            transpose_fours!(simd, k => {
                simd.concat_u8x16(&row_part(bytes, at + k * stride, len), &row_part(bytes, at + (k + 16) * stride, len))
            })
        };
        for (fours, lines) in transposed.into_iter().zip(panel.0.as_chunks_mut::<8>().0) {
            for (b, plane) in simd.transpose_u32(fours).into_iter().enumerate() {
                *slot(&mut lines[NIBBLE_COLUMNS[2 * b]], start) =
                    simd.to_u8_array(simd.and(plane, low_nibble));
                *slot(&mut lines[NIBBLE_COLUMNS[2 * b + 1]], start) =
                    simd.to_u8_array(simd.and(simd.shr_u16(plane, 4), low_nibble));
            }
        }
    }
}

/// The column of each nibble of a word: the inverse of [`AWQ_ORDER`].
const NIBBLE_COLUMNS: [usize; 8] = [0, 2, 4, 6, 1, 3, 5, 7];

/// Unpacks words that hold codes of a row, code by code: rare layouts.
#[inline(always)]
fn unpack_across(
    bytes: &[u8],
    stride: usize,
    width: CodeWidth,
    which: Range<usize>,
    count: usize,
    panel: &mut Panel,
    interleaved: bool,
) {
    for (k, row) in bytes.chunks(stride).take(count).enumerate() {
        let words = row.as_chunks::<4>().0;
        for (i, line) in which.clone().zip(&mut panel.0) {
            let at = if interleaved {
                i / 8 * 8 + AWQ_ORDER[i % 8]
            } else {
                i
            };
            line[k] = column_code(words, width, at);
        }
    }
}
