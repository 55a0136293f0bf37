//! A weight as one run of codes, with a scale and maybe a zero point per group of consecutive elements. Groups ignore the
//! ends of the weight's rows: bitsandbytes' blocks, HQQ's and quanto's groups.
//!
//! A row of the grid is one element, so that tiles are long runs and begin at group boundaries.

use std::ops::Range;

use crate::base::error::{Error, Result};
use crate::base::kernel::Dtype;
use crate::base::kernel::{self, CodeValue, Formula, RowGeometry};
use crate::plan::{CodeNumbers, DecodeInput, Decoder, Grid, PartBytes, PartRange, PartRanges};

use super::factors::to_f32;
use super::grouped::{CODES, Codes};

/// One run of codes (part 0), with factors per group.
#[derive(Debug)]
pub(crate) struct Linear {
    /// Number of elements.
    pub(crate) elements: u64,
    /// Elements that share a scale; the last group may have fewer.
    pub(crate) group: u64,
    /// A row of these codes is one element; planes therefore count elements.
    pub(crate) codes: Codes,
    /// The part with a table of the values of the 16 codes (F32), if the values are stored.
    pub(crate) table: Option<usize>,
    pub(crate) formula: Formula,
    pub(crate) scales: GroupFactors,
    pub(crate) zeros: Option<GroupFactors>,
}

/// Where a factor per group comes from.
#[derive(Debug)]
pub(crate) enum GroupFactors {
    Stored {
        part: usize,
        dtype: Dtype,
    },
    /// Like [`Stored`](Self::Stored), with the opposite sign.
    Negated {
        part: usize,
        dtype: Dtype,
    },
    /// `map[code] * scale + offset`: a code per group (U8), a table of 256 values, and a scale per `block` groups (both
    /// F32). The product, the offset and the sum are each rounded to the float `dtype`.
    Nested {
        codes: usize,
        map: usize,
        scales: usize,
        block: u64,
        offset: f32,
        dtype: Dtype,
    },
}

impl Decoder for Linear {
    fn numbers(&self) -> Option<CodeNumbers> {
        if self.table.is_some() {
            return None;
        }
        let mut numbers = CodeNumbers::new(self.codes.packing, &self.codes.value, None);
        if let Some(planes) = &self.codes.planes {
            (numbers.bits, numbers.is_packed) = (planes.bits, true);
        }
        Some(numbers)
    }

    fn grid(&self) -> Grid {
        Grid {
            // a tile begins at a group, so that the first factor of the tile belongs to its first element
            step: self.group,
            ..Grid::new(self.elements, 1)
        }
    }

    fn shared(&self) -> PartRanges {
        let table = self.table.map(|part| PartRange::run(part, 0..16 * 4));
        let map = |numbers: &GroupFactors| match *numbers {
            GroupFactors::Nested { map, .. } => Some(PartRange::run(map, 0..256 * 4)),
            GroupFactors::Stored { .. } | GroupFactors::Negated { .. } => None,
        };
        table
            .into_iter()
            .chain(self.per_group().filter_map(map))
            .collect()
    }

    fn inputs(&self, rows: Range<u64>) -> PartRanges {
        let groups = self.groups(&rows);
        let mut spans = PartRanges::new();
        for numbers in self.per_group() {
            match *numbers {
                GroupFactors::Stored { part, dtype } | GroupFactors::Negated { part, dtype } => {
                    let item = dtype.bits() / 8;
                    spans.push(PartRange::run(part, groups.start * item..groups.end * item));
                }
                GroupFactors::Nested {
                    codes,
                    scales,
                    block,
                    ..
                } => {
                    spans.push(PartRange::run(codes, groups.clone()));
                    spans.push(PartRange::run(
                        scales,
                        groups.start / block * 4..groups.end.div_ceil(block) * 4,
                    ));
                }
            }
        }
        spans.extend(self.codes.runs(rows).map(|run| {
            // groups have an even number of codes, so that a run begins at a byte
            let at = |element| run.packing.row_bytes(element).unwrap_or(u64::MAX);
            PartRange::run(CODES, at(run.stored.start)..at(run.stored.end))
        }));
        spans
    }

    #[allow(clippy::cast_possible_truncation)] // sizes of what is in memory
    fn decode(&self, parts: DecodeInput<'_>, out: &mut [u8]) -> Result<()> {
        let DecodeInput {
            shared,
            inputs,
            rows,
            dtype,
        } = parts;
        let (mut shared, mut inputs) = (shared.iter(), inputs.iter());
        let value = match (self.table, shared.as_slice()) {
            // the table is the first shared range, maps of nested factors follow
            (Some(_), [table, ..]) => {
                shared.next();
                table16(table.bytes)?
            }
            _ => self.codes.value.clone(),
        };
        let groups = self.groups(&rows);
        let mut numbers = |kind: &GroupFactors| kind.read(&mut shared, &mut inputs, &groups);
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
            let geometry = RowGeometry {
                // the whole run is one row of the kernel, so that groups follow one another without row ends
                cols: count as usize,
                stride: codes.bytes.len(),
                packing: run.packing,
                value: value.clone(),
                formula: self.formula,
                group: self.group as usize,
                rows_per_factor: 1,
                rows_per_matrix: 1,
                first: 0,
            };
            // a plane begins at a group
            let skipped = (first / self.group) as usize;
            let zeros = if zeros.is_empty() {
                &zeros
            } else {
                &zeros[skipped..]
            };
            kernel::dequantize_rows(
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

impl Linear {
    fn per_group(&self) -> impl Iterator<Item = &GroupFactors> {
        std::iter::once(&self.scales).chain(&self.zeros)
    }

    /// The groups that contain these elements.
    fn groups(&self, elements: &Range<u64>) -> Range<u64> {
        elements.start / self.group..elements.end.div_ceil(self.group)
    }
}

impl GroupFactors {
    #[allow(clippy::cast_possible_truncation)] // an index into what is in memory
    fn read<'s>(
        &self,
        shared: &mut impl Iterator<Item = &'s PartBytes<'s>>,
        inputs: &mut impl Iterator<Item = &'s PartBytes<'s>>,
        groups: &Range<u64>,
    ) -> Result<Vec<f32>> {
        let mut next = || inputs.next().map_or(&[][..], |strip| strip.bytes);
        match *self {
            Self::Stored { dtype, .. } => to_f32(dtype, next()),
            // quanto subtracts its shift, and the kernel's formula adds an offset; negating is exact
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
                // scales were loaded from the block of the first group on
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

/// Adds `other` to each number; operands and sums are rounded to `dtype`, as PyTorch's in-place addition rounds.
fn added(numbers: Vec<f32>, other: f32, dtype: Dtype) -> Result<Vec<f32>> {
    // no kernel rounds to F64, in which the sum is computed directly
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

/// The stored values of the 16 codes.
fn table16(bytes: &[u8]) -> Result<CodeValue> {
    let values: Result<Box<[f32; 16]>, _> =
        to_f32(Dtype::F32, bytes)?.into_boxed_slice().try_into();
    Ok(CodeValue::Table(values.map_err(|_| {
        Error::malformed("the table of code values does not have 16 entries")
    })?))
}
