//! AMD Quark's whole numbers of 4 and 8 bits: `w = (q - zero) * scale`.
//!
//! With one scale per group everything is stored the other way round: `X.weight` `[in, out]` (4 bits: I32
//! `[in, out / 8]`), `X.weight_scale` `[in / group, out]`, and zero points like the weight. Else the weight
//! is `[out, in]` (4 bits: `[out, in / 8]`), with a scale per row or one for all. Eight codes in a word lie
//! in AWQ's order if `pack_method` is `reorder`, else from the lowest bits on.
//!
//! That a code has a sign, and the order of the codes, is said by the configuration alone.
//! Quark's FP8 is that of everyone, its OCP MX and NVFP4 are in `fp4.rs`.
//!
//! Source: Quark 0.13, `torch/utils/pack.py` and `torch/export/nn/modules/realquantizer.py`; the order of
//! the operations is that of `scaled_fake_quantize`'s dequantisation, which was read and not run.

use serde_json::Value as Json;

use crate::Dtype;
use crate::catalog::TensorInfo;
use crate::decode::{Codes, Factor, Factors, Grouped, Order, Reordered, Scales, Side, Turned, Zeros};
use crate::error::Result;
use crate::kernel::{Form, Packing, Value};

use super::Weight;
use super::context::{Context, malformed, plain, stem, unsupported};
use super::grain::{factors, filled, zeros_like};
use super::modelopt::SIGNED_NIBBLES;
use super::plain::missing;

pub(super) fn claim(cx: &Context<'_>, tensor: usize) -> Result<Option<Weight>> {
    let info = cx.info(tensor);
    let Some(stem) = stem(info, ".weight").filter(|_| cx.config.is(&["quark"])) else { return Ok(None) };
    let (Some(stored @ (Dtype::I32 | Dtype::I8 | Dtype::U8)), Some(spec)) = (cx.dtype(tensor), spec(cx, &info.name))
    else {
        return Ok(None);
    };
    let text = |key| spec.get(key).and_then(Json::as_str).unwrap_or_default();
    let (dtype, grouped) = (text("dtype"), text("qscheme") == "per_group");
    let value = match (dtype, stored) {
        ("int4", Dtype::I32) => Value::Table(Box::new(SIGNED_NIBBLES)),
        ("uint4", Dtype::I32) | ("uint8", Dtype::U8) => Value::Unsigned,
        ("int8", Dtype::I8) => Value::Signed,
        ("int2" | "uint2" | "int3", _) | (_, Dtype::I32) => {
            return Err(unsupported(info, format!("Quark's {dtype:?} in {stored}, which is not undone here")));
        }
        // what is narrow floats is claimed by their dtypes
        _ => return Ok(None),
    };
    if cx.beside(stem, ".weight_scale_2").is_some() {
        return Err(unsupported(info, "Quark's two-step quantisation to whole numbers is not undone here"));
    }
    let scale = cx.beside(stem, ".weight_scale").ok_or_else(|| missing(info, "weight_scale"))?;
    let [first, second] = info.shape[..] else { return Err(malformed(info, "not a matrix")) };
    filled(info, &info.shape)?;
    let per_word = if stored == Dtype::I32 { 8 } else { 1 };
    let width = second.checked_mul(per_word).ok_or_else(|| malformed(info, "too long"))?;
    let natural = cx.config.text("export.pack_method").is_some_and(|method| method != "reorder");
    let order = if natural || stored != Dtype::I32 { Order::Natural } else { Order::Awq };
    let packing = if stored == Dtype::I32 { Packing::LowNibbles } else { Packing::Bytes };
    let weight = Stored { cx, tensor, stem, scale, packing, order, value };
    if grouped { weight.turned(first, width).map(Some) } else { weight.upright(first, width).map(Some) }
}

/// A weight whose codes are understood.
struct Stored<'x, 'c, 'n> {
    cx: &'x Context<'c>,
    tensor: usize,
    stem: &'n str,
    scale: usize,
    packing: Packing,
    order: Order,
    value: Value,
}

