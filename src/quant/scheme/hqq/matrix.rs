//! HQQ's packed matrices: of weights, and of scales and zero points that are quantised themselves.

use std::sync::Arc;

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::base::kernel::{CodePacking, CodeValue, Formula};
use crate::plan::Decoder;
use crate::plan::decode::{Codes, Factors, GroupFactors, Grouped, Linear, Planes, Scales, Zeros};
use crate::quant::scheme::attributes::Attributes;
use crate::quant::scheme::context::{missing, not_known};
use crate::quant::scheme::granularity::flat;
use crate::read::catalog::{TensorInfo, elements};

/// One of hqq's packings: name, stored bits of a code, bytes of a word, planes, and the `nbits` that use it.
struct HqqPacking {
    name: &'static str,
    bits: u32,
    word: usize,
    planes: u32,
    sizes: &'static [f64],
}

static PACKINGS: &[HqqPacking] = &[
    HqqPacking {
        name: "8bit_u8",
        bits: 8,
        word: 1,
        planes: 1,
        sizes: &[8.0, 6.0, 5.0],
    },
    HqqPacking {
        name: "4bit_u8",
        bits: 4,
        word: 1,
        planes: 2,
        sizes: &[4.0],
    },
    HqqPacking {
        name: "3bit_32",
        bits: 3,
        word: 4,
        planes: 10,
        sizes: &[3.0],
    },
    HqqPacking {
        name: "2bit_u8",
        bits: 2,
        word: 1,
        planes: 4,
        sizes: &[2.0, 1.58],
    },
    HqqPacking {
        name: "1bit_u8",
        bits: 1,
        word: 1,
        planes: 8,
        sizes: &[1.0],
    },
];

/// A packed matrix of codes, and the granularity of its factors.
pub(super) struct HqqMatrix {
    layout: &'static HqqPacking,
    pub(super) shape: Vec<u64>,
    count: u64,
    rows: u64,
    cols: u64,
    /// Stored rows: the first plane's.
    stored: u64,
    factors: FactorAxis,
}

/// The granularity of scales and zero points of an [`HqqMatrix`].
#[derive(Clone, Copy, PartialEq)]
enum FactorAxis {
    One,
    Row,
    Column,
}

impl HqqMatrix {
    /// Reads the settings of a matrix.
    pub(super) fn read(
        info: &TensorInfo,
        attributes: &Attributes<'_, '_>,
        axis: Option<i64>,
    ) -> Result<Self> {
        let wrong = |what: String| not_known(info, what);
        let layout = layout(info, attributes)?;
        let shape = attributes
            .sizes("shape")?
            .ok_or_else(|| missing(info, "shape"))?;
        let count = elements(&shape)
            .filter(|&n| n > 0)
            .ok_or_else(|| wrong(format!("invalid shape {shape:?}")))?;
        let axis = match axis {
            Some(axis @ (0 | 1)) => axis,
            Some(axis) => return Err(wrong(format!("axis {axis} is neither 0 nor 1"))),
            None => return Err(missing(info, "axis")),
        };
        let group = match attributes.integer("group_size")? {
            Some(n) => u64::try_from(n)
                .ok()
                .filter(|n| *n > 0 && count.is_multiple_of(*n)),
            // without groups, a group is a whole row or column
            None => Some(if axis == 1 {
                count / shape[0]
            } else {
                shape[0]
            }),
        };
        let group =
            group.ok_or_else(|| wrong(format!("group_size does not divide shape {shape:?}")))?;
        let groups = count / group;
        // nested matrices have no `channel_wise`; theirs follows from a scale without dimensions
        let one = attributes.integer("channel_wise")? == Some(0)
            || attributes
                .tensor("scale")
                .is_some_and(|scale| attributes.cx.info(scale).shape.is_empty());
        let (rows, cols, factors) = match (one, axis) {
            (true, _) => (shape[0], count / shape[0], FactorAxis::One),
            // axis 1 groups along the rows of the flattened weight, axis 0 down its columns
            (false, 1) => (groups, group, FactorAxis::Row),
            (false, _) => (group, groups, FactorAxis::Column),
        };
        Ok(Self {
            layout,
            shape,
            count,
            rows,
            cols,
            // planes divide the rows: the codes of the first plane's rows come first
            stored: rows.div_ceil(layout.planes.into()),
            factors,
        })
    }

