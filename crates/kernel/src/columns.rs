//! Columns of a stored matrix as rows of elements: GPTQ, AWQ, EETQ, which store weights the other way round.
//!
//! `w = scale * (q - zero)`, where `q - zero` is exact in F32 and the product is rounded once. A panel of
//! columns is turned into rows of codes, a chunk at a time; then each row is made as any other. Codes of up to
//! four bits choose among the sixteen elements that their group has.

mod codes;
#[cfg(test)]
mod tests;
mod turn;

use super::batch::CODES;
use super::{Element, Lanes, kernel};
use turn::{CHUNK, Panel, WIDTH, turn};

pub use codes::{eight_codes, packed_code};
pub use turn::AWQ;

kernel!(columns, Columns);

/// How the codes of a matrix of `depth` rows and so many columns are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codes {
    /// Words of 32 bits hold consecutive codes of a column: 32 codes in as many words as a code has bits.
    Down(Width),
    /// They hold consecutive codes of a row, 32 in as many words as a code has bits.
    Across(Width),
    /// They hold eight codes of four bits of a row, in the order 0 2 4 6 1 3 5 7.
    Awq4,
    /// As [`Across`](Self::Across), but that each eight are in the order 0 2 4 6 1 3 5 7.
    AwqStream(Width),
    /// One signed byte each.
    Bytes,
}

/// The bits of a code, and where they lie in the words of 32 codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// One code behind the other from the lowest bit on, across words.
    Stream(u32),
    /// In planes of 4, 2 and 1 bits, the lower bits first; none crosses a word.
    Planar(u32),
}

impl Width {
    /// Bits of a code.
    pub fn bits(self) -> u32 {
        match self {
            Self::Stream(bits) | Self::Planar(bits) => bits,
        }
    }
}

/// Some columns of a stored matrix.
#[derive(Clone, Debug)]
pub struct Columns {
    /// Number of columns: rows that come out.
    pub count: usize,
    /// Elements of a column.
    pub depth: usize,
    /// Bytes from one stored row to the next; the columns begin where the first one does.
    pub stride: usize,
    /// How their codes are stored.
    pub codes: Codes,
    /// Which group each element of a column is in.
    pub groups: Groups,
    /// For each group, the scale of each column.
    pub scales: Vec<f32>,
    /// For each group, the zero point of each column.
    pub zeros: Vec<f32>,
}

/// Which group each element of a column is in.
#[derive(Clone, Debug)]
pub enum Groups {
    /// Runs of elements of one group: where each ends, and its group.
    Runs(Vec<(usize, usize)>),
    /// One by one.
    Each(Vec<u32>),
}

/// The elements of a chunk that are in one group.
#[derive(Clone, Copy)]
struct Piece {
    start: usize,
    end: usize,
    group: usize,
}

#[inline(always)]
fn columns<S: Lanes, O: Element>(s: S, columns: &Columns, parts: &[&[u8]], out: &mut [u8]) {
    // what the conversions to 16 bits may then leave out: see `Lanes::put_plain_bf16`
    if O::PARTICULAR && !plain(&columns.scales) {
        tile::<S, O, false>(s, columns, parts[0], O::cells(out));
    } else {
        tile::<S, O, true>(s, columns, parts[0], O::cells(out));
    }
}

/// Whether all are normal or zero.
#[inline(always)]
fn plain(scales: &[f32]) -> bool {
    let mut all = true;
    // one by one without a way out, so that it is done many at a time
    for scale in scales {
        let magnitude = scale.abs();
        all &= (f32::MIN_POSITIVE..f32::INFINITY).contains(&magnitude) | (magnitude == 0.0);
    }
    all
}

#[inline(always)]
fn tile<S: Lanes, O: Element, const PLAIN: bool>(
    s: S,
    columns: &Columns,
    codes: &[u8],
    out: &mut [O::Cell],
) {
    let depth = columns.depth;
    let mut panel = Panel::new();
    let (mut pieces, mut own) = (Vec::new(), [Vec::new(), Vec::new()]);
    for start in (0..depth).step_by(CHUNK) {
        let end = depth.min(start + CHUNK);
        if let Groups::Runs(runs) = &columns.groups {
            cut(runs, start, end, &mut pieces);
        }
        for first in (0..columns.count).step_by(WIDTH) {
            let width = (columns.count - first).min(WIDTH);
            turn(
                s,
                columns,
                codes,
                first..first + width,
                start..end,
                &mut panel,
            );
            let Groups::Each(index) = &columns.groups else {
                let mut c = 0;
                while c < width {
                    let two = (c + 1).min(width - 1);
                    let at = [first + c, first + two];
                    let rows = [&panel.0[c], &panel.0[two]];
                    pair::<S, O, PLAIN>(s, columns, &pieces, at, rows, start, out);
                    c += 2;
                }
                continue;
            };
            for (c, row) in panel.0[..width].iter().enumerate() {
                let column = first + c;
                for (own, all) in own.iter_mut().zip([&columns.scales, &columns.zeros]) {
                    own.clear();
                    own.extend(all.iter().skip(column).step_by(columns.count));
                }
                let out = &mut out[column * depth + start..column * depth + end];
                scattered::<S, O, PLAIN>(s, &index[start..end], [&own[0], &own[1]], row, out);
            }
        }
    }
}

