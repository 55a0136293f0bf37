//! Columns of a matrix stored `[in, out]`, decoded to rows `[out, in]`: GPTQ, AWQ, EETQ.
//!
//! `w = scale * (q - zero)`, where `q - zero` is exact in F32 and the product is rounded once.
//!
//! Reading a column directly would touch one cache line per code. Instead a [`Panel`] of 32 columns and 512 codes is
//! transposed in registers to one byte per code (`transpose.rs`, experiments 20, 25, 35 and 36), and stays in the
//! first-level cache. Each row of the panel is then decoded as any row of codes: with a lookup table of 16 results per
//! group for codes of up to four bits, by conversion otherwise.

mod codes;
#[cfg(test)]
mod tests;
mod transpose;

use super::batch::CODE_VALUES;
use super::{OutputElement, Simd, kernel};
use transpose::{CHUNK, PANEL_ROW, Panel, PanelTransposition, WIDTH};

pub use codes::{column_code, unpack_8_nibbles};
pub use transpose::AWQ_ORDER;

kernel!(decode, ColumnGeometry);

/// How the codes of a stored matrix `[in, out]` are packed. Words have 32 bits and are little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnCodes {
    /// GPTQ: words hold consecutive codes of a column, 32 codes in as many words as a code has bits.
    Down(CodeWidth),
    /// Words hold consecutive codes of a row, 32 codes in as many words as a code has bits.
    Across(CodeWidth),
    /// AWQ: a word holds eight 4-bit codes of a row, in the order 0 2 4 6 1 3 5 7 from the lowest bit on.
    Awq4,
    /// Like [`Across`](Self::Across), with each eight codes in the order 0 2 4 6 1 3 5 7.
    AwqStream(CodeWidth),
    /// EETQ: one signed byte per code. The kernel flips the sign bit, so zero points count from 128.
    Bytes,
}

/// The bits of a code, and their layout in the words of 32 codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeWidth {
    /// A stream of codes of this many bits, from the lowest bit on, across words.
    Stream(u32),
    /// Codes of this many bits, split into planes of 8, 4, 2 and 1 bits, the lower bits first, so that none crosses a word.
    Planar(u32),
}

impl CodeWidth {
    /// Bits of a code: 2 to 8.
    pub fn bits(self) -> u32 {
        match self {
            Self::Stream(bits) | Self::Planar(bits) => bits,
        }
    }
}

/// The geometry, scales and zero points of consecutive columns of a stored matrix.
#[derive(Clone, Debug)]
pub struct ColumnGeometry {
    /// Number of columns, which become rows of the output.
    pub count: usize,
    /// Elements of a column: the length of an output row.
    pub depth: usize,
    /// Bytes from the start of one stored row (of words, or of bytes) to the start of the next. The input begins at the
    /// first of the columns.
    pub stride: usize,
    /// How the codes are packed.
    pub codes: ColumnCodes,
    /// The group of each element of a column.
    pub groups: ColumnGroups,
    /// The scales, `[groups][count]`: for each group, one per column.
    pub scales: Vec<f32>,
    /// The zero points, `[groups][count]`.
    pub zeros: Vec<f32>,
}

/// The group of each element of a column.
#[derive(Clone, Debug)]
pub enum ColumnGroups {
    /// Runs of consecutive elements of one group: `(end, group)`, by increasing end.
    Runs(Vec<(usize, usize)>),
    /// One group index per element, for GPTQ's activation order.
    Each(Vec<u32>),
}

/// Consecutive elements of a chunk that lie in one group.
#[derive(Clone, Copy)]
struct GroupRun {
    start: usize,
    end: usize,
    group: usize,
}

#[inline(always)]
fn decode<S: Simd, O: OutputElement>(
    simd: S,
    columns: &ColumnGeometry,
    parts: &[&[u8]],
    out: &mut [u8],
) {
    // an integer times a normal scale is zero, normal or infinite: see `OutputElement::IS_ROUNDED`
    let normal = !O::IS_ROUNDED || all_normal_or_zero(&columns.scales);
    decode_columns::<S, O>(simd, columns, parts[0], O::as_stored(out), normal);
}

