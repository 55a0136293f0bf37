//! FP4 and FP6 codes with scales beside them: NVFP4, MXFP4, MXFP6.
//!
//! | scheme | codes | scale of a group | scale of all |
//! |---|---|---|---|
//! | NVFP4 | two E2M1 in a byte, the lower nibble first | E4M3 for 16 | F32, or one for each expert |
//! | MXFP4 | the same | E8M0 for 32 (often as U8) | |
//! | MXFP6 | four E2M3 or E3M2 in three bytes, from the lowest bit on | E8M0 for 32 | |
//! | AMDFP4, and AutoRound's `nvfp4_v2` | as MXFP4 | UE5M3 for 16 or 32, as U8 | |
//! | AutoRound's MXINT4 | a sign and quarters, as MXFP4 | as MXFP4 | |
//!
//! The shapes of codes and scales tell which; the last two, the configuration of Quark or AutoRound. What differs besides are
//! names, and what is done with the scale of all: compressed-tensors divides by it,
//! `code * (scale / weight_global_scale)`; ModelOpt and Quark multiply, `code * (scale * weight_scale_2)`.
//!
//! Sources: compressed-tensors 0.20, `compressors/{nvfp4,mxfp4,mxfp6}` and `_dequantize` of
//! `quantization/lifecycle/forward_helpers.py`; ModelOpt 0.47, `quantization/qtensor/{nvfp4,mxfp4}_tensor.py`,
//! and `export/unified_export_hf.py` for experts whose rows are packed; Quark 0.13, `utils/pack.py`, and
//! `file2file_quantization.py` for its two-level scales (the order of its two multiplications was not
//! compared); transformers `integrations/finegrained_fp8.py` for DeepSeek-V4's experts, which are I8.

use std::sync::Arc;

use crate::Dtype;
use crate::catalog::TensorInfo;
use crate::decode::{
    Codes, Derived, Factors, Global, Grouped, Paired, Place, Scales, Ue5m3, Zeros,
};
use crate::error::{Error, Result};
use crate::kernel::{E2M1, Form, Packing, Value};

use super::Weight;
use super::context::{Context, malformed, plain, stem, unsupported};
use super::grain::{filled, stack};
use super::plain::missing;
use super::{autoround, quark, smooth};

/// Who wrote a weight: what its parts are called.
struct Found<'n> {
    /// Name of the weight.
    name: String,
    scale: usize,
    /// The scale of all, and what it is called.
    global: Option<usize>,
    global_name: &'static str,
    /// Divide by the scale of all.
    divide: bool,
    info: &'n TensorInfo,
}

/// A kind of code.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Nv4,
    Mx4,
    Mx6,
}

pub(super) fn claim(cx: &Context<'_>, tensor: usize) -> Result<Option<Weight>> {
    let Some(found) = find(cx, tensor) else {
        return Ok(None);
    };
    let (info, scale) = (found.info, cx.info(found.scale));
    filled(info, &info.shape)?;
    filled(scale, &scale.shape)?;
    let mut parts = vec![("codes", tensor), ("scale", found.scale)];
    if info.shape.len() == 3
        && plain(scale) == Some(Dtype::F8_E4M3)
        && !packed_along_rows(info, scale)
    {
        return transposed(cx, &found, parts).map(Some);
    }
    let four = autoround::four(cx, &found.name);
    let e5m3 =
        four == Some(autoround::Four::E5m3) || quark::scale_format(cx, &found.name) == Some("e5m3");
    if plain(scale) == Some(Dtype::U8) && e5m3 {
        return amdfp4(cx, &found, &parts).map(Some);
    }
    let (kind, cols) = kind(info, scale)?;
    let whole = kind == Kind::Mx4 && four == Some(autoround::Four::Int);
    let (packing, value) = match kind {
        Kind::Mx6 => (Packing::Stream(6), quark_or_e2m3(cx, &found)?),
        Kind::Nv4 => (Packing::LowNibbles, nvfp4_codes(cx, &found)),
        Kind::Mx4 => (
            Packing::LowNibbles,
            Value::Table(Box::new(if whole { autoround::MXINT4 } else { E2M1 })),
        ),
    };
    let mut shape = info.shape.clone();
    *shape.last_mut().expect("at least two sizes") = cols;
    let (rows, _, matrix_rows) = stack(&shape);
    let row_bytes = packing
        .row_bytes(cols)
        .ok_or_else(|| malformed(info, "too long"))?;
    let (dtype, group) = match kind {
        Kind::Nv4 => (Dtype::F8_E4M3, 16),
        Kind::Mx4 | Kind::Mx6 => (Dtype::F8_E8M0, 32),
    };
    let factors = Factors::per_group(1, dtype, group);
    let scales = match kind {
        Kind::Nv4 => global(cx, &found, rows / matrix_rows, factors, &mut parts)?,
        Kind::Mx4 | Kind::Mx6 => {
            quark::plain_exponents(cx, &found.name, info)?;
            Scales::Stored(factors)
        }
    };
    let codes = Codes::new(packing, value, row_bytes);
    let decoder = Grouped {
        rows,
        cols,
        matrix_rows,
        codes,
        form: Form::Scale,
        scales,
        zeros: Zeros::None,
    };
    let scheme = match kind {
        Kind::Nv4 => "nvfp4",
        Kind::Mx4 if whole => "mxint4",
        Kind::Mx4 => "mxfp4",
        Kind::Mx6 => "mxfp6",
    };
    smooth::weight(cx, scheme, &found.name, &shape, &parts, decoder).map(Some)
}

