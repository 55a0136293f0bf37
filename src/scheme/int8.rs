//! Whole numbers of 8 bits with scales beside them, and maybe zero points: `w = (q - zero) * scale`.
//!
//! Sources: compressed-tensors 0.20, `int-quantized` (`compressors/naive_quantized`, and `_dequantize` of
//! `quantization/lifecycle/forward_helpers.py`); ModelOpt 0.47, `from_quantized_weight` of
//! `export/quant_utils.py` (one scale per row; SmoothQuant's `pre_quant_scale` is undone).

use crate::Dtype;
use crate::decode::{Codes, Grouped, Scales, Zeros};
use crate::error::Result;
use crate::kernel::{Form, Packing, Value};

use super::Weight;
use super::context::{Context, unsupported};
use super::grain::{filled, stack, zeros_like};
use super::packed::group_scales;
use super::smooth;

pub(super) fn claim(cx: &Context<'_>, tensor: usize) -> Result<Option<Weight>> {
    let info = cx.info(tensor);
    if cx.dtype(tensor) != Some(Dtype::I8)
        || info.shape.len() < 2
        || info.name.ends_with("_zero_point")
    {
        return Ok(None);
    }
    let Some((scale, suffix)) = cx.first_beside(&info.name, &["_scale", "_weight_scale"]) else {
        return Ok(None);
    };
    if matches!(cx.dtype(scale), Some(Dtype::U8 | Dtype::F8_E8M0)) {
        return Err(unsupported(
            info,
            "I8 with scales that are exponents, and not of FP4's shape",
        ));
    }
    filled(info, &info.shape)?;
    let scales = group_scales(cx, scale, &info.shape)?;
    let mut parts = vec![("codes", tensor), ("scale", scale)];
    let zero = cx.beside(&info.name, &suffix.replace("scale", "zero_point"));
    let zeros = match zero {
        Some(zero) => {
            parts.push(("zero_point", zero));
            Zeros::Stored(zeros_like(cx, 2, zero, scale, &scales)?)
        }
        None => Zeros::None,
    };
    let form = if zero.is_some() {
        Form::ZeroScale
    } else {
        Form::Scale
    };
    let (rows, cols, matrix_rows) = stack(&info.shape);
    let codes = Codes::new(Packing::Bytes, Value::Signed, cols);
    let decoder = Grouped {
        rows,
        cols,
        matrix_rows,
        codes,
        form,
        scales: Scales::Stored(scales),
        zeros,
    };
    smooth::weight(cx, "int8", &info.name, &info.shape, &parts, decoder).map(Some)
}
