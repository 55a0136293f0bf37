//! gpt-oss' MXFP4 experts.
//!
//! Written by OpenAI and transformers. Recognised by U8 `X_blocks` of four dimensions, the last of which is 16.
//!
//! `X_blocks` U8 `[experts, rows, groups, 16]` has 32 E2M1 codes per group, the lower nibble first; `X_scales` is U8
//! `[experts, rows, groups]`. `w = ldexp(code, scale - 127)`. The weight is named `X` and is transposed to
//! `[experts, 32 * groups, rows]`, the shape that transformers holds.
//!
//! OpenAI's own files (`original/`) have `X.blocks` and `X.scales` of the same shapes, and are not transposed.
//!
//! A scale of 255 is 2^128, as in transformers, not OCP's NaN: 0 stays 0, 0.5 becomes 2^127, and other codes overflow to
//! infinity.
//!
//! Source: transformers 5.23, `_convert_moe_packed_tensors` of `integrations/mxfp4.py`.

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::base::kernel::{CodePacking, CodeValue, E2M1_VALUES, Formula};
use crate::plan::decode::{
    CodeOrder, Codes, Factors, Grouped, Scales, Transposed, TransposedScales, TransposedZeros,
    Zeros,
};
use crate::quant::settings::SchemeSettings;

use crate::read::catalog::TensorInfo;

use super::Weight;
use super::context::{Context, missing, not_known, shown, stem};
use super::granularity::filled;

/// The settings of configurations of MXFP4 that are known.
pub(super) static SETTINGS: SchemeSettings = SchemeSettings {
    methods: &["mxfp4"],
    keys: &[],
};

/// Stacked matrices of codes in blocks of 32, and their scales.
struct StackedBlocks<'c> {
    info: &'c TensorInfo,
    stem: &'c str,
    experts: u64,
    rows: u64,
    /// 32 for each group.
    cols: u64,
    scale: usize,
}

impl<'c> StackedBlocks<'c> {
    /// U8 `[experts, rows, groups, 16]` of the name `X` + `codes`, with scales `X` + `scales`.
    fn find(cx: &Context<'c>, tensor: usize, codes: &str, scales: &str) -> Result<Option<Self>> {
        let info = cx.info(tensor);
        let (Some(stem), Some(Dtype::U8)) = (stem(info, codes), cx.dtype(tensor)) else {
            return Ok(None);
        };
        let [experts, rows, groups, 16] = info.shape[..] else {
            return Ok(None);
        };
        let scale = cx
            .sibling(stem, scales)
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
            return Err(not_known(scales, what));
        }
        let cols = groups
            .checked_mul(32)
            .ok_or_else(|| not_known(info, "number of columns overflows"))?;
        Ok(Some(Self {
            info,
            stem,
            experts,
            rows,
            cols,
            scale,
        }))
    }
}

/// A weight of OpenAI's own files: `X.blocks` and `X.scales`, not transposed.
fn original(cx: &Context<'_>, tensor: usize) -> Result<Option<Weight>> {
    let Some(found) = StackedBlocks::find(cx, tensor, ".blocks", ".scales")? else {
        return Ok(None);
    };
    let StackedBlocks {
        stem,
        experts,
        rows,
        cols,
        scale,
        ..
    } = found;
    let shape = [experts, rows, cols];
    filled(found.info, &shape)?;
    let decoder = Grouped {
        rows: experts * rows,
        cols: shape[2],
        matrix_rows: rows,
        codes: Codes::new(
            CodePacking::LowNibbles,
            CodeValue::Table(Box::new(E2M1_VALUES)),
            shape[2] / 2,
        ),
        formula: Formula::Scale,
        scales: Scales::Stored(Factors::per_group(1, Dtype::F8_E8M0, 32)),
        zeros: Zeros::None,
    };
    let parts = [("codes", tensor), ("scale", scale)];
    Ok(Some(cx.weight("mxfp4", stem, &shape, &parts, decoder)))
}

pub(super) fn claim(cx: &Context<'_>, tensor: usize) -> Result<Option<Weight>> {
    if let Some(weight) = original(cx, tensor)? {
        return Ok(Some(weight));
    }
    let Some(found) = StackedBlocks::find(cx, tensor, "_blocks", "_scales")? else {
        return Ok(None);
    };
    let StackedBlocks {
        stem,
        experts,
        rows,
        cols,
        scale,
        ..
    } = found;
    let decoder = Transposed {
        matrices: experts,
        stored_rows: rows,
        stored_cols: cols,
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
        &[experts, cols, rows],
        &[("codes", tensor), ("scale", scale)],
        decoder,
    )))
}