/// The scale beside these codes, if they are of this scheme.
fn find<'c>(cx: &Context<'c>, tensor: usize) -> Option<Found<'c>> {
    let info = cx.info(tensor);
    let dtype = cx.dtype(tensor)?;
    let exponent = |t: &usize| matches!(cx.dtype(*t), Some(Dtype::F8_E8M0 | Dtype::U8));
    let known = |t: &usize| exponent(t) || cx.dtype(*t) == Some(Dtype::F8_E4M3);
    if let (Some(stem), Dtype::U8 | Dtype::F4) = (stem(info, ".weight_packed"), dtype) {
        let scale = cx.beside(stem, ".weight_scale").filter(known)?;
        let global = cx.beside(stem, ".weight_global_scale");
        let name = [stem, ".weight"].concat();
        return Some(Found {
            name,
            scale,
            global,
            global_name: "weight_global_scale",
            divide: true,
            info,
        });
    }
    // other bytes may have scales as well
    if !info.name.ends_with("weight") && info.shape.len() != 3 {
        return None;
    }
    let found = |scale, global| {
        let name = info.name.to_string();
        Found {
            name,
            scale,
            global,
            global_name: "weight_scale_2",
            divide: false,
            info,
        }
    };
    let of_codes = ["_scale", "_weight_scale", "_scale_inv"]
        .iter()
        .find_map(|suffix| {
            let scale = cx.beside(&info.name, suffix)?;
            Some((scale, cx.beside(&info.name, &[*suffix, "_2"].concat())))
        });
    match dtype {
        Dtype::U8 | Dtype::F4 => {
            let (scale, global) = of_codes.filter(|(scale, _)| known(scale))?;
            Some(found(scale, global))
        }
        Dtype::I8 => {
            let of_module = || Some((cx.beside(stem(info, ".weight")?, ".scale")?, None));
            let (scale, global) = of_codes
                .or_else(of_module)
                .filter(|(scale, _)| exponent(scale))?;
            Some(found(scale, global))
        }
        _ => None,
    }
}

/// Whether the scales have the shape of codes that are packed along the last dimension.
fn packed_along_rows(info: &TensorInfo, scale: &TensorInfo) -> bool {
    scale.shape.len() == info.shape.len() && scale.shape[..2] == info.shape[..2]
}

/// Which codes these are, and how many columns they make.
fn kind(info: &TensorInfo, scale: &TensorInfo) -> Result<(Kind, u64)> {
    let mismatch = || mismatch(info, scale);
    let last = info
        .shape
        .len()
        .checked_sub(1)
        .filter(|&last| last >= 1)
        .ok_or_else(mismatch)?;
    if scale.shape.len() != info.shape.len() || scale.shape[..last] != info.shape[..last] {
        return Err(mismatch());
    }
    let per_byte = if plain(info) == Some(Dtype::F4) { 1 } else { 2 };
    let (codes, groups) = (u128::from(info.shape[last]), u128::from(scale.shape[last]));
    let (cols4, cols6) = (codes * per_byte, codes * 4 / 3);
    let found = match plain(scale) {
        Some(Dtype::F8_E4M3) if cols4 == groups * 16 => Some((Kind::Nv4, cols4)),
        Some(Dtype::F8_E8M0 | Dtype::U8) if cols4 == groups * 32 => Some((Kind::Mx4, cols4)),
        Some(Dtype::F8_E8M0 | Dtype::U8)
            if codes * 4 == groups * 96 && plain(info) == Some(Dtype::U8) =>
        {
            Some((Kind::Mx6, cols6))
        }
        _ => None,
    };
    let (kind, cols) = found.ok_or_else(mismatch)?;
    Ok((kind, u64::try_from(cols).map_err(|_| mismatch())?))
}

fn mismatch(info: &TensorInfo, scale: &TensorInfo) -> Error {
    let what = format!(
        "{} {:?} does not scale {} {:?}",
        scale.encoding, scale.shape, info.encoding, info.shape
    );
    malformed(scale, what)
}

