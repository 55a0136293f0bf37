//! gpt-oss' MXFP4 experts.
//!
//! Written by OpenAI and transformers. Recognised by U8 `X_blocks` of four dimensions, the last of which is 16.
//!
//! `X_blocks` U8 `[experts, rows, groups, 16]` has 32 E2M1 codes per group, the lower nibble first; `X_scales` is U8
//! `[experts, rows, groups]`. `w = ldexp(code, scale - 127)`. The weight is named `X` and is transposed to
//! `[experts, 32 * groups, rows]`, the shape that transformers holds.
//!
//! A scale of 255 is 2^128, as in transformers, not OCP's NaN: 0 stays 0, 0.5 becomes 2^127, and other codes overflow to
//! infinity.
//!
//! Source: transformers 5.23, `_convert_moe_packed_tensors` of `integrations/mxfp4.py`.

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::base::kernel::{CodePacking, CodeValue, E2M1_VALUES};
use crate::plan::decode::{CodeOrder, Transposed, TransposedScales, TransposedZeros};

use super::Weight;
use super::context::{Context, malformed, shown, stem};
use super::granularity::filled;
use super::unquantised::missing;

pub(super) fn claim(cx: &Context<'_>, tensor: usize) -> Result<Option<Weight>> {
    let info = cx.info(tensor);
    let (Some(stem), Some(Dtype::U8)) = (stem(info, "_blocks"), cx.dtype(tensor)) else {
        return Ok(None);
    };
    let [experts, rows, groups, 16] = info.shape[..] else {
        return Ok(None);
    };
    let scale = cx
        .sibling(stem, "_scales")
        .ok_or_else(|| missing(info, "scales"))?;
    let scales = cx.info(scale);
    filled(info, &info.shape)?;
    if cx.dtype(scale) != Some(Dtype::U8) || scales.shape[..] != [experts, rows, groups] {
        let what = format!(
            "{} {} does not scale blocks of {}",
            scales.encoding,
            shown(&scales.shape),
            shown(&info.shape)
        );
        return Err(malformed(scales, what));
    }
    let along = groups
        .checked_mul(32)
        .ok_or_else(|| malformed(info, "number of columns overflows"))?;
    let decoder = Transposed {
        matrices: experts,
        stored_rows: rows,
        stored_cols: along,
        packing: CodePacking::LowNibbles,
        order: CodeOrder::Natural,
        // twice the code's value times half of the scale, because the scale 2^128 overflows F32
        value: CodeValue::Table(Box::new(E2M1_VALUES.map(|v| v * 2.0))),
        // a scale for each stored row and 32 codes of it; the output is transposed, so that groups run down its
        // columns
        group_rows: 1,
        group_cols: 32,
        scales: TransposedScales::HalfExponents(1),
        zeros: TransposedZeros::None,
    };
    Ok(Some(cx.weight(
        "mxfp4",
        stem,
        &[experts, along, rows],
        &[("codes", tensor), ("scale", scale)],
        decoder,
    )))
}
