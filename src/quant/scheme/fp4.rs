//! FP4 and FP6 codes with scales per group: NVFP4, MXFP4, MXFP6, AMDFP4, MXINT4.
//!
//! Written by compressed-tensors, ModelOpt, Quark, AutoRound and transformers. Recognised by codes in U8, F4 or (DeepSeek-V4)
//! I8 with a sibling scale tensor in E4M3, E8M0 or U8.
//!
//! | scheme | codes | scale of a group | global scale |
//! |---|---|---|---|
//! | NVFP4 | two E2M1 in a byte, the lower nibble first | E4M3 for 16 | one F32, or one for each expert |
//! | MXFP4 | the same | E8M0 for 32 (often as U8) | |
//! | MXFP6 | four E2M3 or E3M2 in three bytes, a bit stream from the lowest bit on | E8M0 for 32 | |
//! | AMDFP4, and AutoRound's `nvfp4_v2` | as MXFP4 | UE5M3 for 16 or 32, as U8 | |
//! | AutoRound's MXINT4 | sign and magnitude in quarters, as MXFP4 | as MXFP4 | |
//!
//! Codes are `[…, out, in]`, packed along `in`; scales `[…, out, in / group]`. `w = code * scale`; with a global scale,
//! `code * (scale / weight_global_scale)` (compressed-tensors) or `code * (scale * weight_scale_2)` (ModelOpt, Quark).
//! Shapes distinguish the first three; the last two need the configuration of Quark or AutoRound.
//!
//! Refused: shapes that fit none of these; FP6 whose configuration does not name E2M3 or E3M2; a missing global scale.
//!
//! Sources: compressed-tensors 0.20, `compressors/{nvfp4,mxfp4,mxfp6}` and `_dequantize` of
//! `quantization/lifecycle/forward_helpers.py`; ModelOpt 0.47, `quantization/qtensor/{nvfp4,mxfp4}_tensor.py`,
//! and `export/unified_export_hf.py` for experts whose rows are packed; Quark 0.13, `utils/pack.py`, and
//! `file2file_quantization.py` for its two-level scales (the order of its two multiplications was not
//! compared); transformers `integrations/finegrained_fp8.py` for DeepSeek-V4's experts, which are I8.

mod ue5m3;

use std::sync::Arc;

use crate::base::error::{Error, Result};
use crate::base::kernel::Dtype;
use crate::base::kernel::{CodePacking, CodeValue, E2M1_VALUES, Formula};
use crate::plan::decode::{
    Codes, Composite, Factors, GlobalScale, Grouped, NibbleRows, PartOffset, Scales, Zeros,
};
use crate::read::catalog::{TensorInfo, quote};

use super::Weight;
use super::context::{Context, missing, not_known, plain, stem, unsupported};
use super::granularity::{filled, stack};
use super::{autoround, quark, smooth};
use ue5m3::Ue5m3Scales;

/// The parts of a weight, under the names of its writer.
struct Fp4Parts<'n> {
    /// Name of the weight.
    name: String,
    scale: usize,
    /// The global scale, and its name.
    global: Option<usize>,
    global_name: &'static str,
    /// Whether to divide by the global scale.
    divide: bool,
    info: &'n TensorInfo,
}

/// The codes and groups of a weight.
#[derive(Clone, Copy, PartialEq)]
enum Fp4Layout {
    Nv4,
    Mx4,
    Mx6,
}

/// Methods whose packed floats are called `weight_packed`.
static PACKED_NAMES: &[&str] = &["compressed-tensors", "auto-round"];

