//! INT8 codes with scales, and maybe zero points: `w = (q - zero) * scale`.
//!
//! Written by compressed-tensors (`int-quantized`) and ModelOpt. Recognised by I8 `[…, out, in]` with a sibling
//! `X_scale` or `X_weight_scale`. Scales are floats per tensor, row or group; zero points (`…_zero_point`) have their shape.
//! SmoothQuant's `pre_quant_scale` is undone (`smooth.rs`).
//!
//! Blocks (`weight_scale_inv`, of SGLang) have a scale for each `weight_block_size`; gpt-fast's `X.scales` one for each row.
//!
//! Refused: no zero points where compressed-tensors' groups say `symmetric: false`; scales in U8 or E8M0, which belong to FP4 in I8 of other shapes.
//!
//! Sources: compressed-tensors 0.20, `int-quantized` (`compressors/naive_quantized`, and `_dequantize` of
//! `quantization/lifecycle/forward_helpers.py`); ModelOpt 0.47, `from_quantized_weight` of
//! `export/quant_utils.py` (one scale per row).

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::base::kernel::{CodePacking, CodeValue, Formula};
use crate::plan::decode::{Codes, Grouped, Scales, Zeros};
use crate::quant::settings::KnownValues::Counts;
use crate::quant::settings::SchemeSettings;
use crate::read::catalog::TensorInfo;

use super::Weight;
use super::compressed_tensors::{group_scales, needs_no_zeros, note_zeros};
use super::config_groups::block_sizes;
use super::context::{Context, not_known, stem, unsupported};
use super::granularity::{factors, filled, stack, zeros_like};
use super::smooth;

/// The settings of configurations of INT8 that are known.
pub(super) static SETTINGS: SchemeSettings = SchemeSettings {
    methods: &["blockwise_int8"],
    keys: &[("weight_block_size", Counts)],
};

/// Refuses scales that fit two readings: W4AFP8 stores two codes of 4 bits in I8, and a scale for each 128 of them.
fn pairs(cx: &Context<'_>, info: &TensorInfo, scale: usize) -> Result<()> {
    let (stored, found) = (&info.shape[..], &cx.info(scale).shape[..]);
    let last = stored.len() - 1;
    let per_row = found.len() == stored.len() && found[..last] == stored[..last];
    if per_row
        && found[last] > 1
        && Some(stored[last]) == found[last].checked_mul(64)
        && cx.config.method().is_none()
    {
        let what = "I8 with a scale for each 64 stored bytes, which is INT8 in groups of 64, or W4AFP8 in groups of 128: no \
                    configuration says which";
        return Err(not_known(info, what));
    }
    Ok(())
}

pub(super) fn claim(cx: &Context<'_>, tensor: usize) -> Result<Option<Weight>> {
    let info = cx.info(tensor);
    if cx.dtype(tensor) != Some(Dtype::I8)
        || info.shape.len() < 2
        || info.name.ends_with("_zero_point")
    {
        return Ok(None);
    }
    let of_module = || {
        let module = stem(info, ".weight")?;
        // gpt-fast has a scale for each row
        let (scale, _) = cx.first_sibling(module, &[".scales"])?;
        (cx.info(scale).shape[..] == info.shape[..1]).then_some((scale, "_scale"))
    };
    let found = cx.first_sibling(&info.name, &["_scale", "_weight_scale", "_scale_inv"]);
    let Some((scale, suffix)) = found.or_else(of_module) else {
        return Ok(None);
    };
    pairs(cx, info, scale)?;
    // DeepSeek-V4's FP4 is stored under I8. If its shapes do not fit FP4, decoding bytes as INT8 would give plausible
    // and wrong numbers
    if matches!(cx.dtype(scale), Some(Dtype::U8 | Dtype::F8_E8M0)) {
        return Err(unsupported(
            info,
            "I8 codes with exponents as scales, and not of the shape of packed FP4",
        ));
    }
    filled(info, &info.shape)?;
    // ComfyUI's INT4 and rotated INT8 have the same names and shapes, and are known by markers, which may be lost
    let per_row = cx.info(scale).elements() <= info.shape[0];
    if cx.config.is_empty() && found.is_some() && info.shape.len() == 2 && per_row {
        cx.assume(
            "I8 without configuration and marker: a code in each byte is assumed, and no rotation",
        );
    }
    // blocks have a configured size, or one that follows from the shapes
    let block = cx.config.get("weight_block_size").and_then(block_sizes);
    let scales = match suffix {
        "_scale_inv" => factors(cx, 1, scale, &info.shape, block)?,
        _ => group_scales(cx, scale, &info.shape)?,
    };
    let mut parts = vec![("codes", tensor), ("scale", scale)];
    let zero = cx.sibling(&info.name, &suffix.replace("scale", "zero_point"));
    let zeros = match zero {
        Some(zero) => {
            note_zeros(cx, 8);
            parts.push(("zero_point", zero));
            Zeros::Stored(zeros_like(cx, 2, zero, scale, &scales, true)?)
        }
        None => {
            needs_no_zeros(cx, info, 8)?;
            Zeros::None
        }
    };
    let formula = if zero.is_some() {
        Formula::ZeroScale
    } else {
        Formula::Scale
    };
    let (rows, cols, matrix_rows) = stack(&info.shape);
    let codes = Codes::new(CodePacking::Bytes, CodeValue::Signed, cols);
    let decoder = Grouped {
        rows,
        cols,
        matrix_rows,
        codes,
        formula,
        scales: Scales::Stored(scales),
        zeros,
    };
    smooth::weight(cx, "int8", &info.name, &info.shape, &parts, decoder).map(Some)
}
