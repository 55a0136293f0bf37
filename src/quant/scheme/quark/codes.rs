//! Quark's integer codes with a scale per group, stored `[in, out]`, or per row or tensor, stored `[out, in]`.

use std::sync::Arc;

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::base::kernel::{CodePacking, CodeValue, Formula};
use crate::plan::decode::{
    CodeOrder, Codes, Composite, Factors, Grouped, PartOffset, PartView, Scales, Transposed,
    TransposedScales, TransposedZeros, Zeros,
};
use crate::quant::scheme::context::{Context, not_known, plain, unsupported};
use crate::quant::scheme::granularity::{factors, zero_dtype, zeros_like};

use super::QuarkWeight;
use super::reordered::{PackedZeroPoints, ReorderedCodes};
use super::scales::QuantisedScales;

/// The tensors of a weight, and how its codes are stored.
pub(super) struct QuarkCodes<'x, 'c> {
    pub(super) cx: &'x Context<'c>,
    pub(super) tensor: usize,
    pub(super) scale: usize,
    pub(super) zero: Option<usize>,
    /// The second scale, if scales are quantised.
    pub(super) over: Option<QuantisedScales>,
    /// Codes per stored item.
    pub(super) per_item: u64,
    pub(super) packing: CodePacking,
    pub(super) order: CodeOrder,
    pub(super) value: CodeValue,
}

impl QuarkCodes<'_, '_> {
    fn parts(&self) -> Vec<(&'static str, usize)> {
        let zero = self.zero.map(|zero| ("zero_point", zero));
        let over = self.over.iter().flat_map(QuantisedScales::parts);
        [("codes", self.tensor), ("scale", self.scale)]
            .into_iter()
            .chain(zero)
            .chain(over)
            .collect()
    }

    /// One scale per group: stored `[in, out]`.
    pub(super) fn input_major(self, lines: u64, along: u64) -> Result<QuarkWeight> {
        let (cx, info, scales) = (self.cx, self.cx.info(self.tensor), self.cx.info(self.scale));
        // the number of groups is in the shape of the scales only
        let groups = scales.shape.first().copied().unwrap_or_default();
        let dtype = plain(scales).filter(|dtype| match &self.over {
            // quantised scales have the dtype that the configuration names for them
            Some(over) => *dtype == over.dtype,
            None => matches!(dtype, Dtype::F32 | Dtype::F16 | Dtype::BF16),
        });
        let fits =
            groups > 0 && scales.shape[..] == [groups, along] && lines.is_multiple_of(groups);
        let Some(dtype) = dtype.filter(|_| fits) else {
            let what = format!(
                "{} {:?} does not scale {:?}",
                scales.encoding,
                scales.shape,
                [lines, along]
            );
            return Err(not_known(scales, what));
        };
        if !along.is_multiple_of(8) {
            return Err(unsupported(
                info,
                format!("{along} outputs are not a multiple of 8, so they do not fill whole words"),
            ));
        }
        let zeros = match self.zero.map(|zero| (cx.info(zero), plain(cx.info(zero)))) {
            None => TransposedZeros::None,
            // Quark packs zero points along the outputs like the codes of the row
            Some((zero, Some(Dtype::I32)))
                if self.per_item == 8 && zero.shape[..] == [groups, along / 8] =>
            {
                TransposedZeros::Packed(2)
            }
            Some((
                zero,
                Some(dtype @ (Dtype::F32 | Dtype::F16 | Dtype::BF16 | Dtype::I32 | Dtype::I8)),
            )) if zero.shape[..] == [groups, along] && zero_dtype(dtype, self.is_signed()) => {
                TransposedZeros::Stored(2, dtype)
            }
            // U8 holds packed integers here, not exponents, as the codes do
            Some((zero, Some(Dtype::U8)))
                if plain(info) == Some(Dtype::U8)
                    && zero.shape[..] == [groups, along / self.per_item] =>
            {
                TransposedZeros::Packed(2)
            }
            Some((zero, _)) => {
                let what = format!(
                    "{} {:?} instead of zero points of {groups} groups",
                    zero.encoding, zero.shape
                );
                return Err(not_known(zero, what));
            }
        };
        let decoder = Transposed {
            matrices: 1,
            stored_rows: lines,
            stored_cols: along,
            packing: self.packing,
            order: self.order,
            value: self.value.clone(),
            group_rows: lines / groups,
            group_cols: 1,
            scales: TransposedScales::Stored(1, dtype, self.over.as_ref().map(|over| over.number)),
            zeros,
        };
        Ok(QuarkWeight {
            shape: [along, lines],
            parts: self.parts(),
            decoder: Box::new(decoder),
        })
    }