pub(super) fn claim(cx: &Context<'_>, tensor: usize) -> Result<Option<Weight>> {
    let Some(found) = find(cx, tensor) else {
        return Ok(None);
    };
    let (info, scale) = (found.info, cx.info(found.scale));
    filled(info, &info.shape)?;
    filled(scale, &scale.shape)?;
    // compressed-tensors and other writers have names of their own
    let is_packed = cx.config.is_of(PACKED_NAMES);
    let is_known = cx.config.is_of(&[""]) || is_packed == found.divide;
    if !is_known && !cx.skipped(&found.name) {
        let method = cx.config.method().unwrap_or_default();
        let what = format!(
            "packed floats under names that {} does not write",
            quote(method)
        );
        return Err(not_known(info, what));
    }
    let mut parts = vec![("codes", tensor), ("scale", found.scale)];
    if info.shape.len() == 3
        && plain(scale) == Some(Dtype::F8_E4M3)
        // ModelOpt packs stacked experts along their second dimension; the shape of the scales shows it
        && !packed_along_rows(info, scale)
    {
        return transposed(cx, &found, parts).map(Some);
    }
    let four = autoround::configured_codes(cx, info, &found.name)?;
    // UE5M3 and E8M0 are both bytes of U8 in the same shape: nothing but the configuration distinguishes them
    let e5m3 = four == Some(autoround::FourBitCodes::Ue5m3Scales)
        || quark::scale_format(cx, &found.name) == Some("e5m3");
    match plain(scale) {
        Some(Dtype::U8) if e5m3 => return amdfp4(cx, &found, &parts).map(Some),
        Some(other) if e5m3 => {
            let what = format!("dtype {other} instead of UE5M3 in U8, as configured");
            return Err(not_known(scale, what));
        }
        Some(Dtype::U8) if cx.config.is_empty() => cx.assume(
            "4-bit codes with scales in U8 and no configuration: MXFP4 is assumed, with exponents of 2 as scales",
        ),
        _ => {}
    }
    let (kind, cols) = kind(info, scale)?;
    let whole = kind == Fp4Layout::Mx4 && four == Some(autoround::FourBitCodes::Mxint4);
    let (packing, value) = match kind {
        Fp4Layout::Mx6 => (CodePacking::Stream(6), quark_or_e2m3(cx, &found)?),
        Fp4Layout::Nv4 => (CodePacking::LowNibbles, nvfp4_codes(cx, &found)),
        Fp4Layout::Mx4 => (
            CodePacking::LowNibbles,
            CodeValue::Table(Box::new(if whole {
                autoround::MXINT4
            } else {
                E2M1_VALUES
            })),
        ),
    };
    let mut shape = info.shape.clone();
    *shape.last_mut().expect("at least two sizes") = cols;
    let (rows, _, matrix_rows) = stack(&shape);
    let row_bytes = packing
        .row_bytes(cols)
        .ok_or_else(|| not_known(info, "too long"))?;
    let (dtype, group) = match kind {
        Fp4Layout::Nv4 => (Dtype::F8_E4M3, 16),
        Fp4Layout::Mx4 | Fp4Layout::Mx6 => (Dtype::F8_E8M0, 32),
    };
    let factors = Factors::per_group(1, dtype, group);
    // ComfyUI's files have the same names, and shapes if they need no padding; only its markers tell them apart
    if kind == Fp4Layout::Nv4
        && cx.config.is_empty()
        && shape.len() == 2
        && rows.is_multiple_of(128)
        && cols.is_multiple_of(64)
    {
        let text = "whether NVFP4 without configuration and marker is ModelOpt's or, in another order, ComfyUI's";
        cx.remark(text.to_owned())?;
    }
    let scales = match kind {
        Fp4Layout::Nv4 => global(cx, &found, rows / matrix_rows, factors, &mut parts)?,
        Fp4Layout::Mx4 | Fp4Layout::Mx6 => {
            // a configured format that is neither would be read as exponents of 2
            quark::plain_exponents(cx, &found.name, info, scale)?;
            Scales::Stored(factors)
        }
    };
    let codes = Codes::new(packing, value, row_bytes);
    let decoder = Grouped {
        rows,
        cols,
        matrix_rows,
        codes,
        formula: Formula::Scale,
        scales,
        zeros: Zeros::None,
    };
    let scheme = match kind {
        Fp4Layout::Nv4 => "nvfp4",
        Fp4Layout::Mx4 if whole => "mxint4",
        Fp4Layout::Mx4 => "mxfp4",
        Fp4Layout::Mx6 => "mxfp6",
    };
    smooth::weight(cx, scheme, &found.name, &shape, &parts, decoder).map(Some)
}

