//! Rows of codes with a scale, and maybe a zero point, per group: most schemes.

use std::ops::Range;

use crate::Dtype;
use crate::error::Result;
use crate::kernel::{self, Form, Packing, Rows, Value};
use crate::plan::{Decoder, Grid, Parts, Span, Spans, Strip};

use super::cells;
use super::factors::{Factors, to_f32};
use super::packed_rows::PackedRows;

/// Number of the part that holds the codes.
pub(crate) const CODES: usize = 0;

/// Rows of codes (part 0), scaled group by group.
#[derive(Debug)]
pub(crate) struct Grouped {
    /// Number of rows, over all matrices of a stack.
    pub(crate) rows: u64,
    /// Elements of a row.
    pub(crate) cols: u64,
    /// Rows of one matrix of a stack: `rows` for a single one.
    pub(crate) matrix_rows: u64,
    pub(crate) codes: Codes,
    pub(crate) form: Form,
    pub(crate) scales: Scales,
    pub(crate) zeros: Zeros,
}

/// How codes are stored, and what they are worth.
#[derive(Debug)]
pub(crate) struct Codes {
    pub(crate) packing: Packing,
    pub(crate) value: Value,
    /// Bytes of a stored row.
    pub(crate) row_bytes: u64,
    /// How many rows share a stored one, and the bits that each takes. `None`: each has its own.
    pub(crate) planes: Option<Planes>,
}

/// Row `p * stored + r` is in stored row `r`, in the bits of plane `p`.
#[derive(Debug)]
pub(crate) struct Planes {
    /// Stored rows.
    pub(crate) stored: u64,
    /// Bytes of a word.
    pub(crate) word: usize,
    /// Bits of a code.
    pub(crate) bits: u32,
    /// The lowest bit of each plane's codes.
    pub(crate) shifts: Vec<u32>,
}

/// Where scales come from.
#[derive(Debug)]
pub(crate) enum Scales {
    /// All are 1.
    None,
    /// As they are stored.
    Stored(Factors),
    /// Stored ones, each multiplied by one number of another part first.
    Times(Factors, Global),
    /// Stored ones, each divided by one number of another part first.
    Over(Factors, Global),
    /// Stored ones, each multiplied by that number divided by a constant.
    TimesShare(Factors, Global, f32),
}

/// A number for the whole weight, or one for each matrix of a stack.
#[derive(Debug)]
pub(crate) struct Global {
    pub(crate) part: usize,
    pub(crate) dtype: Dtype,
    /// How many there are.
    pub(crate) count: u64,
}

/// Where zero points or offsets come from.
#[derive(Debug)]
pub(crate) enum Zeros {
    None,
    /// One number for all.
    All(f32),
    /// Stored like the scales.
    Stored(Factors),
    /// Codes of so many bits, packed along the rows: column `g` of words holds the zero points of group `g`,
    /// a matrix of `words` rows and `groups` columns.
    PackedRows {
        part: usize,
        packing: Packing,
        bits: u32,
        words: u64,
        groups: u64,
    },
}

impl Decoder for Grouped {
    fn grid(&self) -> Grid {
        // what each column has of its own is made ready once for several rows
        let least = if self.groups().0 == 1 { 8 } else { 1 };
        Grid {
            least,
            ..Grid::new(self.rows, self.cols)
        }
    }

    fn shared(&self) -> Spans {
        let mut spans = Spans::new();
        if let Scales::Times(_, global)
        | Scales::Over(_, global)
        | Scales::TimesShare(_, global, _) = &self.scales
        {
            spans.push(Span::run(
                global.part,
                0..global.count * global.dtype.bits() / 8,
            ));
        }
        spans
    }

    fn inputs(&self, rows: Range<u64>) -> Spans {
        let mut spans = Spans::new();
        if let Some(factors) = self.scales.factors() {
            spans.push(factors.span(&rows, self.cols, self.matrix_rows));
        }
        if let Zeros::Stored(factors) = &self.zeros {
            spans.push(factors.span(&rows, self.cols, self.matrix_rows));
        }
        if let Zeros::PackedRows {
            part,
            packing,
            bits,
            words,
            groups,
        } = self.zeros
        {
            let words = self.packed_rows(packing, bits, words).words(&rows);
            spans.push(Span::run(
                part,
                words.start * groups * 4..words.end * groups * 4,
            ));
        }
        let bytes = self.codes.row_bytes;
        spans.extend(
            self.codes
                .runs(rows)
                .map(|run| Span::run(CODES, run.stored.start * bytes..run.stored.end * bytes)),
        );
        spans
    }

