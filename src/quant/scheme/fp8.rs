//! FP8 codes with scales per tensor, channel, group or block, and FP8 without scales.
//!
//! Written by DeepSeek, transformers (`fp8`, `fbgemm_fp8`), compressed-tensors, ModelOpt and others. Recognised by dtype
//! (E4M3, E5M2 and their FNUZ variants) of a tensor that is not itself named as a scale.
//!
//! `w = q * scale`, F32, whatever the scale's name is: `weight_scale_inv` (DeepSeek) multiplies too. Scales are F32, F16,
//! BF16, F64, E4M3, E5M2 or E8M0 (also as U8: MXFP8); granularity follows from their shape (`granularity.rs`). Without a
//! scale `w = q`.
//!
//! Refused: a weight without a scale where the configuration says that weights are scaled.
//!
//! Sources: transformers `integrations/finegrained_fp8.py` and `fbgemm_fp8.py`, compressed-tensors
//! `naive_quantized`, ModelOpt `export/quant_utils.py`.

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::base::kernel::{CodePacking, CodeValue, Formula};
use crate::plan::decode::{Codes, Grouped, Scales, Zeros};

use super::Weight;
use super::context::Context;
use super::granularity::{factors, filled, flat, stack};
use super::unquantised::missing;

/// Suffixes of the scales of a tensor.
static SCALES: &[&str] = &["_scale_inv", "_scale", ".scale_weight", "_weight_scale"];

pub(super) fn claim(cx: &Context<'_>, tensor: usize) -> Result<Option<Weight>> {
    let info = cx.info(tensor);
    let Some(dtype @ (Dtype::F8_E4M3 | Dtype::F8_E5M2 | Dtype::F8_E4M3FNUZ | Dtype::F8_E5M2FNUZ)) =
        cx.dtype(tensor)
    else {
        return Ok(None);
    };
    // scales may be FP8 themselves
    if info.name.ends_with("_scale")
        || info.name.ends_with("_scale_inv")
        || info.name.ends_with(".scale")
    {
        return Ok(None);
    }
    let stem = info.name.strip_suffix(".weight");
    let scale = cx
        .first_sibling(&info.name, SCALES)
        .or_else(|| cx.first_sibling(stem?, &[".scale", ".scale_weight", ".weight_scales"]));
    let value = CodeValue::of(dtype).expect("one of the four");
    let (scales, parts) = match scale {
        Some((scale, _)) => {
            filled(info, &info.shape)?;
            let scales = factors(cx, 1, scale, &info.shape, block(cx))?;
            (
                Scales::Stored(scales),
                vec![("codes", tensor), ("scale", scale)],
            )
        }
        // configured as scaled: the file is damaged. Otherwise unscaled FP8 is a valid weight
        None if cx.config.is(&[
            "fp8",
            "fbgemm_fp8",
            "compressed-tensors",
            "modelopt",
            "mxfp8",
        ]) && (stem.is_some() || info.shape.len() > 2)
            && !cx.skipped(&info.name) =>
        {
            return Err(missing(info, "weight_scale"));
        }
        None => (Scales::None, vec![("codes", tensor)]),
    };
    // rows without scales of their own may be cut at any length, so that none is too long for a tile
    let one = match &scales {
        Scales::Stored(factors) => factors.is_one(),
        _ => true,
    };
    let (rows, cols, matrix_rows) = if one {
        flat(info.elements())
    } else {
        stack(&info.shape)
    };
    let codes = Codes::new(CodePacking::Bytes, value, cols);
    let decoder = Grouped {
        rows,
        cols,
        matrix_rows: matrix_rows.max(1),
        codes,
        formula: Formula::Scale,
        scales,
        zeros: Zeros::None,
    };
    Ok(Some(cx.weight(
        "fp8",
        &*info.name,
        &info.shape,
        &parts,
        decoder,
    )))
}

/// The configured block `(rows, cols)`: `weight_block_size`, or the block of compressed-tensors' first group.
fn block(cx: &Context<'_>) -> Option<(u64, u64)> {
    match cx.config.get("weight_block_size") {
        Some(sizes) => block_sizes(sizes),
        None => super::compressed_tensors::configured_block(cx),
    }
}

/// A block `[rows, cols]` of the configuration.
pub(super) fn block_sizes(sizes: &serde_json::Value) -> Option<(u64, u64)> {
    let sizes = sizes.as_array()?;
    Some((sizes.first()?.as_u64()?, sizes.get(1)?.as_u64()?))
}