/// The parts of the weight whose codes this tensor is, if it is of this scheme.
fn find<'c>(cx: &Context<'c>, tensor: usize) -> Option<Fp4Parts<'c>> {
    let info = cx.info(tensor);
    let dtype = cx.dtype(tensor)?;
    // scales decide which scheme a U8 tensor belongs to: other schemes have U8 codes too
    let exponent = |t: &usize| matches!(cx.dtype(*t), Some(Dtype::F8_E8M0 | Dtype::U8));
    let known = |t: &usize| exponent(t) || cx.dtype(*t) == Some(Dtype::F8_E4M3);
    if let (Some(stem), Dtype::U8 | Dtype::F4) = (stem(info, ".weight_packed"), dtype) {
        let scale = cx.sibling(stem, ".weight_scale").filter(known)?;
        let global = cx.sibling(stem, ".weight_global_scale");
        let name = [stem, ".weight"].concat();
        return Some(Fp4Parts {
            name,
            scale,
            global,
            global_name: "weight_global_scale",
            divide: true,
            info,
        });
    }
    // floats have no codes; most tensors are floats, and each name of a sibling costs
    if !matches!(dtype, Dtype::U8 | Dtype::F4 | Dtype::I8) {
        return None;
    }
    // U8 and I8 tensors of other names may have scales as well
    // stacked experts have three dimensions and are named after the parameter
    if !info.name.ends_with("weight") && info.shape.len() != 3 {
        return None;
    }
    let found = |scale, global| {
        let name = info.name.to_string();
        Fp4Parts {
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
            let scale = cx.sibling(&info.name, suffix)?;
            Some((scale, cx.sibling(&info.name, &[*suffix, "_2"].concat())))
        });
    // ModelOpt's state before its export
    if let (Some(stem), Dtype::U8) = (stem(info, ".weight"), dtype)
        && let Some(scale) = cx.sibling(stem, ".weight_quantizer._scale").filter(known)
    {
        let global = cx.sibling(stem, ".weight_quantizer._double_scale");
        return Some(Fp4Parts {
            global_name: "weight_quantizer._double_scale",
            ..found(scale, global)
        });
    }
    match dtype {
        Dtype::U8 | Dtype::F4 => {
            let (scale, global) = of_codes.filter(|(scale, _)| known(scale))?;
            Some(found(scale, global))
        }
        Dtype::I8 => {
            let of_module = || Some((cx.sibling(stem(info, ".weight")?, ".scale")?, None));
            let (scale, global) = of_codes
                .or_else(of_module)
                // I8 with float scales is INT8 and belongs to `int8.rs`
                .filter(|(scale, _)| exponent(scale))?;
            Some(found(scale, global))
        }
        _ => None,
    }
}

/// Whether the scales' shape fits codes packed along the last dimension.
fn packed_along_rows(info: &TensorInfo, scale: &TensorInfo) -> bool {
    scale.shape.len() == info.shape.len() && scale.shape[..2] == info.shape[..2]
}