    fn decode(&self, parts: Parts<'_>, out: &mut [u8]) -> Result<()> {
        self.make(parts, None, out)
    }

    fn decode_past(&self, parts: Parts<'_>, room: &mut Vec<u8>, out: &mut [u8]) -> Result<()> {
        self.make(parts, Some(room), out)
    }
}

impl Grouped {
    /// Makes the rows, past the caches if there is room to make them in.
    fn make(&self, parts: Parts<'_>, mut room: Option<&mut Vec<u8>>, out: &mut [u8]) -> Result<()> {
        let Parts {
            shared,
            inputs,
            rows,
            dtype,
        } = parts;
        let mut inputs = inputs.iter();
        let scales = self.scales(shared, &mut inputs, &rows)?;
        let zeros = self.zeros(&mut inputs, &rows, &scales)?;
        let row_bytes = (self.cols * dtype.bits() / 8) as usize;
        let (group, rows_per_factor) = self.groups();
        // what a whole stack shares does not begin anew with its matrices
        let stack = rows_per_factor == u64::MAX;
        let matrix_rows = if stack {
            usize::MAX
        } else {
            self.matrix_rows as usize
        };
        let factors = Factors {
            part: 0,
            dtype: Dtype::F32,
            rows: rows_per_factor,
            cols: group,
        };
        let in_front = factors.factor_rows(&rows, self.matrix_rows).start;
        let (mut out, mut first) = (out, rows.start);
        for (run, codes) in self.codes.runs(rows.clone()).zip(inputs) {
            let count = run.stored.end - run.stored.start;
            let (now, behind) = out.split_at_mut(count as usize * row_bytes);
            let mut geometry = Rows {
                cols: self.cols as usize,
                stride: self.codes.row_bytes as usize,
                packing: run.packing,
                value: self.codes.value.clone(),
                form: self.form,
                group: group.min(self.cols) as usize,
                rows_per_factor: matrix_rows.min(rows_per_factor as usize),
                rows_per_matrix: matrix_rows,
                first: 0,
            };
            // some of the run's rows, so many behind its first
            let mut some = |skipped: usize, made: &mut [u8]| {
                let start = first + skipped as u64;
                let theirs = factors.factor_rows(
                    &(start..start + (made.len() / row_bytes) as u64),
                    self.matrix_rows,
                );
                let at = |row: u64| (row - in_front) as usize * geometry.groups();
                let theirs = at(theirs.start)..at(theirs.end);
                let zeros = if zeros.is_empty() {
                    &zeros[..]
                } else {
                    &zeros[theirs.clone()]
                };
                geometry.first = if stack {
                    0
                } else {
                    (start % self.matrix_rows) as usize
                };
                let codes = &codes.bytes[skipped * geometry.stride..];
                Ok(kernel::rows(
                    &geometry,
                    codes,
                    &scales[theirs],
                    zeros,
                    dtype,
                    made,
                )?)
            };
            match &mut room {
                None => some(0, now)?,
                Some(room) => cells::past(row_bytes, room, now, some)?,
            }
            (out, first) = (behind, first + count);
        }
        Ok(())
    }

    /// Columns and rows that share factors.
    pub(super) fn groups(&self) -> (u64, u64) {
        let factors = self.scales.factors().or(match &self.zeros {
            Zeros::Stored(factors) => Some(factors),
            _ => None,
        });
        factors.map_or((u64::MAX, u64::MAX), |f| (f.cols, f.rows))
    }

