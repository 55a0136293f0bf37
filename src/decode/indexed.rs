//! Rows of codes whose columns name their group: act-order.
use std::ops::Range;

use crate::Dtype;
use crate::error::{Error, Result};
use crate::kernel::{self, Form, Rows};
use crate::plan::{Decoder, Grid, Parts, Span, Spans};

use super::grouped::Grouped;
use super::{cast, scratch};

/// As [`Grouped`] with a scale and a zero point per group of a row, where another part (I32, one per column)
/// says which group a column is of: `(v - z) * s`. An index of -1 anywhere means that columns lie in order.
#[derive(Debug)]
pub(crate) struct Indexed {
    pub(crate) inner: Grouped,
    /// Number of the part with the indices.
    pub(crate) index: usize,
}

impl Decoder for Indexed {
    fn grid(&self) -> Grid {
        self.inner.grid()
    }

    fn shared(&self) -> Spans {
        let mut spans = self.inner.shared();
        spans.push(Span::run(self.index, 0..self.inner.cols * 4));
        spans
    }

    fn inputs(&self, rows: Range<u64>) -> Spans {
        self.inner.inputs(rows)
    }

    fn decode(&self, parts: Parts<'_>, out: &mut [u8]) -> Result<()> {
        let Parts {
            shared,
            inputs,
            rows,
            dtype,
        } = parts;
        let (index, shared) = shared
            .split_last()
            .expect("the indices were asked for last");
        let index: Vec<i32> = index
            .bytes
            .as_chunks()
            .0
            .iter()
            .map(|b| i32::from_le_bytes(*b))
            .collect();
        if index.contains(&-1) {
            return self.inner.decode(
                Parts {
                    shared,
                    inputs,
                    rows,
                    dtype,
                },
                out,
            );
        }
        let (inner, mut left) = (&self.inner, inputs.iter());
        let scales = inner.scales(shared, &mut left, &rows)?;
        let zeros = inner.zeros(&mut left, &rows, &scales)?;
        let groups = inner.cols.div_ceil(inner.groups().0) as usize;
        let index: Option<Vec<usize>> = index
            .iter()
            .map(|&g| usize::try_from(g).ok().filter(|&g| g < groups))
            .collect();
        let index = index
            .ok_or_else(|| Error::malformed(format!("a group index is not one of {groups}")))?;
        let codes = left.next().expect("the codes were asked for last").bytes;
        let cols = inner.cols as usize;
        let geometry = Rows {
            cols,
            stride: inner.codes.row_bytes as usize,
            packing: inner.codes.packing,
            value: inner.codes.value.clone(),
            form: Form::Scale,
            group: cols,
            rows_per_factor: usize::MAX,
            rows_per_matrix: usize::MAX,
            first: 0,
        };
        let mut values = scratch((rows.end - rows.start) as usize, cols * 4)?;
        kernel::rows(&geometry, codes, &[1.0], &[], Dtype::F32, &mut values)?;
        for (r, row) in values.chunks_mut(cols * 4).enumerate() {
            let scales = &scales[r * groups..][..groups];
            let zeros = if zeros.is_empty() {
                None
            } else {
                Some(&zeros[r * groups..][..groups])
            };
            for (cell, &g) in row.as_chunks_mut::<4>().0.iter_mut().zip(&index) {
                let value = f32::from_le_bytes(*cell) - zeros.map_or(0.0, |zeros| zeros[g]);
                *cell = (value * scales[g]).to_le_bytes();
            }
        }
        cast::cast(Dtype::F32, &values, dtype, out)
    }
}
