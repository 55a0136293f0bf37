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
//! Two-step quantisation: integers that were made of FP8 (the FP8 is not stored) have `weight_scale_2` as their own scale
//! and `weight_scale` as the FP8's, `w = (q - zero) * scale_2 * scale`. Scales that were quantised themselves are in
//! `scales.rs`.
//!
//! Refused: no zero points although `symmetric` is false, or of a second step; no second scale although a step has
//! `is_scale_quant`; other dtypes; outputs that are no multiple of 8 for a scale per group; nested scales that are not
//! described in the configuration.
//!
//! Source: Quark 0.13, `torch/utils/pack.py`, `torch/export/nn/modules/realquantizer.py` and
//! `torch/kernel/hw_emulation/hw_emulation_interface.py` (`dequantize_int`, `dequantize_fp8`).

mod codes;
mod config;
mod inline_scales;
mod int3;
mod mx;
mod reordered;
mod rescaled;
mod scales;
mod settings;

use serde_json::Value as Json;

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::base::kernel::{CodePacking, CodeValue};
use crate::plan::Decoder;
use crate::plan::decode::CodeOrder;
use crate::read::catalog::quote;

use super::Weight;
use super::context::{Context, missing, missing_by, not_known, plain, stem, unsupported};
use super::granularity::filled;
use super::listed_modules::listed;
use super::modelopt::SIGNED_NIBBLES;
use super::module_lists::Exclusion;
use codes::QuarkCodes;
use rescaled::Rescaled;

pub(super) use config::{
    dtype, entry_of_module, leaves_out, note_group, plain_exponents, scale_format,
    settings_of_module, stated,
};
use config::{of_scales, steps, text};
use scales::QuantisedScales;
pub(super) use settings::SETTINGS;

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
        // another scheme would find the names and shapes of its own
        return match cx.sibling(stem, ".weight_scale") {
            Some(_) => Err(not_known(
                info,
                "Quark's configuration does not quantise it, and it has codes and scales",
            )),
            None => Ok(None),
        };
    };
    config::note_other_dtype(cx, &info.name, first);
    // the signs and the order of codes are in a configuration that is of other layers
    if let Some(Exclusion { key, entry }) = listed(cx, stem)? {
        let (key, place) = (quote(key), cx.config.place());
        let entry = quote(entry.unwrap_or_default());
        let what = format!(
            "{entry} in {key} of {place} says that it is not quantised, and it has codes: by which settings is not known"
        );
        return Err(not_known(info, what));
    }
    // FP8 that was quantised to integers in a second step
    let twice = steps
        .get(1)
        .copied()
        .filter(|next| text(first, "dtype").starts_with("fp8") && !of_scales(next));
    let spec = twice.unwrap_or(first);
    let (dtype, grouped) = (text(spec, "dtype"), text(spec, "qscheme") == "per_group");
    let signed = || CodeValue::Table(Box::new(SIGNED_NIBBLES));
    let awq = match cx.config.get("export.pack_method").map(Json::as_str) {
        // the default of `pack_method` in Quark's `JsonExporterConfig` (0.13, `torch/export/config/config.py`, and again in
        // `torch/export/main_export/quant_config_parser.py`), which transformers reads a configuration without `export` as
        None | Some(Some("reorder")) => CodeOrder::Awq,
        Some(Some("order")) => CodeOrder::Natural,
        Some(other) => {
            let what = format!("Quark's pack_method {:?}", other.unwrap_or_default());
            return Err(not_known(info, what));
        }
    };
    if matches!((dtype, stored), ("int4" | "uint4", Dtype::I32))
        && cx.config.get("export.pack_method").is_none()
    {
        cx.note("Quark's codes of 4 bits: no pack_method is configured, and its default `reorder` is assumed");
    }
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
        // packed narrow floats are claimed by another scheme, by their shapes
        ("fp4" | "fp6_e2m3" | "fp6_e3m2" | "mx", Dtype::U8 | Dtype::I8) => return Ok(None),
        (dtype, stored) => {
            let said = match dtype {
                "" => "names no dtype for it".to_owned(),
                dtype => format!("says {dtype:?} of it"),
            };
            let what = format!("Quark's configuration {said}, and it is {stored}");
            return Err(not_known(info, what));
        }
    };
    // codes are stored transposed by it, and Quark has no default
    if !["per_group", "per_channel", "per_tensor"].contains(&text(spec, "qscheme")) {
        let what = format!("Quark's qscheme {:?}", text(spec, "qscheme"));
        return Err(not_known(info, what));
    }
    let over = match cx.sibling(stem, ".weight_scale_2") {
        Some(second) if twice.is_none() => Some(QuantisedScales::find(
            cx,
            stem,
            second,
            steps.get(1).copied(),
        )?),
        _ => match steps.get(1) {
            Some(next) if of_scales(next) => {
                return Err(missing_by(info, "weight_scale_2", "is_scale_quant", "true"));
            }
            _ => None,
        },
    };
    // the second step's parts have the suffix, the first step's are the FP8's
    let of_step = if twice.is_some() { "_2" } else { "" };
    let part = |name: &str| cx.sibling(stem, &[".", name, of_step].concat());
    let scale =
        part("weight_scale").ok_or_else(|| missing(info, &["weight_scale", of_step].concat()))?;
    let [rows, items] = info.shape[..] else {
        return Err(not_known(info, "expected two dimensions"));
    };
    filled(info, &info.shape)?;
    let width = items
        .checked_mul(per_item)
        .ok_or_else(|| not_known(info, "too long"))?;
    let zero = part("weight_zero_point");
    match zero {
        Some(_) => {}
        // Quark writes them for each step of integers, also where they are symmetric, and loads no file that lacks them
        None if twice.is_some() => return Err(missing(info, "weight_zero_point_2")),
        None => config::needs_no_zeros(info, spec)?,
    }
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
            return Err(not_known(info, what));
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
