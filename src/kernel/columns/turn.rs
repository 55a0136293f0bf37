//! A panel of a stored matrix, turned: rows of codes from its columns, one byte each.

use std::ops::Range;

use super::super::Lanes;
use super::{Codes, Columns, Width};

/// Codes of a column that are turned at a time.
pub(super) const CHUNK: usize = 256;
/// Columns of a panel.
pub(super) const WIDTH: usize = 32;
/// A row of a panel: what is read in blocks may begin anywhere.
pub(super) const ROOM: usize = CHUNK + 32;

/// Codes by column.
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
                    down::<4>(bytes, stride, which, rows.len(), panel, |words, out| {
                        let words: &[u8; 16] = bytemuck::must_cast_ref(words);
                        *out = s.byte_array(s.nibble_pairs(words));
                    });
                }
                Width::Stream(8) | Width::Planar(8) => {
                    down::<8>(bytes, stride, which, rows.len(), panel, |words, out| *out = bytemuck::must_cast(*words));
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
        Codes::Awq4 => awq(s, &bytes[rows.start * stride..], stride, which, rows.len(), panel),
        Codes::Across(width) => across(&bytes[rows.start * stride..], stride, width, which, rows.len(), panel, false),
        Codes::AwqStream(width) => across(&bytes[rows.start * stride..], stride, width, which, rows.len(), panel, true),
        Codes::Bytes => {
            for (k, row) in bytes[rows.start * stride..].chunks(stride).take(rows.len()).enumerate() {
                for (code, line) in row[which.clone()].iter().zip(&mut panel.0) {
                    // the sign becomes a zero point of 128
                    line[k] = code ^ 0x80;
                }
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
            let Some(row) = bytes.get((unit * B + b) * stride..) else { break };
            let row = row.as_chunks::<4>().0.get(which.clone()).unwrap_or_default();
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
            let out = line[unit * 32..].first_chunk_mut().expect("a chunk is a whole number of units");
            expand(words, out);
        }
    }
}

/// 32 codes, one behind the other.
#[inline(always)]
fn stream<const B: usize>(words: &[[u8; 4]; B], out: &mut [u8; 32]) {
    let bytes = words.as_flattened();
    for (bytes, out) in bytes.chunks_exact(B).zip(out.as_chunks_mut::<8>().0) {
        let mut word = [0; 8];
        word[..B].copy_from_slice(bytes);
        let word = u64::from_le_bytes(word);
        for (j, code) in out.iter_mut().enumerate() {
            *code = (word >> (j * B)) as u8 & ((1u16 << B) - 1) as u8;
        }
    }
}

/// 32 codes in planes.
#[inline(always)]
fn planar<const B: usize>(words: &[[u8; 4]; B], out: &mut [u8; 32]) {
    *out = std::array::from_fn(|i| planar_code(|w| u32::from_le_bytes(words[w]), B as u32, i));
}

/// The widths of the planes of codes of so many bits, from the lowest on; zeros are none.
const fn planes(bits: u32) -> [u32; 3] {
    match bits {
        1 => [1, 0, 0],
        2 => [2, 0, 0],
        3 => [2, 1, 0],
        4 => [4, 0, 0],
        5 => [4, 1, 0],
        6 => [4, 2, 0],
        7 => [4, 2, 1],
        _ => [8, 0, 0],
    }
}

#[inline(always)]
fn planar_code(word: impl Fn(usize) -> u32, bits: u32, i: usize) -> u8 {
    let (mut code, mut offset) = (0, 0);
    for width in planes(bits) {
        if let Some(per_word) = 32u32.checked_div(width) {
            let per_word = per_word as usize;
            let part = word(offset as usize + i / per_word) >> ((i % per_word) as u32 * width) & ((1 << width) - 1);
            code |= part << offset;
            offset += width;
        }
    }
    code as u8
}

/// Code `i` of those that some words hold, 32 in as many words as a code has bits.
#[inline(always)]
pub(crate) fn packed_code(words: &[[u8; 4]], width: Width, i: usize) -> u8 {
    let bits = width.bits() as usize;
    let word = |w: usize| words.get(i / 32 * bits + w).map_or(0, |w| u32::from_le_bytes(*w));
    match width {
        Width::Planar(bits) => planar_code(word, bits, i % 32),
        Width::Stream(_) => {
            let at = i % 32 * bits;
            let two = u64::from(word(at / 32)) | u64::from(word(at / 32 + 1)) << 32;
            (two >> (at % 32)) as u8 & ((1u16 << bits) - 1) as u8
        }
    }
}

/// Where each of eight codes stands in AWQ's order.
pub(crate) const AWQ: [usize; 8] = [0, 4, 1, 5, 2, 6, 3, 7];

/// Rows of words, each with eight codes of four bits in AWQ's order.
#[inline(always)]
fn awq<S: Lanes>(s: S, bytes: &[u8], stride: usize, which: Range<usize>, count: usize, panel: &mut Panel) {
    let low = s.splat_byte(15);
    for (eight, lines) in which.step_by(8).zip(panel.0.as_chunks_mut::<8>().0) {
        for start in (0..count).step_by(32) {
            let mut words = [[0u8; 4]; 32];
            for (i, word) in words.iter_mut().enumerate().take(count - start) {
                *word = *bytes[(start + i) * stride + eight / 2..].first_chunk().expect("a word for eight columns");
            }
            for b in 0..4 {
                let plane: [u8; 32] = std::array::from_fn(|i| words[i][b]);
                let plane = s.bytes(&plane);
                let put = |line: &mut [u8], codes| {
                    let out: &mut [u8; 32] =
                        line[start..].first_chunk_mut().expect("a chunk is a whole number of units");
                    *out = s.byte_array(codes);
                };
                put(&mut lines[ORDER[2 * b]], s.and(plane, low));
                put(&mut lines[ORDER[2 * b + 1]], s.and(s.shr_u16(plane, 4), low));
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
            let at = if interleaved { i / 8 * 8 + AWQ[i % 8] } else { i };
            line[k] = packed_code(words, width, at);
        }
    }
}
