//! FP8 with scales beside it: per tensor, channel, group, block of any size, MXFP8.
//!
//! `w = q * scale`, whatever the scale is called: `weight_scale_inv` (DeepSeek) multiplies too.
//! Sources: transformers `integrations/finegrained_fp8.py` and `fbgemm_fp8.py`, compressed-tensors
//! `naive_quantized`, ModelOpt `export/quant_utils.py`.

use crate::Dtype;
use crate::decode::{Codes, Grouped, Scales, Zeros};
use crate::error::Result;
use crate::kernel::{Form, Packing, Value};

use super::Weight;
use super::context::Context;
use super::grain::{factors, filled, flat, stack};
use super::plain::missing;

/// What the scales of `X` are called behind its name.
static SCALES: &[&str] = &["_scale_inv", "_scale", ".scale_weight", "_weight_scale"];

pub(super) fn claim(cx: &Context<'_>, tensor: usize) -> Result<Option<Weight>> {
    let info = cx.info(tensor);
    let Some(dtype @ (Dtype::F8_E4M3 | Dtype::F8_E5M2 | Dtype::F8_E4M3FNUZ | Dtype::F8_E5M2FNUZ)) =
        cx.dtype(tensor)
    else {
        return Ok(None);
    };
    // scales are FP8 themselves, or whatever else: a weight is not found beside itself
    if info.name.ends_with("_scale")
        || info.name.ends_with("_scale_inv")
        || info.name.ends_with(".scale")
    {
        return Ok(None);
    }
    let stem = info.name.strip_suffix(".weight");
    let scale = cx
        .first_beside(&info.name, SCALES)
        .or_else(|| cx.first_beside(stem?, &[".scale", ".scale_weight", ".weight_scales"]));
    let value = Value::of(dtype).expect("one of the four");
    let (scales, parts) = match scale {
        Some((scale, _)) => {
            filled(info, &info.shape)?;
            let scales = factors(cx, 1, scale, &info.shape, block(cx))?;
            (
                Scales::Stored(scales),
                vec![("codes", tensor), ("scale", scale)],
            )
        }
        // configured as scaled, so this one is damaged; otherwise the numbers mean what they say
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
    // without rows that have scales of their own, any rows will do: none is too long for a tile
    let one = match &scales {
        Scales::Stored(factors) => factors.is_one(),
        _ => true,
    };
    let (rows, cols, matrix_rows) = if one {
        flat(info.elements())
    } else {
        stack(&info.shape)
    };
    let codes = Codes::new(Packing::Bytes, value, cols);
    let decoder = Grouped {
        rows,
        cols,
        matrix_rows: matrix_rows.max(1),
        codes,
        form: Form::Scale,
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

/// The configured size of a block: everyone's, or compressed-tensors' first one.
fn block(cx: &Context<'_>) -> Option<(u64, u64)> {
    let of_groups =
        || super::packed::weights(cx).find_map(|weights| weights.get("block_structure"));
    let list = cx
        .config
        .get("weight_block_size")
        .or_else(of_groups)?
        .as_array()?;
    Some((list.first()?.as_u64()?, list.get(1)?.as_u64()?))
}