impl Stored<'_, '_, '_> {
    fn parts(&self, zero: Option<usize>) -> Vec<(&'static str, usize)> {
        let zero = zero.map(|zero| ("zero_point", zero));
        [("codes", self.tensor), ("scale", self.scale)].into_iter().chain(zero).collect()
    }

    /// One scale per group: `[in, out]`.
    fn turned(self, lines: u64, along: u64) -> Result<Weight> {
        let (cx, info, scales) = (self.cx, self.cx.info(self.tensor), self.cx.info(self.scale));
        let groups = scales.shape.first().copied().unwrap_or_default();
        let dtype = plain(scales).filter(|d| matches!(d, Dtype::F32 | Dtype::F16 | Dtype::BF16));
        let fits = groups > 0 && scales.shape[..] == [groups, along] && lines.is_multiple_of(groups);
        let Some(dtype) = dtype.filter(|_| fits) else {
            let what = format!("{} {:?} does not scale {:?}", scales.encoding, scales.shape, [lines, along]);
            return Err(malformed(scales, what));
        };
        if !along.is_multiple_of(8) {
            return Err(unsupported(info, format!("{along} rows, which are not a multiple of 8")));
        }
        let zero = cx.beside(self.stem, ".weight_zero_point");
        let zeros = match zero.map(|zero| (cx.info(zero), plain(cx.info(zero)))) {
            None => Side::None,
            Some((zero, Some(Dtype::I32)))
                if self.packing != Packing::Bytes && zero.shape[..] == [groups, along / 8] =>
            {
                Side::Packed(2)
            }
            Some((zero, Some(dtype @ (Dtype::F32 | Dtype::F16 | Dtype::BF16 | Dtype::I32 | Dtype::I8))))
                if zero.shape[..] == [groups, along] =>
            {
                Side::Stored(2, dtype)
            }
            // whole bytes are numbers here, not exponents
            Some((zero, Some(Dtype::U8))) if self.packing == Packing::Bytes && zero.shape[..] == [groups, along] => {
                Side::Packed(2)
            }
            Some((zero, _)) => {
                let what =
                    format!("{} {:?} is not a zero point for each of {groups} groups", zero.encoding, zero.shape);
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
            scales: Factor::Stored(1, dtype),
            zeros,
        };
        Ok(cx.weight("quark", &*info.name, &[along, lines], &self.parts(zero), decoder))
    }

    /// One scale per row, or one for all: `[out, in]`.
    fn upright(self, rows: u64, cols: u64) -> Result<Weight> {
        let (cx, info) = (self.cx, self.cx.info(self.tensor));
        let scales = factors(cx, 1, self.scale, &[rows, cols], None)?;
        let zero = cx.beside(self.stem, ".weight_zero_point");
        let zeros = match zero {
            None => Zeros::None,
            Some(zero) if self.packing == Packing::Bytes => {
                Zeros::Stored(zeros_like(cx, 2, zero, self.scale, &scales)?)
            }
            Some(zero) => self.packed_zeros(zero, rows, &scales)?,
        };
        let form = if matches!(zeros, Zeros::None) { Form::Scale } else { Form::ZeroScale };
        let row_bytes = self.packing.row_bytes(cols).ok_or_else(|| malformed(info, "too long"))?;
        let codes = Codes::new(self.packing, self.value.clone(), row_bytes);
        let (parts, shape) = (self.parts(zero), [rows, cols]);
        let inner = Grouped { rows, cols, matrix_rows: rows, codes, form, scales: Scales::Stored(scales), zeros };
        Ok(match self.order {
            Order::Natural => cx.weight("quark", &*info.name, &shape, &parts, inner),
            Order::Awq => cx.weight("quark", &*info.name, &shape, &parts, Reordered { inner }),
        })
    }

    /// Zero points of 4 bits, per row: only those that are 0, or lie in the natural order without a sign.
    fn packed_zeros(&self, zero: usize, rows: u64, scales: &Factors) -> Result<Zeros> {
        let (cx, info) = (self.cx, self.cx.info(zero));
        let words = rows.div_ceil(8);
        let single = info.elements() == 1 && scales.rows == u64::MAX;
        if plain(info) != Some(Dtype::I32) || !(single || info.elements() == words && scales.rows == 1) {
            let what = format!("{} {:?} is not a zero point for each of {rows} rows", info.encoding, info.shape);
            return Err(malformed(info, what));
        }
        if self.order == Order::Natural && self.value == Value::Unsigned && !single {
            return Ok(Zeros::PackedRows { part: 2, packing: Packing::Stream(4), bits: 4, words, groups: 1 });
        }
        match cx.peek(zero)?.iter().all(|byte| *byte == 0) {
            true => Ok(Zeros::None),
            false => Err(unsupported(info, "Quark's zero points per row in this order are not undone here")),
        }
    }
}

/// What the configuration says of a layer's weight: of the first step, if there are two.
fn spec<'c>(cx: &Context<'c>, name: &str) -> Option<&'c Json> {
    let layer = name.strip_suffix(".weight").unwrap_or(name);
    let of_layer = cx.config.get("layer_quant_config").and_then(Json::as_object);
    let of_layer = of_layer.into_iter().flatten().find(|(pattern, _)| fits(pattern, layer));
    let weight = match of_layer {
        Some((_, config)) => config.get("weight"),
        None => cx.config.get("global_quant_config.weight"),
    };
    match weight? {
        Json::Array(steps) => steps.first(),
        one => Some(one),
    }
}

/// Whether a name fits a pattern with `*`.
fn fits(pattern: &str, name: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let mut pieces = pieces.peekable();
    if pieces.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return rest.ends_with(piece);
        }
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    true
}

/// The configured dtype of a layer's weight, if Quark wrote it.
pub(super) fn dtype<'c>(cx: &Context<'c>, name: &str) -> Option<&'c str> {
    spec(cx, name).filter(|_| cx.config.is(&["quark"]))?.get("dtype")?.as_str()
}

/// Refuses bytes of scales that Quark writes for something other than E8M0.
pub(super) fn plain_exponents(cx: &Context<'_>, name: &str, info: &TensorInfo) -> Result<()> {
    let Some(spec) = spec(cx, name).filter(|_| cx.config.is(&["quark"])) else { return Ok(()) };
    let text = |key| spec.get(key).and_then(Json::as_str);
    if text("dtype") == Some("mx") {
        return Err(unsupported(info, "Quark's older MX export, whose exponents have no bias, is not undone here"));
    }
    match text("scale_format") {
        None | Some("e8m0") => Ok(()),
        Some(other) => Err(unsupported(info, format!("Quark's scales of the format {other:?} are not undone here"))),
    }
}
