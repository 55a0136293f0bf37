//! INT8 codes with scales, and maybe zero points: `w = (q - zero) * scale`.
//!
//! Written by compressed-tensors (`int-quantized`) and ModelOpt. Recognised by I8 `[…, out, in]` with a sibling
//! `X_scale` or `X_weight_scale`. Scales are floats per tensor, row or group; zero points (`…_zero_point`) have their shape.
//! SmoothQuant's `pre_quant_scale` is undone (`smooth.rs`).
//!
//! Refused: scales in U8 or E8M0, which belong to FP4 in I8 of other shapes.
//!
//! Sources: compressed-tensors 0.20, `int-quantized` (`compressors/naive_quantized`, and `_dequantize` of
//! `quantization/lifecycle/forward_helpers.py`); ModelOpt 0.47, `from_quantized_weight` of
//! `export/quant_utils.py` (one scale per row).

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::base::kernel::{CodePacking, CodeValue, Formula};
use crate::plan::decode::{Codes, Grouped, Scales, Zeros};

use super::Weight;
use super::compressed_tensors::group_scales;
use super::context::{Context, unsupported};
use super::granularity::{filled, stack, zeros_like};
use super::smooth;

pub(super) fn claim(cx: &Context<'_>, tensor: usize) -> Result<Option<Weight>> {
    let info = cx.info(tensor);
    if cx.dtype(tensor) != Some(Dtype::I8)
        || info.shape.len() < 2
        || info.name.ends_with("_zero_point")
    {
        return Ok(None);
    }
    let Some((scale, suffix)) = cx.first_sibling(&info.name, &["_scale", "_weight_scale"]) else {
        return Ok(None);
    };
    // DeepSeek-V4's FP4 is stored under I8. If its shapes do not fit FP4, decoding bytes as INT8 would give plausible
    // and wrong numbers
    if matches!(cx.dtype(scale), Some(Dtype::U8 | Dtype::F8_E8M0)) {
        return Err(unsupported(
            info,
            "I8 codes with exponents as scales, and not of the shape of packed FP4",
        ));
    }
    filled(info, &info.shape)?;
    let scales = group_scales(cx, scale, &info.shape)?;
    let mut parts = vec![("codes", tensor), ("scale", scale)];
    let zero = cx.sibling(&info.name, &suffix.replace("scale", "zero_point"));
    let zeros = match zero {
        Some(zero) => {
            parts.push(("zero_point", zero));
            Zeros::Stored(zeros_like(cx, 2, zero, scale, &scales)?)
        }
        None => Zeros::None,
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