    /// Verifies that `nbytes` bytes hold the codes.
    pub(super) fn hold(&self, info: &TensorInfo, nbytes: u64) -> Result<()> {
        let Self {
            layout,
            rows,
            cols,
            stored,
            ..
        } = self;
        // only the packing of 3 bits has padding rows
        let fits = layout.bits == 3 || rows.is_multiple_of(layout.planes.into());
        if !fits
            || stored
                .checked_mul(*cols)
                .and_then(|n| n.checked_mul(layout.word as u64))
                != Some(nbytes)
        {
            let what = format!(
                "{nbytes} bytes do not hold {rows} rows of {cols} as {}",
                layout.name
            );
            return Err(not_known(info, what));
        }
        Ok(())
    }

    /// The shapes that scales may have; hqq writes the first.
    pub(super) fn factors(&self) -> [Vec<u64>; 2] {
        match self.factors {
            FactorAxis::One => [vec![], vec![1]],
            FactorAxis::Row => [vec![self.rows, 1], vec![self.rows]],
            FactorAxis::Column => [vec![1, self.cols], vec![self.cols]],
        }
    }

    /// The decoder: codes are part 0, scales part 1, zero points part 2.
    pub(super) fn decoder(&self, formula: Formula, scale: Dtype, zero: Dtype) -> Arc<dyn Decoder> {
        let Self {
            layout,
            count,
            stored,
            ..
        } = *self;
        let by_rows = self.factors == FactorAxis::Row;
        // `Linear` counts elements in planes, `Grouped` rows
        let planes = (layout.planes > 1).then(|| Planes {
            stored: if by_rows { stored * self.cols } else { stored },
            word: layout.word,
            bits: layout.bits,
            shifts: (0..layout.planes)
                .rev()
                // from the highest bits down: the first rows are in the highest bits
                .map(|plane| plane * layout.bits)
                .collect(),
        });
        // one scale and no planes: rows may be cut at any length, so that none is too short to be efficient
        let (rows, cols, _) = match (self.factors, &planes) {
            (FactorAxis::One, None) => flat(count),
            _ => (self.rows, self.cols, 0),
        };
        let codes = Codes {
            planes,
            ..Codes::new(
                CodePacking::Bytes,
                CodeValue::Unsigned,
                cols * layout.word as u64,
            )
        };
        if by_rows {
            let (scales, zeros) = (
                GroupFactors::Stored {
                    part: 1,
                    dtype: scale,
                },
                GroupFactors::Stored {
                    part: 2,
                    dtype: zero,
                },
            );
            return Arc::new(Linear {
                elements: count,
                group: cols,
                codes,
                table: None,
                formula,
                scales,
                zeros: Some(zeros),
            });
        }
        let factors = |part, dtype| match self.factors {
            FactorAxis::One => Factors::one(part, dtype),
            // one factor per column, shared by all rows
            _ => Factors::per_block(part, dtype, u64::MAX, 1),
        };
        let (scales, zeros) = (
            Scales::Stored(factors(1, scale)),
            Zeros::Stored(factors(2, zero)),
        );
        Arc::new(Grouped {
            rows,
            cols,
            matrix_rows: rows,
            codes,
            formula,
            scales,
            zeros,
        })
    }
}

/// The packing, by its name or by `nbits`.
fn layout(info: &TensorInfo, attributes: &Attributes<'_, '_>) -> Result<&'static HqqPacking> {
    let size = attributes.number("nbits")?;
    // `nbits` is a float in hqq, and 1.58 has no exact representation
    let suits = |layout: &&HqqPacking| {
        size.is_none_or(|size| layout.sizes.iter().any(|s| (s - size).abs() < 1e-3))
    };
    match (attributes.text("packing")?, size) {
        (Some(name), _) => PACKINGS
            .iter()
            .find(|layout| layout.name == name)
            .filter(suits)
            .ok_or_else(|| {
                not_known(
                    info,
                    format!(
                        "packing {name:?} does not fit nbits {}",
                        size.unwrap_or_default()
                    ),
                )
            }),
        (None, Some(size)) => PACKINGS
            .iter()
            .find(suits)
            .ok_or_else(|| not_known(info, format!("unsupported nbits {size}"))),
        (None, None) => Err(missing(info, "nbits")),
    }
}
