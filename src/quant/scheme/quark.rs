//! AMD Quark's integer codes of 2 to 8 bits: `w = (q - zero) * scale`.
//!
//! Written by Quark. Recognised by `quant_method` and the configured dtype of the layer, for `X.weight` in I32, I8 or U8.
//! Signedness and order of codes are in the configuration only. Quark's FP8 is read by `fp8.rs`, its OCP MX and NVFP4 by
//! `fp4.rs`.
//!
//! | granularity | `X.weight` | `X.weight_scale` | zero points |
//! |---|---|---|---|
//! | per group | `[in, out]`; 4 bits: I32 `[in, out / 8]` | `[in / group, out]` | packed like the weight, or one by one |
//! | per row, per tensor | `[out, in]`; 4 bits: I32 `[out, in / 8]` | `[out]` or one | the same |
//!
//! Eight codes of 4 bits are in AWQ's order if `pack_method` is `reorder`, else from the lowest bits on. `uint2` is four codes
//! in a byte, from the highest bits on; `int2` is not packed; `int3` is in `int3.rs`, the older export of OCP MX in `mx.rs`.
//!
//! Two-step quantisation: integers that were made of FP8 (the FP8 is not stored) have `weight_scale_2` as their own scale and
//! `weight_scale` as that of the FP8, `w = (q - zero) * scale_2 * scale`. Scales that were quantised themselves are in
//! `scales.rs`.
//!
//! Refused: other dtypes; outputs that are no multiple of 8 for a scale per group; nested scales that are not described in
//! the configuration.
//!
//! Source: Quark 0.13, `torch/utils/pack.py`, `torch/export/nn/modules/realquantizer.py` and
//! `torch/kernel/hw_emulation/hw_emulation_interface.py` (`dequantize_int`, `dequantize_fp8`).

mod config;
mod inline_scales;
mod int3;
mod mx;
mod reordered;
mod rescaled;
mod scales;

use std::sync::Arc;

use crate::Dtype;
use crate::error::Result;
use crate::kernel::{CodePacking, CodeValue, Formula};
use crate::plan::Decoder;
use crate::quant::decode::{
    CodeOrder, Codes, Composite, Factors, Grouped, PartOffset, PartView, Scales, Transposed,
    TransposedScales, TransposedZeros, Zeros,
};

use super::Weight;
use super::context::{Context, malformed, plain, stem, unsupported};
use super::granularity::{factors, filled, zeros_like};
use super::modelopt::SIGNED_NIBBLES;
use super::unquantised::missing;
use reordered::{PackedZeroPoints, ReorderedCodes};
use rescaled::Rescaled;

pub(super) use config::{dtype, plain_exponents, scale_format};
use config::{of_scales, steps, text};
use scales::QuantisedScales;

