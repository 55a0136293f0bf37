//! AMD Quark's whole numbers of 2 to 8 bits: `w = (q - zero) * scale`.
//!
//! With one scale per group everything is stored the other way round: `X.weight` `[in, out]` (4 bits: I32
//! `[in, out / 8]`), `X.weight_scale` `[in / group, out]`, and zero points like the weight. Else the weight
//! is `[out, in]` (4 bits: `[out, in / 8]`), with a scale per row or one for all. Eight codes in a word lie
//! in AWQ's order if `pack_method` is `reorder`, else from the lowest bits on. `uint2` has four codes in a byte, from
//! the highest bits on; `int2` is not packed; `int3` is in `three.rs`, the older export of OCP MX in `mx.rs`.
//!
//! Whole numbers may have been made of FP8 in a second step, and the FP8 are not stored: `weight_scale_2` is the scale
//! of the whole numbers then, and `weight_scale` that of the FP8, `w = (q - zero) * scale_2 * scale`. Or their scales
//! were quantised, which is in `scales.rs`.
//!
//! That a code has a sign, and the order of the codes, is said by the configuration alone.
//! Quark's FP8 is that of everyone, its OCP MX and NVFP4 are in `fp4.rs`.
//!
//! Source: Quark 0.13, `torch/utils/pack.py`, `torch/export/nn/modules/realquantizer.py` and
//! `torch/kernel/hw_emulation/hw_emulation_interface.py` (`dequantize_int`, `dequantize_fp8`).

mod config;
mod mx;
mod scales;
mod three;

use std::sync::Arc;

use crate::Dtype;
use crate::decode::{
    Codes, Derived, Factor, Factors, Grouped, Order, PerRow, Place, Reordered, Rescaled, Scales,
    Side, Turned, View, Zeros,
};
use crate::error::Result;
use crate::kernel::{Form, Packing, Value};
use crate::plan::Decoder;

use super::Weight;
use super::context::{Context, malformed, plain, stem, unsupported};
use super::grain::{factors, filled, zeros_like};
use super::modelopt::SIGNED_NIBBLES;
use super::plain::missing;

pub(super) use config::{dtype, plain_exponents, scale_format};
use config::{of_scales, steps, text};
use scales::Over;

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
    // floats that were made whole numbers in a second step
    let twice = steps
        .get(1)
        .copied()
        .filter(|next| text(first, "dtype").starts_with("fp8") && !of_scales(next));
    let spec = twice.unwrap_or(first);
    let (dtype, grouped) = (text(spec, "dtype"), text(spec, "qscheme") == "per_group");
    let signed = || Value::Table(Box::new(SIGNED_NIBBLES));
    let awq = if cx
        .config
        .text("export.pack_method")
        .is_some_and(|m| m != "reorder")
    {
        Order::Natural
    } else {
        Order::Awq
    };
    // codes in an item, how they lie there, and what they are worth
    let (per_item, packing, order, value) = match (dtype, stored) {
        ("int4", Dtype::I32) => (8, Packing::LowNibbles, awq, signed()),
        ("uint4", Dtype::I32) => (8, Packing::LowNibbles, awq, Value::Unsigned),
        ("uint2", Dtype::U8) => (4, Packing::Stream(2), Order::HighFirst, Value::Unsigned),
        // not packed, and small
        ("int2", Dtype::I32) => (1, Packing::Plane(4, 0, 8), Order::Natural, Value::Signed),
        ("int2" | "int8", Dtype::I8) => (1, Packing::Bytes, Order::Natural, Value::Signed),
        ("uint8", Dtype::U8) => (1, Packing::Bytes, Order::Natural, Value::Unsigned),
        ("int3", Dtype::U8) => return three::weight(cx, tensor, stem, spec).map(Some),
        ("mx", Dtype::U8) => return mx::weight(cx, tensor, text(spec, "mx_element_dtype")),
        ("int2" | "uint2" | "int3", _) | (_, Dtype::I32) => {
            return Err(unsupported(
                info,
                format!("Quark's {dtype:?} in {stored}, which is not undone here"),
            ));
        }
        // what is narrow floats is claimed by their dtypes
        _ => return Ok(None),
    };
    let over = match cx.beside(stem, ".weight_scale_2") {
        Some(second) if twice.is_none() => {
            Some(Over::find(cx, stem, second, steps.get(1).copied())?)
        }
        _ => None,
    };
    let of_step = if twice.is_some() { "_2" } else { "" };
    let part = |name: &str| cx.beside(stem, &[".", name, of_step].concat());
    let scale =
        part("weight_scale").ok_or_else(|| missing(info, &["weight_scale", of_step].concat()))?;
    let [rows, items] = info.shape[..] else {
        return Err(malformed(info, "not a matrix"));
    };
    filled(info, &info.shape)?;
    let width = items
        .checked_mul(per_item)
        .ok_or_else(|| malformed(info, "too long"))?;
    let zero = part("weight_zero_point");
    let weight = Stored {
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
    let mut made = if grouped {
        weight.turned(rows, width)?
    } else {
        weight.upright(rows, width)?
    };
    if twice.is_some() {
        made = made.rescaled(
            cx,
            cx.beside(stem, ".weight_scale")
                .ok_or_else(|| missing(info, "weight_scale"))?,
        )?;
    }
    Ok(Some(cx.weight_by(
        "quark",
        &*info.name,
        &made.shape,
        &made.parts,
        made.decoder.into(),
    )))
}

