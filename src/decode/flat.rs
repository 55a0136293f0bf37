//! A weight as one long row of codes, with a scale and maybe a zero point for each group of elements,
//! wherever the weight's own rows end: bitsandbytes' blocks, HQQ's groups.
//!
//! A row of the grid is one element, so that tiles are long and cut where groups end.

use std::ops::Range;

use crate::Dtype;
use crate::error::{Error, Result};
use crate::kernel::{self, Form, Rows, Value};
use crate::plan::{Decoder, Grid, Parts, Span, Spans, Strip};

use super::factors::to_f32;
use super::grouped::{CODES, Codes};

/// One long row of codes (part 0), scaled group by group.
#[derive(Debug)]
pub(crate) struct Flat {
    /// Number of elements.
    pub(crate) elements: u64,
    /// Elements that share a scale; the last group may have fewer.
    pub(crate) group: u64,
    /// Rows of it are elements: planes count those.
    pub(crate) codes: Codes,
    /// The part that holds what the 16 codes are worth (F32), in place of the codes' own value.
    pub(crate) table: Option<usize>,
    pub(crate) form: Form,
    pub(crate) scales: PerGroup,
    pub(crate) zeros: Option<PerGroup>,
}

/// One number per group.
#[derive(Debug)]
pub(crate) enum PerGroup {
    Stored {
        part: usize,
        dtype: Dtype,
    },
    /// As [`Stored`](Self::Stored), with the other sign.
    Negated {
        part: usize,
        dtype: Dtype,
    },
    /// `map[code] * scale + offset`: a code per group (U8), 256 values that codes stand for, and a scale per
    /// `block` of groups (both F32). The product, the offset and the sum are rounded to `dtype`, a float.
    Nested {
        codes: usize,
        map: usize,
        scales: usize,
        block: u64,
        offset: f32,
        dtype: Dtype,
    },
}

impl Decoder for Flat {
    fn grid(&self) -> Grid {
        Grid {
            step: self.group,
            ..Grid::new(self.elements, 1)
        }
    }

    fn shared(&self) -> Spans {
        let table = self.table.map(|part| Span::run(part, 0..16 * 4));
        let map = |numbers: &PerGroup| match *numbers {
            PerGroup::Nested { map, .. } => Some(Span::run(map, 0..256 * 4)),
            PerGroup::Stored { .. } | PerGroup::Negated { .. } => None,
        };
        table
            .into_iter()
            .chain(self.per_group().filter_map(map))
            .collect()
    }

    fn inputs(&self, rows: Range<u64>) -> Spans {
        let groups = self.groups(&rows);
        let mut spans = Spans::new();
        for numbers in self.per_group() {
            match *numbers {
                PerGroup::Stored { part, dtype } | PerGroup::Negated { part, dtype } => {
                    let item = dtype.bits() / 8;
                    spans.push(Span::run(part, groups.start * item..groups.end * item));
                }
                PerGroup::Nested {
                    codes,
                    scales,
                    block,
                    ..
                } => {
                    spans.push(Span::run(codes, groups.clone()));
                    spans.push(Span::run(
                        scales,
                        groups.start / block * 4..groups.end.div_ceil(block) * 4,
                    ));
                }
            }
        }
        spans.extend(self.codes.runs(rows).map(|run| {
            let at = |element| run.packing.row_bytes(element).unwrap_or(u64::MAX);
            Span::run(CODES, at(run.stored.start)..at(run.stored.end))
        }));
        spans
    }