/// Whether every scale is zero or normal.
#[inline(always)]
fn all_normal_or_zero(scales: &[f32]) -> bool {
    let mut all = true;
    // without an early exit, so that the compiler vectorises the loop: 1.05 to 1.09 times faster (experiment 49)
    for scale in scales {
        let magnitude = scale.abs();
        all &= (f32::MIN_POSITIVE..f32::INFINITY).contains(&magnitude) | (magnitude == 0.0);
    }
    all
}

#[inline(always)]
fn decode_columns<S: Simd, O: OutputElement>(
    simd: S,
    columns: &ColumnGeometry,
    codes: &[u8],
    out: &mut [O::Stored],
    normal: bool,
) {
    let depth = columns.depth;
    // one panel for all columns: it stays in the first-level cache, and its padding is zeroed once
    let mut panel = Panel::new();
    let mut runs_of_chunk = Vec::new();
    // scales and zero points of one column, by group
    let mut factors = [Vec::new(), Vec::new()];
    // chunks of stored rows outermost: the input is read slab by slab
    for start in (0..depth).step_by(CHUNK) {
        let end = depth.min(start + CHUNK);
        // the runs of a chunk are the same for all columns
        if let ColumnGroups::Runs(runs) = &columns.groups {
            split_runs(runs, start, end, &mut runs_of_chunk);
        }
        for first in (0..columns.count).step_by(WIDTH) {
            let width = (columns.count - first).min(WIDTH);
            simd.outline(PanelTransposition {
                columns,
                bytes: codes,
                which: first..first + width,
                rows: start..end,
                panel: &mut panel,
            });
            let ColumnGroups::Each(index) = &columns.groups else {
                let mut c = 0;
                while c < width {
                    // an odd last column is paired with itself
                    let second = (c + 1).min(width - 1);
                    let pair = [first + c, first + second];
                    let rows = [&panel.0[c], &panel.0[second]];
                    let runs = &runs_of_chunk;
                    if normal {
                        decode_pair::<S, O, true>(simd, columns, runs, pair, rows, start, out);
                    } else {
                        decode_pair::<S, O, false>(simd, columns, runs, pair, rows, start, out);
                    }
                    c += 2;
                }
                continue;
            };
            // activation order: factors are looked up by group for each element, so a column's are made contiguous first
            for (c, row) in panel.0[..width].iter().enumerate() {
                let column = first + c;
                for (factors, all) in factors.iter_mut().zip([&columns.scales, &columns.zeros]) {
                    factors.clear();
                    factors.extend(all.iter().skip(column).step_by(columns.count));
                }
                let out = &mut out[column * depth + start..column * depth + end];
                let factors = [&*factors[0], &*factors[1]];
                if normal {
                    decode_scattered::<S, O, true>(simd, &index[start..end], factors, row, out);
                } else {
                    decode_scattered::<S, O, false>(simd, &index[start..end], factors, row, out);
                }
            }
        }
    }
}

/// Splits `start..end` by group, with positions relative to `start`.
fn split_runs(
    runs: &[(usize, usize)],
    start: usize,
    end: usize,
    runs_of_chunk: &mut Vec<GroupRun>,
) {
    runs_of_chunk.clear();
    let first = runs.partition_point(|&(run_end, _)| run_end <= start);
    let mut at = start;
    for &(run_end, group) in &runs[first..] {
        if at == end {
            break;
        }
        let until = run_end.min(end);
        runs_of_chunk.push(GroupRun {
            start: at - start,
            end: until - start,
            group,
        });
        at = until;
    }
}