pub(super) fn claim(cx: &Context<'_>, tensor: usize) -> Result<Option<Weight>> {
    let info = cx.info(tensor);
    let Some(stem) = stem(info, ".weight").filter(|_| cx.config.is(&["quark"])) else {
        return Ok(None);
    };
    let Some(stored @ (Dtype::I32 | Dtype::I8 | Dtype::U8)) = cx.dtype(tensor) else {
        return Ok(None);
    };
    let steps = steps(cx, &info.name);
    let Some(&first) = steps.first() else {
        return Ok(None);
    };
    // FP8 that was quantised to integers in a second step
    let twice = steps
        .get(1)
        .copied()
        .filter(|next| text(first, "dtype").starts_with("fp8") && !of_scales(next));
    let spec = twice.unwrap_or(first);
    let (dtype, grouped) = (text(spec, "dtype"), text(spec, "qscheme") == "per_group");
    let signed = || CodeValue::Table(Box::new(SIGNED_NIBBLES));
    let awq = if cx
        .config
        .text("export.pack_method")
        .is_some_and(|m| m != "reorder")
    {
        CodeOrder::Natural
    } else {
        CodeOrder::Awq
    };
    // codes per stored item, their packing and order, and their values
    let (per_item, packing, order, value) = match (dtype, stored) {
        ("int4", Dtype::I32) => (8, CodePacking::LowNibbles, awq, signed()),
        ("uint4", Dtype::I32) => (8, CodePacking::LowNibbles, awq, CodeValue::Unsigned),
        ("uint2", Dtype::U8) => (
            4,
            CodePacking::Stream(2),
            CodeOrder::HighFirst,
            CodeValue::Unsigned,
        ),
        // one code per item, in its lowest byte
        ("int2", Dtype::I32) => (
            1,
            CodePacking::Plane(4, 0, 8),
            CodeOrder::Natural,
            CodeValue::Signed,
        ),
        ("int2" | "int8", Dtype::I8) => {
            (1, CodePacking::Bytes, CodeOrder::Natural, CodeValue::Signed)
        }
        ("uint8", Dtype::U8) => (
            1,
            CodePacking::Bytes,
            CodeOrder::Natural,
            CodeValue::Unsigned,
        ),
        ("int3", Dtype::U8) => return int3::weight(cx, tensor, stem, spec).map(Some),
        ("mx", Dtype::U8) => return mx::weight(cx, tensor, text(spec, "mx_element_dtype")),
        ("int2" | "uint2" | "int3", _) | (_, Dtype::I32) => {
            return Err(unsupported(
                info,
                format!("Quark's {dtype:?} in {stored} is not supported"),
            ));
        }
        // narrow floats are claimed by other schemes, by their dtypes
        _ => return Ok(None),
    };
    let over = match cx.sibling(stem, ".weight_scale_2") {
        Some(second) if twice.is_none() => Some(QuantisedScales::find(
            cx,
            stem,
            second,
            steps.get(1).copied(),
        )?),
        _ => None,
    };
    let of_step = if twice.is_some() { "_2" } else { "" };
    let part = |name: &str| cx.sibling(stem, &[".", name, of_step].concat());
    let scale =
        part("weight_scale").ok_or_else(|| missing(info, &["weight_scale", of_step].concat()))?;
    let [rows, items] = info.shape[..] else {
        return Err(malformed(info, "expected two dimensions"));
    };
    filled(info, &info.shape)?;
    let width = items
        .checked_mul(per_item)
        .ok_or_else(|| malformed(info, "too long"))?;
    let zero = part("weight_zero_point");
    let codes = QuarkCodes {
        cx,
        tensor,
        scale,
        zero,
        over,
        per_item,
        packing,
        order,
        value,
    };
    let mut weight = if grouped {
        codes.input_major(rows, width)?
    } else {
        codes.output_major(rows, width)?
    };
    if twice.is_some() {
        weight = weight.rescaled(
            cx,
            cx.sibling(stem, ".weight_scale")
                .ok_or_else(|| missing(info, "weight_scale"))?,
        )?;
    }
    Ok(Some(cx.weight_by(
        "quark",
        &*info.name,
        &weight.shape,
        &weight.parts,
        weight.decoder.into(),
    )))
}

