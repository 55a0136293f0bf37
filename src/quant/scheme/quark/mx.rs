//! Quark's older export of OCP MX, with inline scales: each row is a sequence of groups of a scale byte and 32 codes.
//!
//! `X.weight` is U8 `[…, out, 17 * in / 32]` for FP4, `25 * in / 32` for FP6. The scale is a power of 2, its exponent a signed
//! byte. `w = code * scale`. A sibling `X.weight_scale` means the newer export (`fp4.rs`).
//!
//! Source: Quark 0.13, `torch/utils/pack.py` (`Pack_mxfp4`, `Pack_mxfp6`).

use std::sync::Arc;

use super::inline_scales::{InlinePart, InlineScales};
use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::base::kernel::{CodePacking, CodeValue, E2M1_VALUES, Formula};
use crate::plan::decode::{
    Codes, Composite, Factors, Grouped, PartOffset, PartView, Scales, Zeros,
};
use crate::quant::scheme::Weight;
use crate::quant::scheme::context::{Context, not_known, unsupported};
use crate::quant::scheme::granularity::{filled, stack};
use crate::read::catalog::Shape;

/// The weight; `None` if scales are a tensor of their own, which is the newer export.
pub(super) fn weight(cx: &Context<'_>, tensor: usize, elements: &str) -> Result<Option<Weight>> {
    let info = cx.info(tensor);
    if cx.sibling(&info.name, "_scale").is_some() {
        return Ok(None);
    }
    let (bits, value) = match elements {
        "fp4" => (4, CodeValue::Table(Box::new(E2M1_VALUES))),
        "fp6_e2m3" => (6, CodeValue::E2m3),
        "fp6_e3m2" => (6, CodeValue::E3m2),
        other => {
            return Err(unsupported(
                info,
                format!("Quark does not pack MX elements of {other:?}"),
            ));
        }
    };
    filled(info, &info.shape)?;
    // bytes of the 32 codes of a group
    let (codes, mut shape) = (u64::from(bits) * 4, Shape::from_slice(&info.shape));
    let groups = match shape.last() {
        Some(bytes) if shape.len() >= 2 && bytes.is_multiple_of(codes + 1) => bytes / (codes + 1),
        _ => {
            return Err(not_known(
                info,
                format!(
                    "rows of shape {:?} do not divide into groups of {} bytes",
                    info.shape,
                    codes + 1
                ),
            ));
        }
    };
    // does not overflow: less than twice the stored bytes
    *shape.last_mut().expect("two sizes at least") = groups * 32;
    let (rows, cols, matrix_rows) = stack(&shape);
    let view = |extract| -> Arc<dyn PartView> {
        Arc::new(InlineScales {
            place: PartOffset::whole(0),
            rows,
            groups,
            codes,
            extract,
        })
    };
    let inner = Grouped {
        rows,
        cols,
        matrix_rows,
        codes: Codes::new(CodePacking::Stream(bits), value, groups * codes),
        formula: Formula::Scale,
        scales: Scales::Stored(Factors::per_group(1, Dtype::F32, 32)),
        zeros: Zeros::None,
    };
    let decoder = Composite::new(
        inner,
        2,
        vec![(0, view(InlinePart::Codes)), (1, view(InlinePart::Scales))],
    );
    Ok(Some(cx.weight(
        "quark",
        &*info.name,
        &shape,
        &[("codes", tensor)],
        decoder,
    )))
}