/// Decodes a chunk of two columns. Their lookup tables are rounded together, since 32 values are one conversion.
#[inline(always)]
#[allow(clippy::too_many_arguments)] // inlined into its one caller
fn decode_pair<S: Simd, O: OutputElement, const ASSUME_NORMAL: bool>(
    simd: S,
    columns: &ColumnGeometry,
    runs_of_chunk: &[GroupRun],
    pair: [usize; 2],
    rows: [&[u8; PANEL_ROW]; 2],
    start: usize,
    out: &mut [O::Stored],
) {
    let uses_table = match columns.codes {
        ColumnCodes::Down(width) | ColumnCodes::Across(width) | ColumnCodes::AwqStream(width) => {
            width.bits() <= 4
        }
        ColumnCodes::Awq4 => true,
        ColumnCodes::Bytes => false,
    };
    let codes = simd.load_f32(&CODE_VALUES);
    for run in runs_of_chunk {
        // factors are stored by group, as in the files, so that they are converted without transposing (experiment 36)
        let factor = [
            run.group * columns.count + pair[0],
            run.group * columns.count + pair[1],
        ];
        let scales = [
            simd.splat(columns.scales[factor[0]]),
            simd.splat(columns.scales[factor[1]]),
        ];
        let zeros = [
            simd.splat(columns.zeros[factor[0]]),
            simd.splat(columns.zeros[factor[1]]),
        ];
        // the 16 results of the group, for codes of up to four bits
        let values = [
            simd.mul(simd.sub(codes, zeros[0]), scales[0]),
            simd.mul(simd.sub(codes, zeros[1]), scales[1]),
        ];
        let tables = O::tables::<S, ASSUME_NORMAL>(simd, values);
        for i in 0..2 {
            let codes = &rows[i][run.start..];
            let out = &mut out[pair[i] * columns.depth + start..][run.start..run.end];
            let (blocks, rest) = out.as_chunks_mut::<32>();
            for (codes, out) in codes.as_chunks().0.iter().zip(&mut *blocks) {
                if uses_table {
                    O::lookup(simd, tables, [i; 2], simd.load_u8(codes), out);
                } else {
                    convert::<S, O, ASSUME_NORMAL>(simd, codes, scales[i], zeros[i], out);
                }
            }
            if !rest.is_empty() {
                // a panel's row is longer than a chunk: the vector's other codes are read and discarded
                let mut padded = [O::round(0.0); 32];
                let codes = codes[blocks.len() * 32..]
                    .first_chunk()
                    .expect("a panel row has room behind a chunk");
                if uses_table {
                    O::lookup(simd, tables, [i; 2], simd.load_u8(codes), &mut padded);
                } else {
                    convert::<S, O, ASSUME_NORMAL>(simd, codes, scales[i], zeros[i], &mut padded);
                }
                rest.copy_from_slice(&padded[..rest.len()]);
            }
        }
    }
}

/// Decodes 32 codes of more than four bits, which have too many values for a table.
#[inline(always)]
fn convert<S: Simd, O: OutputElement, const ASSUME_NORMAL: bool>(
    simd: S,
    codes: &[u8; 32],
    scale: S::Floats,
    zero: S::Floats,
    out: &mut [O::Stored; 32],
) {
    let [low, high] = simd.u8_to_f32(simd.load_u8(codes));
    O::store::<S, ASSUME_NORMAL>(
        simd,
        [
            simd.mul(simd.sub(low, zero), scale),
            simd.mul(simd.sub(high, zero), scale),
        ],
        out,
    );
}

/// Decodes a chunk of a column with a group index per element. The factors of each vector are gathered by scalar loads.
#[inline(always)]
fn decode_scattered<S: Simd, O: OutputElement, const ASSUME_NORMAL: bool>(
    simd: S,
    index: &[u32],
    [scales, zeros]: [&[f32]; 2],
    codes: &[u8],
    out: &mut [O::Stored],
) {
    let (outs, rest) = out.as_chunks_mut::<32>();
    let (indexes, rest_index) = index.as_chunks::<32>();
    for ((out, index), codes) in outs.iter_mut().zip(indexes).zip(codes.as_chunks::<32>().0) {
        // no table even for codes of four bits: neighbouring elements are in different groups, so that the 16 results
        // of a group would be computed for one element
        let [low, high] = simd.u8_to_f32(simd.load_u8(codes));
        let low = simd.mul(
            simd.sub(low, simd.load_f32(&gather(zeros, &index[..16]))),
            simd.load_f32(&gather(scales, &index[..16])),
        );
        let high = simd.mul(
            simd.sub(high, simd.load_f32(&gather(zeros, &index[16..]))),
            simd.load_f32(&gather(scales, &index[16..])),
        );
        O::store::<S, ASSUME_NORMAL>(simd, [low, high], out);
    }
    for ((out, group), code) in rest
        .iter_mut()
        .zip(rest_index)
        .zip(&codes[index.len() / 32 * 32..])
    {
        let group = *group as usize;
        *out = O::round((f32::from(*code) - zeros[group]) * scales[group]);
    }
}

/// The factors of 16 elements, by their groups.
#[inline(always)]
fn gather(factors: &[f32], groups: &[u32]) -> [f32; 16] {
    let mut gathered = [0.0; 16];
    for (factor, group) in gathered.iter_mut().zip(groups) {
        *factor = factors[*group as usize];
    }
    gathered
}