/// The scale of all, or one for each matrix of a stack.
fn global(
    cx: &Context<'_>,
    found: &Found<'_>,
    matrices: u64,
    factors: Factors,
    parts: &mut Vec<(&'static str, usize)>,
) -> Result<Scales> {
    let tensor = found
        .global
        .ok_or_else(|| missing(found.info, found.global_name))?;
    let info = cx.info(tensor);
    let dtype = plain(info).filter(|d| matches!(d, Dtype::F32 | Dtype::F16 | Dtype::BF16));
    let count = info.elements();
    let (Some(dtype), true) = (dtype, count == 1 || count == matrices) else {
        let what = format!(
            "{} {:?} is not one scale, nor one for each of {matrices} matrices",
            info.encoding, info.shape
        );
        return Err(malformed(info, what));
    };
    parts.push(("global_scale", tensor));
    let global = Global {
        part: parts.len() - 1,
        dtype,
        count,
    };
    Ok(if found.divide {
        Scales::Over(factors, global)
    } else {
        Scales::Times(factors, global)
    })
}

/// Quark's FP4 with scales that have a mantissa, for groups of 16 or 32.
fn amdfp4(cx: &Context<'_>, found: &Found<'_>, parts: &[(&'static str, usize)]) -> Result<Weight> {
    let (info, scale) = (found.info, cx.info(found.scale));
    let sides = info.shape.split_last().zip(scale.shape.split_last());
    let group = sides.filter(|((_, outer), (_, same))| outer == same && !outer.is_empty());
    let group = group.and_then(|((bytes, _), (groups, _))| {
        let cols = bytes.checked_mul(2)?;
        let group = [16, 32]
            .into_iter()
            .find(|group| groups.checked_mul(*group) == Some(cols))?;
        Some((cols, *groups, group))
    });
    let Some((cols, groups, group)) = group.filter(|_| plain(info) == Some(Dtype::U8)) else {
        return Err(mismatch(info, scale));
    };
    let mut shape = info.shape.clone();
    *shape.last_mut().expect("two sizes at least") = cols;
    let (rows, _, matrix_rows) = stack(&shape);
    let inner = Grouped {
        rows,
        cols,
        matrix_rows,
        codes: Codes::new(Packing::LowNibbles, Value::Table(Box::new(E2M1)), cols / 2),
        form: Form::Scale,
        scales: Scales::Stored(Factors::per_group(1, Dtype::F32, group)),
        zeros: Zeros::None,
    };
    let scales = Ue5m3 {
        place: Place::whole(1),
        rows,
        groups,
    };
    let decoder = Derived::new(inner, parts.len(), vec![(1, Arc::new(scales))]);
    smooth::weight(cx, "amdfp4", &found.name, &shape, parts, decoder)
}

/// ModelOpt's NVFP4 experts of `[experts, in, out]`: packed and scaled along `in`, their second dimension.
fn transposed(
    cx: &Context<'_>,
    found: &Found<'_>,
    mut parts: Vec<(&'static str, usize)>,
) -> Result<Weight> {
    let (info, scale) = (found.info, cx.info(found.scale));
    let (experts, half, cols) = (info.shape[0], info.shape[1], info.shape[2]);
    let per_group = half / 8;
    if !half.is_multiple_of(8)
        || scale.shape[..] != [experts, per_group, cols]
        || plain(info) != Some(Dtype::U8)
    {
        return Err(mismatch(info, scale));
    }
    let matrix_rows = half * 2;
    let factors = Factors::per_block(1, Dtype::F8_E4M3, 16, 1);
    let scales = global(cx, found, experts, factors, &mut parts)?;
    let codes = Codes::new(Packing::LowNibbles, nvfp4_codes(cx, found), cols);
    let rows = experts * matrix_rows;
    let inner = Grouped {
        rows,
        cols,
        matrix_rows,
        codes,
        form: Form::Scale,
        scales,
        zeros: Zeros::None,
    };
    let shape = [experts, matrix_rows, cols];
    Ok(cx.weight("nvfp4", &*found.name, &shape, &parts, Paired { inner }))
}

/// What NVFP4's codes are worth: in ModelOpt's table code 8 is 0, elsewhere -0.
fn nvfp4_codes(cx: &Context<'_>, found: &Found<'_>) -> Value {
    let mut table = E2M1;
    if !found.divide && !cx.config.is(&["quark"]) {
        table[8] = 0.0;
    }
    Value::Table(Box::new(table))
}

/// What FP6 codes are worth: E2M3 in compressed-tensors; Quark's configuration says.
fn quark_or_e2m3(cx: &Context<'_>, found: &Found<'_>) -> Result<Value> {
    if found.divide {
        return Ok(Value::E2m3);
    }
    match quark::dtype(cx, &found.name) {
        Some("fp6_e2m3") => Ok(Value::E2m3),
        Some("fp6_e3m2") => Ok(Value::E3m2),
        _ => Err(unsupported(
            found.info,
            "FP6, and the configuration does not say whether E2M3 or E3M2",
        )),
    }
}