/// A weight's shape, parts and decoder.
struct QuarkWeight {
    shape: [u64; 2],
    parts: Vec<(&'static str, usize)>,
    decoder: Box<dyn Decoder>,
}

impl QuarkWeight {
    /// Multiplies by the scale of the FP8 step: one, or one for each row.
    fn rescaled(mut self, cx: &Context<'_>, tensor: usize) -> Result<Self> {
        let info = cx.info(tensor);
        let dtype = plain(info).filter(|d| matches!(d, Dtype::F32 | Dtype::F16 | Dtype::BF16));
        let count = info.elements();
        let Some(dtype) = dtype.filter(|_| count == 1 || count == self.shape[0]) else {
            let what = format!(
                "{} {:?} does not scale {:?}",
                info.encoding,
                info.shape.as_slice(),
                self.shape
            );
            return Err(malformed(info, what));
        };
        self.parts.push(("scale", tensor));
        let factor = (self.parts.len() - 1, dtype);
        let decoder = Box::new(Rescaled {
            inner: self.decoder,
            factor,
            by_row: count > 1,
        });
        Ok(Self { decoder, ..self })
    }
}

/// The tensors of a weight, and how its codes are stored.
struct QuarkCodes<'x, 'c> {
    cx: &'x Context<'c>,
    tensor: usize,
    scale: usize,
    zero: Option<usize>,
    /// The second scale, if scales are quantised.
    over: Option<QuantisedScales>,
    /// Codes per stored item.
    per_item: u64,
    packing: CodePacking,
    order: CodeOrder,
    value: CodeValue,
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
    fn input_major(self, lines: u64, along: u64) -> Result<QuarkWeight> {
        let (cx, info, scales) = (self.cx, self.cx.info(self.tensor), self.cx.info(self.scale));
        let groups = scales.shape.first().copied().unwrap_or_default();
        let dtype = plain(scales).filter(|dtype| match &self.over {
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
            return Err(malformed(scales, what));
        };
        if !along.is_multiple_of(8) {
            return Err(unsupported(
                info,
                format!("{along} outputs are not a multiple of 8, so they do not fill whole words"),
            ));
        }
        let zeros = match self.zero.map(|zero| (cx.info(zero), plain(cx.info(zero)))) {
            None => TransposedZeros::None,
            Some((zero, Some(Dtype::I32)))
                if self.per_item == 8 && zero.shape[..] == [groups, along / 8] =>
            {
                TransposedZeros::Packed(2)
            }
            Some((
                zero,
                Some(dtype @ (Dtype::F32 | Dtype::F16 | Dtype::BF16 | Dtype::I32 | Dtype::I8)),
            )) if zero.shape[..] == [groups, along] => TransposedZeros::Stored(2, dtype),
            // U8 holds packed integers here, not exponents
            Some((zero, Some(Dtype::U8)))
                if self.per_item < 8 && zero.shape[..] == [groups, along / self.per_item] =>
            {
                TransposedZeros::Packed(2)
            }
            Some((zero, _)) => {
                let what = format!(
                    "{} {:?} instead of zero points of {groups} groups",
                    zero.encoding, zero.shape
                );
                return Err(malformed(zero, what));
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
    fn output_major(self, rows: u64, cols: u64) -> Result<QuarkWeight> {
        let (cx, info) = (self.cx, self.cx.info(self.tensor));
        let scales = match &self.over {
            Some(over) => over.factors(cx, self.scale, [rows, cols])?,
            None => factors(cx, 1, self.scale, &[rows, cols], None)?,
        };
        let (zeros, view) = match self.zero {
            None => (Zeros::None, None),
            Some(zero) if self.per_item == 1 => (
                Zeros::Stored(zeros_like(cx, 2, zero, self.scale, &scales)?),
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
        let row_bytes = self
            .packing
            .row_bytes(cols)
            .ok_or_else(|| malformed(info, "too long"))?;
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
        let (parts, order) = (self.parts(), self.order);
        let made = view.map(|view| (2, view)).into_iter().collect();
        let decoder: Box<dyn Decoder> = match order {
            CodeOrder::Natural => Box::new(Composite::new(inner, parts.len(), made)),
            order => Box::new(Composite::new(
                ReorderedCodes { inner, order },
                parts.len(),
                made,
            )),
        };
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
        let (bits, signed) = (
            item.bits() / self.per_item,
            self.value != CodeValue::Unsigned,
        );
        if plain(info) == Some(Dtype::I32) && info.shape.is_empty() && scales.is_one() {
            // only the lowest 4 bits are used
            let number = (cx.peek_integers(zero)?.first().copied().unwrap_or_default() & 15) as i8;
            let number = if signed && number > 7 {
                number - 16
            } else {
                number
            };
            return Ok((Zeros::All(number.into()), None));
        }
        if plain(info) != Some(item)
            || info.elements() != items
            || scales.rows != 1
            || scales.cols != self.cols()
        {
            let what = format!(
                "{} {:?} instead of zero points of {rows} rows",
                info.encoding, info.shape
            );
            return Err(malformed(info, what));
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

    /// Columns of an output-major weight.
    fn cols(&self) -> u64 {
        self.cx.info(self.tensor).shape[1] * self.per_item
    }
}
