//! Act-order of compressed-tensors: `weight_g_idx` assigns a group to each column.
//!
//! Codes are decoded to F32 with a scale of 1; then zero point and scale of each element are looked up by its column's group.
//! The kernel for rows expects groups to be consecutive columns. Only older files have this part.

// Planning has verified that the bytes of a tile can be counted in a `usize`.
#![allow(clippy::cast_possible_truncation)]
use std::ops::Range;

use crate::base::error::{Error, Result};
use crate::base::kernel::Dtype;
use crate::base::kernel::{self, Formula, RowGeometry};
use crate::plan::decode::{Grouped, cast, scratch};
use crate::plan::{CodeNumbers, DecodeInput, Decoder, Grid, PartRange, PartRanges};
use crate::quant::scheme::Weight;
use crate::quant::scheme::context::Context;

/// Like [`Grouped`], `(v - zero) * scale`, with a scale and a zero point per row and group; another part (I32 `[cols]`) has
/// the group of each column. An index of -1 anywhere means that groups are consecutive columns.
#[derive(Debug)]
pub(crate) struct ActOrder {
    pub(crate) inner: Grouped,
    /// Index of the part with the group indices.
    pub(crate) index: usize,
}

/// Whether a weight of the recipe's `actorder` would have an index of its columns' groups, and this one has none.
pub(crate) fn lacks_index(cx: &Context<'_>, weight: &Weight) -> bool {
    let block = weight.decoder.numbers().and_then(|numbers| numbers.block);
    let has_groups = block.is_some_and(|(rows, cols)| {
        rows == 1 && weight.shape.last().is_some_and(|all| cols < *all)
    });
    // from 0.20 on no writer has the index, nor a reader
    weight.scheme == super::NAME
        && has_groups
        && super::version(cx).is_none_or(|version| version < (0, 20))
        && weight.parts.iter().all(|part| part.role != "group_index")
}

impl Decoder for ActOrder {
    fn numbers(&self) -> Option<CodeNumbers> {
        self.inner.numbers()
    }

    fn grid(&self) -> Grid {
        self.inner.grid()
    }

    fn shared(&self) -> PartRanges {
        let mut spans = self.inner.shared();
        spans.push(PartRange::run(self.index, 0..self.inner.cols * 4));
        spans
    }

    fn inputs(&self, rows: Range<u64>) -> PartRanges {
        self.inner.inputs(rows)
    }

    fn decode(&self, parts: DecodeInput<'_>, out: &mut [u8]) -> Result<()> {
        let (index, shared) = parts
            .shared
            .split_last()
            .expect("`shared` names the group indices last");
        let index: Vec<i32> = index
            .bytes
            .as_chunks()
            .0
            .iter()
            .map(|b| i32::from_le_bytes(*b))
            .collect();
        // compressed-tensors fills `weight_g_idx` with -1 if act-order is off
        if index.contains(&-1) {
            return self.inner.decode(DecodeInput { shared, ..parts }, out);
        }
        let DecodeInput {
            inputs,
            rows,
            dtype,
            ..
        } = parts;
        let (inner, mut left) = (&self.inner, inputs.iter());
        let scales = inner.scales(shared, &mut left, &rows)?;
        let zeros = inner.zeros(&mut left, &rows, &scales)?;
        let groups = inner.cols.div_ceil(inner.groups().0) as usize;
        let index: Option<Vec<usize>> = index
            .iter()
            .map(|&g| usize::try_from(g).ok().filter(|&g| g < groups))
            .collect();
        let index = index.ok_or_else(|| {
            Error::unexplained(format!("a group index is negative or not below {groups}"))
        })?;
        let codes = left.next().expect("`inputs` names the codes last").bytes;
        let cols = inner.cols as usize;
        let geometry = RowGeometry {
            cols,
            stride: inner.codes.row_bytes as usize,
            packing: inner.codes.packing,
            value: inner.codes.value.clone(),
            // a scale of 1 converts codes to F32 exactly; the real factors differ from column to column
            formula: Formula::Scale,
            group: cols,
            rows_per_factor: usize::MAX,
            rows_per_matrix: usize::MAX,
            first: 0,
        };
        let mut values = scratch((rows.end - rows.start) as usize, cols * 4)?;
        kernel::dequantize_rows(&geometry, codes, &[1.0], &[], Dtype::F32, &mut values)?;
        for (r, row) in values.chunks_mut(cols * 4).enumerate() {
            let scales = &scales[r * groups..][..groups];
            let zeros = if zeros.is_empty() {
                None
            } else {
                Some(&zeros[r * groups..][..groups])
            };
            for (cell, &g) in row.as_chunks_mut::<4>().0.iter_mut().zip(&index) {
                // in the order of the reference: the zero point is subtracted, then the scale multiplied
                let value = f32::from_le_bytes(*cell) - zeros.map_or(0.0, |zeros| zeros[g]);
                *cell = (value * scales[g]).to_le_bytes();
            }
        }
        cast::cast(Dtype::F32, &values, dtype, out)
    }
}
