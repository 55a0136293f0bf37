//! A panel of a stored matrix, turned: rows of codes from its columns, one byte each.

use std::ops::Range;

use super::super::{Lanes, each};
use super::codes::{packed_code, planar, stream};
use super::{Codes, Columns, Width};

/// Codes of a column that are turned at a time.
pub(super) const CHUNK: usize = 512;
/// Columns of a panel.
pub(super) const WIDTH: usize = 32;
/// A row of a panel, whole lines of the cache: what is read in blocks may begin anywhere.
pub(super) const ROOM: usize = CHUNK + 64;

/// Codes by column. No block of 32 codes is in two lines of the cache.
#[repr(align(64))]
pub(super) struct Panel(pub(super) [[u8; ROOM]; WIDTH]);

impl Panel {
    pub(super) fn new() -> Self {
        Self([[0; ROOM]; WIDTH])
    }
}

/// Fills a panel with the codes of these columns (of those that the geometry has) and rows.
#[inline(always)]
pub(super) fn turn<S: Lanes>(
    s: S,
    columns: &Columns,
    bytes: &[u8],
    which: Range<usize>,
    rows: Range<usize>,
    panel: &mut Panel,
) {
    let stride = columns.stride;
    match columns.codes {
        Codes::Down(width) => {
            let stored = rows.start / 32 * width.bits() as usize;
            let bytes = &bytes[(stored * stride).min(bytes.len())..];
            match width {
                Width::Stream(4) | Width::Planar(4) => {
                    quads::<S, 4>(s, bytes, stride, which, rows.len(), panel)
                }
                Width::Stream(8) | Width::Planar(8) => {
                    quads::<S, 8>(s, bytes, stride, which, rows.len(), panel)
                }
                Width::Stream(2) => down::<2>(bytes, stride, which, rows.len(), panel, stream::<2>),
                Width::Stream(3) => down::<3>(bytes, stride, which, rows.len(), panel, stream::<3>),
                Width::Stream(5) => down::<5>(bytes, stride, which, rows.len(), panel, stream::<5>),
                Width::Stream(6) => down::<6>(bytes, stride, which, rows.len(), panel, stream::<6>),
                Width::Stream(_) => down::<7>(bytes, stride, which, rows.len(), panel, stream::<7>),
                Width::Planar(2) => down::<2>(bytes, stride, which, rows.len(), panel, planar::<2>),
                Width::Planar(3) => down::<3>(bytes, stride, which, rows.len(), panel, planar::<3>),
                Width::Planar(5) => down::<5>(bytes, stride, which, rows.len(), panel, planar::<5>),
                Width::Planar(6) => down::<6>(bytes, stride, which, rows.len(), panel, planar::<6>),
                Width::Planar(_) => down::<7>(bytes, stride, which, rows.len(), panel, planar::<7>),
            }
        }
        Codes::Awq4 => awq(
            s,
            &bytes[rows.start * stride..],
            stride,
            which,
            rows.len(),
            panel,
        ),
        Codes::Across(width) => across(
            &bytes[rows.start * stride..],
            stride,
            width,
            which,
            rows.len(),
            panel,
            false,
        ),
        Codes::AwqStream(width) => across(
            &bytes[rows.start * stride..],
            stride,
            width,
            which,
            rows.len(),
            panel,
            true,
        ),
        Codes::Bytes => whole(
            s,
            &bytes[rows.start * stride..],
            stride,
            which,
            rows.len(),
            panel,
        ),
    }
}

/// A part of a row, at most `N` bytes, and anything behind it.
#[inline(always)]
fn row_part<const N: usize>(bytes: &[u8], start: usize, len: usize) -> [u8; N] {
    let bytes = bytes.get(start..).unwrap_or_default();
    if let Some(whole) = bytes.first_chunk() {
        return *whole;
    }
    let mut padded = [0; N];
    let len = len.min(bytes.len());
    padded[..len].copy_from_slice(&bytes[..len]);
    padded
}

/// What `count` rows' parts of `N` bytes lie in, if all of them are there: one check instead of one for each.
#[inline(always)]
fn stack<const N: usize>(bytes: &[u8], start: usize, stride: usize, count: usize) -> Option<&[u8]> {
    bytes.get(start..)?.get(..(count - 1) * stride + N)
}

#[inline(always)]
fn part<const N: usize>(stack: &[u8], stride: usize, k: usize) -> &[u8; N] {
    stack[k * stride..]
        .first_chunk()
        .expect("a part of each row")
}

