//! Integer codes of 2, 4, 8 or 32 bits with scales and zero points from PyTorch's tensor description.
//!
//! Codes are contiguous from the lowest bits of each byte on, regardless of row ends, so a row of the grid is one element.
//! Precision follows PyTorch: per tensor in F32, per channel with the product in F64 (measured on `Tensor.dequantize`).

// Planning has verified that the bytes of a tile can be counted in a `usize`.
#![allow(clippy::cast_possible_truncation)]

use std::ops::Range;

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::plan::decode::cast;
use crate::plan::{DecodeInput, Decoder, Grid, PartRange, PartRanges};

/// A quantised PyTorch tensor (part 0), element by element.
#[derive(Debug)]
pub(crate) struct PthAffine {
    /// `QINT8`, `QUINT8`, `QINT32`, `QUINT4X2` or `QUINT2X4`.
    pub(crate) dtype: Dtype,
    /// Number of elements.
    pub(crate) elements: u64,
    pub(crate) scale: AffineParameters,
}

/// Scales and zero points, in the precision in which PyTorch uses them.
#[derive(Debug)]
pub(crate) enum AffineParameters {
    /// `f32(code - zero_point) * scale`, where the difference wraps around in 32 bits.
    PerTensor { scale: f32, zero_point: i32 },
    /// `f32(f64(f32(code) - zero_point) * scale)`; element `e` belongs to channel `e / inner % len`.
    PerChannel {
        scales: Vec<f64>,
        zero_points: Vec<f32>,
        inner: u64,
    },
}

impl Decoder for PthAffine {
    fn grid(&self) -> Grid {
        // tiles begin at whole bytes
        Grid {
            step: 8u64.div_ceil(self.dtype.bits()),
            ..Grid::new(self.elements, 1)
        }
    }

    fn inputs(&self, rows: Range<u64>) -> PartRanges {
        let at = |element| self.dtype.nbytes(element).unwrap_or(u64::MAX);
        PartRanges::from_iter([PartRange::run(0, at(rows.start)..at(rows.end))])
    }

    fn decode(&self, parts: DecodeInput<'_>, out: &mut [u8]) -> Result<()> {
        let DecodeInput {
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
                    // the first code is in the lowest bits
                    (0..8 / bits).map(move |i| i32::from(byte >> (i * bits) & ((1 << bits) - 1)))
                };
                Box::new(bytes.iter().flat_map(split).take(count))
            }
            _ => Box::new(bytes.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b))),
        };
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
        // PyTorch rounds in the same places
        let values: Vec<u8> = match &self.scale {
            AffineParameters::PerTensor { scale, zero_point } => codes
                .flat_map(|code| (code.wrapping_sub(*zero_point) as f32 * scale).to_le_bytes())
                .collect(),
            AffineParameters::PerChannel {
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
