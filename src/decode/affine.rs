//! Whole numbers of 8 or 32 bits with scales and zero points that PyTorch keeps in the tensor's description.

use std::ops::Range;

use crate::Dtype;
use crate::error::Result;
use crate::plan::{Decoder, Grid, Parts, Span, Spans};

use super::cast;

/// A quantised tensor of PyTorch's (part 0), element by element.
#[derive(Debug)]
pub(crate) struct Affine {
    /// `QINT8`, `QUINT8`, `QINT32`, `QUINT4X2` or `QUINT2X4`.
    pub(crate) dtype: Dtype,
    /// Number of elements.
    pub(crate) elements: u64,
    pub(crate) scale: Affinity,
}

/// Scales and zero points, as exactly as PyTorch takes them.
#[derive(Debug)]
pub(crate) enum Affinity {
    /// `f32(code - zero_point) * scale`, the difference in 32 bits that wrap around.
    PerTensor { scale: f32, zero_point: i32 },
    /// `f32(f64(f32(code) - zero_point) * scale)`; element `e` has those number `e / inner % len`.
    PerChannel {
        scales: Vec<f64>,
        zero_points: Vec<f32>,
        inner: u64,
    },
}

impl Decoder for Affine {
    fn grid(&self) -> Grid {
        // elements that share a byte stay together
        Grid {
            step: 8u64.div_ceil(self.dtype.bits()),
            ..Grid::new(self.elements, 1)
        }
    }

    fn inputs(&self, rows: Range<u64>) -> Spans {
        let at = |element| self.dtype.nbytes(element).unwrap_or(u64::MAX);
        Spans::from_iter([Span::run(0, at(rows.start)..at(rows.end))])
    }

    fn decode(&self, parts: Parts<'_>, out: &mut [u8]) -> Result<()> {
        let Parts {
            inputs,
            rows,
            dtype,
            ..
        } = parts;
        let bytes = inputs[0].bytes;
        let codes: Box<dyn Iterator<Item = i32>> = match self.dtype {
            Dtype::QINT8 => Box::new(bytes.iter().map(|b| b.cast_signed().into())),
            Dtype::QUINT8 => Box::new(bytes.iter().map(|b| i32::from(*b))),
            Dtype::QUINT4X2 | Dtype::QUINT2X4 => {
                let (bits, count) = (self.dtype.bits(), (rows.end - rows.start) as usize);
                let split = move |b: &u8| {
                    let byte = *b;
                    (0..8 / bits).map(move |i| i32::from(byte >> (i * bits) & ((1 << bits) - 1)))
                };
                Box::new(bytes.iter().flat_map(split).take(count))
            }
            _ => Box::new(bytes.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b))),
        };
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)] // as PyTorch rounds
        let values: Vec<u8> = match &self.scale {
            Affinity::PerTensor { scale, zero_point } => codes
                .flat_map(|code| (code.wrapping_sub(*zero_point) as f32 * scale).to_le_bytes())
                .collect(),
            Affinity::PerChannel {
                scales,
                zero_points,
                inner,
            } => {
                let value = |(element, code): (u64, i32)| {
                    let channel = (element / inner % scales.len() as u64) as usize;
                    (f64::from(code as f32 - zero_points[channel]) * scales[channel]) as f32
                };
                rows.zip(codes)
                    .flat_map(|pair| value(pair).to_le_bytes())
                    .collect()
            }
        };
        cast::cast(Dtype::F32, &values, dtype, out)
    }
}
