//! gpt-oss' MXFP4 experts.
//!
//! `X_blocks` U8 `[experts, rows, groups, 16]`, 32 E2M1 codes a group, the lower nibble first, and `X_scales`
//! U8 `[experts, rows, groups]`: `ldexp(code, scale - 127)`. The weight is called `X` and is turned around,
//! `[experts, 32 * groups, rows]`, as transformers holds it.
//!
//! Source: transformers 5.23, `_convert_moe_packed_tensors` of `integrations/mxfp4.py`. A scale of 255 is
//! 2^128 there, not OCP's NaN: 0 stays 0, half of it is 2^127, and the rest overflow to infinity.

use crate::Dtype;
use crate::decode::{Factor, Order, Side, Turned};
use crate::error::Result;
use crate::kernel::{E2M1, Packing, Value};

use super::Weight;
use super::context::{Context, malformed, shown, stem};
use super::grain::filled;
use super::plain::missing;

pub(super) fn claim(cx: &Context<'_>, tensor: usize) -> Result<Option<Weight>> {
    let info = cx.info(tensor);
    let (Some(stem), Some(Dtype::U8)) = (stem(info, "_blocks"), cx.dtype(tensor)) else {
        return Ok(None);
    };
    let [experts, rows, groups, 16] = info.shape[..] else {
        return Ok(None);
    };
    let scale = cx
        .beside(stem, "_scales")
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
        .ok_or_else(|| malformed(info, "too long"))?;
    let decoder = Turned {
        matrices: experts,
        lines: rows,
        along,
        packing: Packing::LowNibbles,
        order: Order::Natural,
        // twice the value times half of the scale: 2^128 is not a number in F32
        value: Value::Table(Box::new(E2M1.map(|v| v * 2.0))),
        line_group: 1,
        group: 32,
        scales: Factor::HalfExponents(1),
        zeros: Side::None,
    };
    Ok(Some(cx.weight(
        "mxfp4",
        stem,
        &[experts, along, rows],
        &[("codes", tensor), ("scale", scale)],
        decoder,
    )))
}