/// Columns of words with codes of `B` bits, 4 or 8: eight columns at a time.
#[inline(always)]
fn quads<S: Lanes, const B: usize>(
    s: S,
    bytes: &[u8],
    stride: usize,
    which: Range<usize>,
    count: usize,
    panel: &mut Panel,
) {
    for unit in 0..count.div_ceil(32) {
        for (first, lines) in which.clone().step_by(8).zip(panel.0.as_chunks_mut::<8>().0) {
            let len = (which.end - first).min(8) * 4;
            for four in 0..B / 4 {
                let mut rows = [s.splat_byte(0); 4];
                let start = (unit * B + 4 * four) * stride + first * 4;
                if let (32, Some(stack)) = (len, stack::<32>(bytes, start, stride, 4)) {
                    for (k, row) in rows.iter_mut().enumerate() {
                        *row = s.bytes(part(stack, stride, k));
                    }
                } else {
                    for (b, row) in rows.iter_mut().enumerate() {
                        *row = s.bytes(&row_part(bytes, start + b * stride, len));
                    }
                }
                let turned = s.turn_words(rows);
                for (i, words) in turned.into_iter().enumerate() {
                    if B == 4 {
                        let codes = s.nibble_pairs(words);
                        *block(&mut lines[i], unit * 32) = s.byte_array(codes[0]);
                        *block(&mut lines[i + 4], unit * 32) = s.byte_array(codes[1]);
                    } else {
                        let codes = s.byte_array(words);
                        let halves = codes.as_chunks::<16>().0;
                        *block(&mut lines[i], unit * 32 + four * 16) = halves[0];
                        *block(&mut lines[i + 4], unit * 32 + four * 16) = halves[1];
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn block<const N: usize>(line: &mut [u8; ROOM], at: usize) -> &mut [u8; N] {
    line[at..]
        .first_chunk_mut()
        .expect("a chunk is a whole number of units")
}

/// Sixteen rows of twice sixteen bytes, `row` with number `k`: for each four bytes and each four rows, these by their place.
macro_rules! fours {
    ($s:ident, $k:ident => $row:expr) => {{
        let mut fours = [[$s.splat_byte(0); 4]; 4];
        for i in 0..4 {
            let rows = each!($k in [4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3] => $row);
            for (four, turned) in fours.iter_mut().zip($s.turn_words(rows)) {
                four[i] = $s.turn_bytes(turned);
            }
        }
        fours
    }};
}

/// Columns of bytes, 16 rows at a time.
#[inline(always)]
fn whole<S: Lanes>(
    s: S,
    bytes: &[u8],
    stride: usize,
    which: Range<usize>,
    count: usize,
    panel: &mut Panel,
) {
    // the sign becomes a zero point of 128
    let sign = s.splat_byte(0x80);
    let len = which.len();
    for start in (0..count).step_by(16) {
        let at = start * stride + which.start;
        let turned = if let (32, Some(stack)) = (len, stack::<32>(bytes, at, stride, 16)) {
            fours!(s, k => s.add_bytes(sign, s.bytes(part(stack, stride, k))))
        } else {
            fours!(s, k => s.add_bytes(sign, s.bytes(&row_part(bytes, at + k * stride, len))))
        };
        for (j, fours) in turned.into_iter().enumerate() {
            for (b, codes) in s.turn_words(fours).into_iter().enumerate() {
                let codes = s.byte_array(codes);
                let halves = codes.as_chunks::<16>().0;
                *block(&mut panel.0[4 * j + b], start) = halves[0];
                *block(&mut panel.0[4 * j + b + 16], start) = halves[1];
            }
        }
    }
}

/// Columns of words: `B` words of a column become 32 codes.
#[inline(always)]
fn down<const B: usize>(
    bytes: &[u8],
    stride: usize,
    which: Range<usize>,
    count: usize,
    panel: &mut Panel,
    expand: impl Fn(&[[u8; 4]; B], &mut [u8; 32]),
) {
    for unit in 0..count.div_ceil(32) {
        let mut turned = [[[0; 4]; B]; WIDTH];
        for b in 0..B {
            // the last words of codes that fill no unit may be absent
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
                    turned[i][b] = row[i];
                }
            } else {
                for (word, turned) in row.iter().zip(&mut turned) {
                    turned[b] = *word;
                }
            }
        }
        for (words, line) in turned.iter().zip(&mut panel.0).take(which.len()) {
            let out = line[unit * 32..]
                .first_chunk_mut()
                .expect("a chunk is a whole number of units");
            expand(words, out);
        }
    }
}

/// Where each of eight codes stands in AWQ's order.
pub const AWQ: [usize; 8] = [0, 4, 1, 5, 2, 6, 3, 7];

/// Rows of words, each with eight codes of four bits in AWQ's order: four words at a time.
#[inline(always)]
fn awq<S: Lanes>(
    s: S,
    bytes: &[u8],
    stride: usize,
    which: Range<usize>,
    count: usize,
    panel: &mut Panel,
) {
    let low = s.splat_byte(15);
    let len = which.len() / 2;
    for start in (0..count).step_by(32) {
        let at = start * stride + which.start / 2;
        // rows k and k + 16 side by side
        let turned = if let (16, Some(stack)) = (len, stack::<16>(bytes, at, stride, 32)) {
            fours!(s, k => s.pair(part(stack, stride, k), part(stack, stride, k + 16)))
        } else {
            fours!(s, k => {
                s.pair(&row_part(bytes, at + k * stride, len), &row_part(bytes, at + (k + 16) * stride, len))
            })
        };
        for (fours, lines) in turned.into_iter().zip(panel.0.as_chunks_mut::<8>().0) {
            for (b, plane) in s.turn_words(fours).into_iter().enumerate() {
                *block(&mut lines[ORDER[2 * b]], start) = s.byte_array(s.and(plane, low));
                *block(&mut lines[ORDER[2 * b + 1]], start) =
                    s.byte_array(s.and(s.shr_u16(plane, 4), low));
            }
        }
    }
}

/// Which column each nibble of a word belongs to: the inverse of [`AWQ`].
const ORDER: [usize; 8] = [0, 2, 4, 6, 1, 3, 5, 7];

/// Rows of words.
#[inline(always)]
fn across(
    bytes: &[u8],
    stride: usize,
    width: Width,
    which: Range<usize>,
    count: usize,
    panel: &mut Panel,
    interleaved: bool,
) {
    for (k, row) in bytes.chunks(stride).take(count).enumerate() {
        let words = row.as_chunks::<4>().0;
        for (i, line) in which.clone().zip(&mut panel.0) {
            let at = if interleaved {
                i / 8 * 8 + AWQ[i % 8]
            } else {
                i
            };
            line[k] = packed_code(words, width, at);
        }
    }
}
