//! AWQ in rows: codes of four bits, with padded rows of scales and packed zero points.

use std::ops::Range;

use crate::Dtype;
use crate::error::Result;
use crate::kernel::{self, Form, Packing, Rows, Value};
use crate::plan::{Decoder, Grid, Parts, Span, Spans};

use super::factors::to_f32;
use super::grouped::CODES;

/// Rows of codes (part 0), scales (part 1) and zero points (part 2).
#[derive(Debug)]
pub(crate) struct Gemv {
    pub(crate) rows: u64,
    /// Elements of a row: a multiple of 8.
    pub(crate) cols: u64,
    /// Elements that share a scale.
    pub(crate) group: u64,
    /// Scales of a row, with those that are only room: a multiple of 8.
    pub(crate) room: u64,
    pub(crate) scales: Dtype,
}

impl Decoder for Gemv {
    fn grid(&self) -> Grid {
        Grid::new(self.rows, self.cols)
    }

    fn inputs(&self, rows: Range<u64>) -> Spans {
        let run = |part, bytes: u64| Span::run(part, rows.start * bytes..rows.end * bytes);
        Spans::from_iter([
            run(CODES, self.cols / 2),
            run(1, self.room * self.scales.bits() / 8),
            run(2, self.room / 2),
        ])
    }

    fn decode(&self, parts: Parts<'_>, out: &mut [u8]) -> Result<()> {
        let Parts { inputs, dtype, .. } = parts;
        let (groups, room) = (self.cols.div_ceil(self.group) as usize, self.room as usize);
        let scales = to_f32(self.scales, inputs[1].bytes)?;
        let scales: Vec<f32> = scales
            .chunks(room)
            .flat_map(|row| &row[..groups])
            .copied()
            .collect();
        let words = inputs[2].bytes.as_chunks::<4>().0;
        let codes = |row: &[[u8; 4]]| -> Vec<u8> {
            row.iter()
                .flat_map(|word| kernel::eight_codes(*word, false))
                .take(groups)
                .collect()
        };
        let zeros: Vec<f32> = words
            .chunks(room / 8)
            .flat_map(codes)
            .map(f32::from)
            .collect();
        let geometry = Rows {
            cols: self.cols as usize,
            stride: self.cols as usize / 2,
            packing: Packing::LowNibbles,
            value: Value::Unsigned,
            form: Form::ZeroScale,
            group: self.group.min(self.cols) as usize,
            rows_per_factor: 1,
            rows_per_matrix: self.rows as usize,
            first: 0,
        };
        Ok(kernel::rows(
            &geometry,
            inputs[0].bytes,
            &scales,
            &zeros,
            dtype,
            out,
        )?)
    }
}