/// The codes by the shapes of codes and scales, and the number of columns.
fn kind(info: &TensorInfo, scale: &TensorInfo) -> Result<(Fp4Layout, u64)> {
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
    // F4 counts codes, U8 counts bytes of two
    let per_byte = if plain(info) == Some(Dtype::F4) { 1 } else { 2 };
    // 128 bits, because products of sizes from a file may exceed 64
    let (codes, groups) = (u128::from(info.shape[last]), u128::from(scale.shape[last]));
    let (cols4, cols6) = (codes * per_byte, codes * 4 / 3);
    // E4M3 scales are NVFP4's alone; exponents of 2 belong to MX, whose width follows from the bytes of a group: 16
    // or 24
    let found = match plain(scale) {
        Some(Dtype::F8_E4M3) if cols4 == groups * 16 => Some((Fp4Layout::Nv4, cols4)),
        Some(Dtype::F8_E8M0 | Dtype::U8) if cols4 == groups * 32 => Some((Fp4Layout::Mx4, cols4)),
        Some(Dtype::F8_E8M0 | Dtype::U8)
            if codes * 4 == groups * 96 && plain(info) == Some(Dtype::U8) =>
        {
            Some((Fp4Layout::Mx6, cols6))
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
    not_known(scale, what)
}

/// The global scale: one, or one for each matrix of a stack.
fn global(
    cx: &Context<'_>,
    found: &Fp4Parts<'_>,
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
    // stacked experts have a global scale each
    // one of one dimension is the first of several, of which the others are lost: one for all is a number in ModelOpt's files
    let is_one = count == 1 && (found.divide || matrices == 1 || info.shape.is_empty());
    let (Some(dtype), true) = (dtype, is_one || count == matrices) else {
        let what = format!(
            "{} {:?} is not one scale, nor one for each of {matrices} matrices",
            info.encoding, info.shape
        );
        return Err(not_known(info, what));
    };
    parts.push(("global_scale", tensor));
    let global = GlobalScale {
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

/// FP4 with UE5M3 scales, for groups of 16 or 32.
fn amdfp4(
    cx: &Context<'_>,
    found: &Fp4Parts<'_>,
    parts: &[(&'static str, usize)],
) -> Result<Weight> {
    let (info, scale) = (found.info, cx.info(found.scale));
    let sides = info.shape.split_last().zip(scale.shape.split_last());
    let group = sides.filter(|((_, outer), (_, same))| outer == same && !outer.is_empty());
    let group = group.and_then(|((bytes, _), (groups, _))| {
        let cols = bytes.checked_mul(2)?;
        // both sizes occur, and the shapes decide between them
        let group = [16, 32]
            .into_iter()
            .find(|group| groups.checked_mul(*group) == Some(cols))?;
        Some((cols, *groups, group))
    });
    let Some((cols, groups, group)) = group.filter(|_| plain(info) == Some(Dtype::U8)) else {
        return Err(mismatch(info, scale));
    };
    quark::note_group(cx, &found.name, group);
    let mut shape = info.shape.clone();
    *shape.last_mut().expect("two sizes at least") = cols;
    let (rows, _, matrix_rows) = stack(&shape);
    let inner = Grouped {
        rows,
        cols,
        matrix_rows,
        codes: Codes::new(
            CodePacking::LowNibbles,
            CodeValue::Table(Box::new(E2M1_VALUES)),
            cols / 2,
        ),
        formula: Formula::Scale,
        scales: Scales::Stored(Factors::per_group(1, Dtype::F32, group)),
        zeros: Zeros::None,
    };
    let scales = Ue5m3Scales {
        place: PartOffset::whole(1),
        rows,
        groups,
    };
    let decoder = Composite::new(inner, parts.len(), vec![(1, Arc::new(scales))]);
    smooth::weight(cx, "amdfp4", &found.name, &shape, parts, decoder)
}

/// ModelOpt's NVFP4 experts `[experts, in, out]`: packed and scaled along `in`, the second dimension.
fn transposed(
    cx: &Context<'_>,
    found: &Fp4Parts<'_>,
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
    // groups of 16 run along the packed dimension, which is the rows of each matrix here
    let factors = Factors::per_block(1, Dtype::F8_E4M3, 16, 1);
    let scales = global(cx, found, experts, factors, &mut parts)?;
    let codes = Codes::new(CodePacking::LowNibbles, nvfp4_codes(cx, found), cols);
    let rows = experts * matrix_rows;
    let inner = Grouped {
        rows,
        cols,
        matrix_rows,
        codes,
        formula: Formula::Scale,
        scales,
        zeros: Zeros::None,
    };
    let shape = [experts, matrix_rows, cols];
    Ok(cx.weight("nvfp4", &*found.name, &shape, &parts, NibbleRows { inner }))
}

/// The values of NVFP4's codes: code 8 is 0 in ModelOpt's table, -0 elsewhere.
fn nvfp4_codes(cx: &Context<'_>, found: &Fp4Parts<'_>) -> CodeValue {
    let mut table = E2M1_VALUES;
    if !found.divide && !cx.config.is(&["quark"]) {
        table[8] = 0.0;
    }
    CodeValue::Table(Box::new(table))
}

/// The values of FP6 codes: E2M3 in compressed-tensors; Quark's configuration names the dtype.
fn quark_or_e2m3(cx: &Context<'_>, found: &Fp4Parts<'_>) -> Result<CodeValue> {
    // compressed-tensors writes E2M3 only
    if found.divide {
        return Ok(CodeValue::E2m3);
    }
    match quark::dtype(cx, &found.name) {
        Some("fp6_e2m3") => Ok(CodeValue::E2m3),
        Some("fp6_e3m2") => Ok(CodeValue::E3m2),
        _ => Err(unsupported(
            found.info,
            "FP6 codes: the configuration does not say whether they are E2M3 or E3M2",
        )),
    }
}