    /// One scale per row, or one for all: stored `[out, in]`.
    pub(super) fn output_major(self, rows: u64, cols: u64) -> Result<QuarkWeight> {
        let (cx, info) = (self.cx, self.cx.info(self.tensor));
        let scales = match &self.over {
            Some(over) => over.factors(cx, self.scale, [rows, cols])?,
            None => factors(cx, 1, self.scale, &[rows, cols], None)?,
        };
        let (zeros, view) = match self.zero {
            None => (Zeros::None, None),
            Some(zero) if self.per_item == 1 => (
                Zeros::Stored(zeros_like(
                    cx,
                    2,
                    zero,
                    self.scale,
                    &scales,
                    self.is_signed(),
                )?),
                None,
            ),
            Some(zero) => self.packed_zeros(zero, rows, &scales)?,
        };
        let scales = match &self.over {
            Some(over) => Scales::Times(
                scales,
                over.global(cx, 2 + usize::from(self.zero.is_some())),
            ),
            None => Scales::Stored(scales),
        };
        let formula = if matches!(zeros, Zeros::None) {
            Formula::Scale
        } else {
            Formula::ZeroScale
        };
        // codes of a row fill whole words, because `in` is a multiple of the codes in a word here
        let row_bytes = self
            .packing
            .row_bytes(cols)
            .ok_or_else(|| not_known(info, "too long"))?;
        let codes = Codes::new(self.packing, self.value.clone(), row_bytes);
        let inner = Grouped {
            rows,
            cols,
            matrix_rows: rows,
            codes,
            formula,
            scales,
            zeros,
        };
        let parts = self.parts();
        let mut views: Vec<_> = view.map(|view| (2, view)).into_iter().collect();
        if self.order != CodeOrder::Natural {
            let codes = ReorderedCodes {
                place: PartOffset::whole(0),
                rows,
                row_bytes,
                order: self.order,
            };
            views.push((0, Arc::new(codes) as Arc<dyn PartView>));
        }
        let decoder = Box::new(Composite::new(inner, parts.len(), views));
        Ok(QuarkWeight {
            shape: [rows, cols],
            parts,
            decoder,
        })
    }

    /// Zero points of 2 or 4 bits: packed along the rows like codes, or a single number.
    fn packed_zeros(
        &self,
        zero: usize,
        rows: u64,
        scales: &Factors,
    ) -> Result<(Zeros, Option<Arc<dyn PartView>>)> {
        let (cx, info) = (self.cx, self.cx.info(zero));
        let (items, item) = (
            rows.div_ceil(self.per_item),
            if self.per_item == 8 {
                Dtype::I32
            } else {
                Dtype::U8
            },
        );
        let (bits, signed) = (item.bits() / self.per_item, self.is_signed());
        if plain(info) == Some(Dtype::I32) && info.shape.is_empty() && scales.is_one() {
            // only the lowest 4 bits are used
            let number = (cx.peek_integers(zero)?.first().copied().unwrap_or_default() & 15) as i8;
            // four bits in two's complement
            let number = if signed && number > 7 {
                number - 16
            } else {
                number
            };
            return Ok((Zeros::All(number.into()), None));
        }
        if plain(info) != Some(item)
            || info.elements() != items
            // packed zero points are one per row
            || scales.rows != 1
            || scales.cols != self.cols()
        {
            let what = format!(
                "{} {:?} instead of zero points of {rows} rows",
                info.encoding, info.shape
            );
            return Err(not_known(info, what));
        }
        let view = PackedZeroPoints {
            place: PartOffset::whole(2),
            rows,
            order: self.order,
            per_item: self.per_item,
            bits,
            signed,
        };
        let dtype = if signed { Dtype::I8 } else { Dtype::U8 };
        Ok((
            Zeros::Stored(Factors {
                part: 2,
                dtype,
                ..scales.clone()
            }),
            Some(Arc::new(view)),
        ))
    }

    fn is_signed(&self) -> bool {
        self.value != CodeValue::Unsigned
    }

    /// Columns of an output-major weight.
    fn cols(&self) -> u64 {
        self.cx.info(self.tensor).shape[1] * self.per_item
    }
}