/// What becomes of a weight's parts.
struct Made {
    shape: [u64; 2],
    parts: Vec<(&'static str, usize)>,
    decoder: Box<dyn Decoder>,
}

impl Made {
    /// What was made of floats is multiplied by their scale: one, or one for each row.
    fn rescaled(mut self, cx: &Context<'_>, tensor: usize) -> Result<Self> {
        let info = cx.info(tensor);
        let dtype = plain(info).filter(|d| matches!(d, Dtype::F32 | Dtype::F16 | Dtype::BF16));
        let count = info.elements();
        let Some(dtype) = dtype.filter(|_| count == 1 || count == self.shape[0]) else {
            let what = format!(
                "{} {:?} is no scale of {:?}",
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

/// A weight whose codes are understood.
struct Stored<'x, 'c> {
    cx: &'x Context<'c>,
    tensor: usize,
    scale: usize,
    zero: Option<usize>,
    /// How scales are quantised, if they are.
    over: Option<Over>,
    /// Codes in an item of the tensor.
    per_item: u64,
    packing: Packing,
    order: Order,
    value: Value,
}

impl Stored<'_, '_> {
    fn parts(&self) -> Vec<(&'static str, usize)> {
        let zero = self.zero.map(|zero| ("zero_point", zero));
        let over = self.over.iter().flat_map(Over::parts);
        [("codes", self.tensor), ("scale", self.scale)]
            .into_iter()
            .chain(zero)
            .chain(over)
            .collect()
    }

    /// One scale per group: `[in, out]`.
    fn turned(self, lines: u64, along: u64) -> Result<Made> {
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
                format!("{along} rows, which are not a multiple of 8"),
            ));
        }
        let zeros = match self.zero.map(|zero| (cx.info(zero), plain(cx.info(zero)))) {
            None => Side::None,
            Some((zero, Some(Dtype::I32)))
                if self.per_item == 8 && zero.shape[..] == [groups, along / 8] =>
            {
                Side::Packed(2)
            }
            Some((
                zero,
                Some(dtype @ (Dtype::F32 | Dtype::F16 | Dtype::BF16 | Dtype::I32 | Dtype::I8)),
            )) if zero.shape[..] == [groups, along] => Side::Stored(2, dtype),
            // whole bytes are numbers here, not exponents
            Some((zero, Some(Dtype::U8)))
                if self.per_item < 8 && zero.shape[..] == [groups, along / self.per_item] =>
            {
                Side::Packed(2)
            }
            Some((zero, _)) => {
                let what = format!(
                    "{} {:?} is not a zero point for each of {groups} groups",
                    zero.encoding, zero.shape
                );
                return Err(malformed(zero, what));
            }
        };
        let decoder = Turned {
            matrices: 1,
            lines,
            along,
            packing: self.packing,
            order: self.order,
            value: self.value.clone(),
            line_group: lines / groups,
            group: 1,
            scales: Factor::Stored(1, dtype, self.over.as_ref().map(|over| over.number)),
            zeros,
        };
        Ok(Made {
            shape: [along, lines],
            parts: self.parts(),
            decoder: Box::new(decoder),
        })
    }

    /// One scale per row, or one for all: `[out, in]`.
    fn upright(self, rows: u64, cols: u64) -> Result<Made> {
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
        let form = if matches!(zeros, Zeros::None) {
            Form::Scale
        } else {
            Form::ZeroScale
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
            form,
            scales,
            zeros,
        };
        let (parts, order) = (self.parts(), self.order);
        let made = view.map(|view| (2, view)).into_iter().collect();
        let decoder: Box<dyn Decoder> = match order {
            Order::Natural => Box::new(Derived::new(inner, parts.len(), made)),
            order => Box::new(Derived::new(Reordered { inner, order }, parts.len(), made)),
        };
        Ok(Made {
            shape: [rows, cols],
            parts,
            decoder,
        })
    }

    /// Zero points of 2 or 4 bits: packed for the rows like codes, or one number.
    fn packed_zeros(
        &self,
        zero: usize,
        rows: u64,
        scales: &Factors,
    ) -> Result<(Zeros, Option<Arc<dyn View>>)> {
        let (cx, info) = (self.cx, self.cx.info(zero));
        let (items, item) = (
            rows.div_ceil(self.per_item),
            if self.per_item == 8 {
                Dtype::I32
            } else {
                Dtype::U8
            },
        );
        let (bits, signed) = (item.bits() / self.per_item, self.value != Value::Unsigned);
        if plain(info) == Some(Dtype::I32) && info.shape.is_empty() && scales.is_one() {
            // of which the lowest bits count
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
                "{} {:?} is not a zero point for each of {rows} rows",
                info.encoding, info.shape
            );
            return Err(malformed(info, what));
        }
        let view = PerRow {
            place: Place::whole(2),
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

    /// Columns of what is not turned.
    fn cols(&self) -> u64 {
        self.cx.info(self.tensor).shape[1] * self.per_item
    }
}