    /// One row of scales for each row of factors.
    pub(super) fn scales<'s>(
        &self,
        shared: &[Strip<'_>],
        inputs: &mut impl Iterator<Item = &'s Strip<'s>>,
        rows: &Range<u64>,
    ) -> Result<Vec<f32>> {
        let Some(factors) = self.scales.factors() else {
            let (group, rows_per_factor) = self.groups();
            // as many as there are zero points
            let zeros = Factors {
                part: 0,
                dtype: Dtype::F32,
                rows: rows_per_factor,
                cols: group,
            };
            let count = zeros.factor_rows(rows, self.matrix_rows).count() as u64
                * self.cols.div_ceil(group);
            return Ok(vec![1.0; count as usize]);
        };
        let bytes = inputs.next().map_or(&[][..], |strip| strip.bytes);
        let mut scales = to_f32(factors.dtype, bytes)?;
        let (global, divide, share) = match &self.scales {
            Scales::Times(_, global) => (global, false, 1.0),
            Scales::Over(_, global) => (global, true, 1.0),
            Scales::TimesShare(_, global, share) => (global, false, *share),
            Scales::None | Scales::Stored(_) => return Ok(scales),
        };
        let globals = to_f32(global.dtype, shared[0].bytes)?;
        let per_row = self.cols.div_ceil(factors.cols) as usize;
        let per_matrix = self.matrix_rows.div_ceil(factors.rows).max(1);
        let first = factors.factor_rows(rows, self.matrix_rows).start;
        for (row, scales) in (first..).zip(scales.chunks_mut(per_row.max(1))) {
            let global = globals[if globals.len() == 1 {
                0
            } else {
                (row / per_matrix) as usize
            }] / share;
            scales
                .iter_mut()
                .for_each(|s| *s = if divide { *s / global } else { *s * global });
        }
        Ok(scales)
    }

    /// One row of zero points for each row of factors; empty if there are none.
    pub(super) fn zeros<'s>(
        &self,
        inputs: &mut impl Iterator<Item = &'s Strip<'s>>,
        rows: &Range<u64>,
        scales: &[f32],
    ) -> Result<Vec<f32>> {
        match &self.zeros {
            Zeros::None => Ok(Vec::new()),
            Zeros::All(zero) => Ok(vec![*zero; scales.len()]),
            Zeros::Stored(factors) => {
                to_f32(factors.dtype, inputs.next().map_or(&[][..], |s| s.bytes))
            }
            Zeros::PackedRows {
                packing,
                bits,
                groups,
                words,
                ..
            } => {
                let table = inputs.next().map_or(&[][..], |s| s.bytes);
                Ok(self
                    .packed_rows(*packing, *bits, *words)
                    .codes(table, rows, *groups as usize))
            }
        }
    }

    fn packed_rows(&self, packing: Packing, bits: u32, words: u64) -> PackedRows {
        let matrices = (self.rows / self.matrix_rows).max(1);
        PackedRows {
            packing,
            bits,
            rows: self.matrix_rows,
            words: words / matrices,
        }
    }
}

impl Scales {
    pub(crate) fn factors(&self) -> Option<&Factors> {
        match self {
            Self::None => None,
            Self::Stored(factors)
            | Self::Times(factors, _)
            | Self::Over(factors, _)
            | Self::TimesShare(factors, ..) => Some(factors),
        }
    }
}

/// Rows that are stored one behind the other.
pub(super) struct Run {
    pub(super) stored: Range<u64>,
    pub(super) packing: Packing,
}

impl Codes {
    /// Each row has its own bytes.
    pub(crate) fn new(packing: Packing, value: Value, row_bytes: u64) -> Self {
        Self {
            packing,
            value,
            row_bytes,
            planes: None,
        }
    }

    /// These rows, plane by plane.
    pub(super) fn runs(&self, rows: Range<u64>) -> impl Iterator<Item = Run> + '_ {
        let stored = self
            .planes
            .as_ref()
            .map_or(u64::MAX, |planes| planes.stored);
        let planes = rows.start / stored..rows.end.div_ceil(stored);
        planes.map(move |plane| {
            let base = plane * stored;
            let packing = match &self.planes {
                Some(planes) => {
                    Packing::Plane(planes.word, planes.shifts[plane as usize], planes.bits)
                }
                None => self.packing,
            };
            Run {
                stored: rows.start.max(base) - base..(rows.end - base).min(stored),
                packing,
            }
        })
    }
}