    #[allow(clippy::cast_possible_truncation)] // sizes of what is in memory
    fn decode(&self, parts: Parts<'_>, out: &mut [u8]) -> Result<()> {
        let Parts {
            shared,
            inputs,
            rows,
            dtype,
        } = parts;
        let (mut shared, mut inputs) = (shared.iter(), inputs.iter());
        let value = match (self.table, shared.as_slice()) {
            (Some(_), [table, ..]) => {
                shared.next();
                table16(table.bytes)?
            }
            _ => self.codes.value.clone(),
        };
        let groups = self.groups(&rows);
        let mut numbers = |kind: &PerGroup| kind.read(&mut shared, &mut inputs, &groups);
        let scales = numbers(&self.scales)?;
        let zeros = self
            .zeros
            .as_ref()
            .map(&mut numbers)
            .transpose()?
            .unwrap_or_default();
        let item = dtype.bits() / 8;
        let (mut out, mut first) = (out, 0);
        for (run, codes) in self.codes.runs(rows).zip(inputs) {
            let count = run.stored.end - run.stored.start;
            let (now, behind) = out.split_at_mut((count * item) as usize);
            let geometry = Rows {
                cols: count as usize,
                stride: codes.bytes.len(),
                packing: run.packing,
                value: value.clone(),
                form: self.form,
                group: self.group as usize,
                rows_per_factor: 1,
                rows_per_matrix: 1,
                first: 0,
            };
            // planes begin where groups do
            let skipped = (first / self.group) as usize;
            let zeros = if zeros.is_empty() {
                &zeros
            } else {
                &zeros[skipped..]
            };
            kernel::rows(
                &geometry,
                codes.bytes,
                &scales[skipped..],
                zeros,
                dtype,
                now,
            )?;
            (out, first) = (behind, first + count);
        }
        Ok(())
    }
}

impl Flat {
    fn per_group(&self) -> impl Iterator<Item = &PerGroup> {
        std::iter::once(&self.scales).chain(&self.zeros)
    }

    /// The groups of these elements.
    fn groups(&self, elements: &Range<u64>) -> Range<u64> {
        elements.start / self.group..elements.end.div_ceil(self.group)
    }
}

impl PerGroup {
    #[allow(clippy::cast_possible_truncation)] // an index into what is in memory
    fn read<'s>(
        &self,
        shared: &mut impl Iterator<Item = &'s Strip<'s>>,
        inputs: &mut impl Iterator<Item = &'s Strip<'s>>,
        groups: &Range<u64>,
    ) -> Result<Vec<f32>> {
        let mut next = || inputs.next().map_or(&[][..], |strip| strip.bytes);
        match *self {
            Self::Stored { dtype, .. } => to_f32(dtype, next()),
            Self::Negated { dtype, .. } => {
                Ok(to_f32(dtype, next())?.into_iter().map(|z| -z).collect())
            }
            Self::Nested {
                block,
                offset,
                dtype,
                ..
            } => {
                let map = to_f32(
                    Dtype::F32,
                    shared.next().map_or(&[][..], |strip| strip.bytes),
                )?;
                let (codes, scales) = (next(), to_f32(Dtype::F32, next())?);
                let before = groups.start / block;
                let product = |(group, code): (u64, &u8)| {
                    map[usize::from(*code)] * scales[(group / block - before) as usize]
                };
                added(
                    (groups.start..).zip(codes).map(product).collect(),
                    offset,
                    dtype,
                )
            }
        }
    }
}

/// Numbers and another, each rounded to this dtype before they are added and after, as PyTorch adds to them in place.
fn added(numbers: Vec<f32>, other: f32, dtype: Dtype) -> Result<Vec<f32>> {
    if dtype == Dtype::F64 {
        return Ok(numbers
            .into_iter()
            .map(|x| (f64::from(x) + f64::from(other)) as f32)
            .collect());
    }
    let other = rounded(vec![other], dtype)?[0];
    rounded(
        rounded(numbers, dtype)?
            .into_iter()
            .map(|x| x + other)
            .collect(),
        dtype,
    )
}

fn rounded(numbers: Vec<f32>, dtype: Dtype) -> Result<Vec<f32>> {
    if dtype == Dtype::F32 {
        return Ok(numbers);
    }
    let wide: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
    let mut narrow = vec![0; numbers.len() * dtype.bits() as usize / 8];
    kernel::cast(Dtype::F32, &wide, dtype, &mut narrow)?;
    to_f32(dtype, &narrow)
}

/// What 16 codes are worth.
fn table16(bytes: &[u8]) -> Result<Value> {
    let values: Result<Box<[f32; 16]>, _> =
        to_f32(Dtype::F32, bytes)?.into_boxed_slice().try_into();
    Ok(Value::Table(values.map_err(|_| {
        Error::malformed("a table of other than 16 values")
    })?))
}