/// The pieces of `start..end` of one group each, from the start of the chunk on.
fn cut(runs: &[(usize, usize)], start: usize, end: usize, pieces: &mut Vec<Piece>) {
    pieces.clear();
    let first = runs.partition_point(|&(run_end, _)| run_end <= start);
    let mut at = start;
    for &(run_end, group) in &runs[first..] {
        if at == end {
            break;
        }
        let until = run_end.min(end);
        pieces.push(Piece {
            start: at - start,
            end: until - start,
            group,
        });
        at = until;
    }
}

/// Two columns, whose tables are made together.
#[inline(always)]
#[allow(clippy::too_many_arguments)] // inlined
fn pair<S: Lanes, O: Element, const PLAIN: bool>(
    s: S,
    columns: &Columns,
    pieces: &[Piece],
    at: [usize; 2],
    rows: [&[u8; turn::ROOM]; 2],
    start: usize,
    out: &mut [O::Cell],
) {
    let narrow = match columns.codes {
        Codes::Down(width) | Codes::Across(width) | Codes::AwqStream(width) => width.bits() <= 4,
        Codes::Awq4 => true,
        Codes::Bytes => false,
    };
    let codes = s.floats(&CODES);
    for piece in pieces {
        let factor = [
            piece.group * columns.count + at[0],
            piece.group * columns.count + at[1],
        ];
        let scales = [
            s.splat(columns.scales[factor[0]]),
            s.splat(columns.scales[factor[1]]),
        ];
        let zeros = [
            s.splat(columns.zeros[factor[0]]),
            s.splat(columns.zeros[factor[1]]),
        ];
        let values = [
            s.mul(s.sub(codes, zeros[0]), scales[0]),
            s.mul(s.sub(codes, zeros[1]), scales[1]),
        ];
        let tables = O::tables::<S, PLAIN>(s, values);
        for i in 0..2 {
            let codes = &rows[i][piece.start..];
            let out = &mut out[at[i] * columns.depth + start..][piece.start..piece.end];
            let (blocks, rest) = out.as_chunks_mut::<32>();
            for (codes, out) in codes.as_chunks().0.iter().zip(&mut *blocks) {
                if narrow {
                    O::pick(s, tables, [i; 2], s.bytes(codes), out);
                } else {
                    scaled::<S, O, PLAIN>(s, codes, scales[i], zeros[i], out);
                }
            }
            if !rest.is_empty() {
                // there are codes, if meaningless ones, behind the last
                let mut cells = [O::cell(0.0); 32];
                let codes = codes[blocks.len() * 32..]
                    .first_chunk()
                    .expect("room for a block behind a chunk");
                if narrow {
                    O::pick(s, tables, [i; 2], s.bytes(codes), &mut cells);
                } else {
                    scaled::<S, O, PLAIN>(s, codes, scales[i], zeros[i], &mut cells);
                }
                rest.copy_from_slice(&cells[..rest.len()]);
            }
        }
    }
}

/// Codes that are too many for a table.
#[inline(always)]
fn scaled<S: Lanes, O: Element, const PLAIN: bool>(
    s: S,
    codes: &[u8; 32],
    scale: S::Floats,
    zero: S::Floats,
    out: &mut [O::Cell; 32],
) {
    let [low, high] = s.unsigned(s.bytes(codes));
    O::put::<S, PLAIN>(
        s,
        [
            s.mul(s.sub(low, zero), scale),
            s.mul(s.sub(high, zero), scale),
        ],
        out,
    );
}

/// A column whose elements are in one group each.
#[inline(always)]
fn scattered<S: Lanes, O: Element, const PLAIN: bool>(
    s: S,
    index: &[u32],
    [scales, zeros]: [&[f32]; 2],
    codes: &[u8],
    out: &mut [O::Cell],
) {
    let (outs, rest) = out.as_chunks_mut::<32>();
    let (indexes, rest_index) = index.as_chunks::<32>();
    for ((out, index), codes) in outs.iter_mut().zip(indexes).zip(codes.as_chunks::<32>().0) {
        let [low, high] = s.unsigned(s.bytes(codes));
        let low = s.mul(
            s.sub(low, s.floats(&chosen(zeros, &index[..16]))),
            s.floats(&chosen(scales, &index[..16])),
        );
        let high = s.mul(
            s.sub(high, s.floats(&chosen(zeros, &index[16..]))),
            s.floats(&chosen(scales, &index[16..])),
        );
        O::put::<S, PLAIN>(s, [low, high], out);
    }
    for ((out, group), code) in rest
        .iter_mut()
        .zip(rest_index)
        .zip(&codes[index.len() / 32 * 32..])
    {
        let group = *group as usize;
        *out = O::cell((f32::from(*code) - zeros[group]) * scales[group]);
    }
}

/// The factors of sixteen elements, each by its group.
#[inline(always)]
fn chosen(factors: &[f32], groups: &[u32]) -> [f32; 16] {
    let mut chosen = [0.0; 16];
    for (factor, group) in chosen.iter_mut().zip(groups) {
        *factor = factors[*group as usize];
    }
    chosen
}
