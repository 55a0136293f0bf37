//! Quark's older export of OCP MX: in each row, groups of a scale and its 32 codes, byte behind byte.
//!
//! `X.weight` U8 `[…, out, 17 * in / 32]` for FP4, `25 * in / 32` for FP6. The scale is a power of 2, its exponent a
//! byte with a sign. `w = code * scale`. Source: Quark 0.13, `torch/utils/pack.py` (`Pack_mxfp4`, `Pack_mxfp6`).

use std::sync::Arc;

use crate::Dtype;
use crate::catalog::Shape;
use crate::decode::{Codes, Derived, Factors, Grouped, Mingled, Place, Scales, Seen, View, Zeros};
use crate::error::Result;
use crate::kernel::{E2M1, Form, Packing, Value};
use crate::scheme::Weight;
use crate::scheme::context::{Context, malformed, unsupported};
use crate::scheme::grain::{filled, stack};

/// The weight; none where scales lie beside the codes, which is the newer export.
pub(super) fn weight(cx: &Context<'_>, tensor: usize, elements: &str) -> Result<Option<Weight>> {
    let info = cx.info(tensor);
    if cx.beside(&info.name, "_scale").is_some() {
        return Ok(None);
    }
    let (bits, value) = match elements {
        "fp4" => (4, Value::Table(Box::new(E2M1))),
        "fp6_e2m3" => (6, Value::E2m3),
        "fp6_e3m2" => (6, Value::E3m2),
        other => {
            return Err(unsupported(
                info,
                format!("Quark's MX of {other:?}, which it does not pack"),
            ));
        }
    };
    filled(info, &info.shape)?;
    let (codes, mut shape) = (u64::from(bits) * 4, Shape::from_slice(&info.shape));
    let groups = match shape.last() {
        Some(bytes) if shape.len() >= 2 && bytes.is_multiple_of(codes + 1) => bytes / (codes + 1),
        _ => {
            return Err(malformed(
                info,
                format!(
                    "rows of {:?} are not groups of {} bytes",
                    info.shape,
                    codes + 1
                ),
            ));
        }
    };
    // less than twice its bytes
    *shape.last_mut().expect("two sizes at least") = groups * 32;
    let (rows, cols, matrix_rows) = stack(&shape);
    let see = |seen| -> Arc<dyn View> {
        Arc::new(Mingled {
            place: Place::whole(0),
            rows,
            groups,
            codes,
            seen,
        })
    };
    let inner = Grouped {
        rows,
        cols,
        matrix_rows,
        codes: Codes::new(Packing::Stream(bits), value, groups * codes),
        form: Form::Scale,
        scales: Scales::Stored(Factors::per_group(1, Dtype::F32, 32)),
        zeros: Zeros::None,
    };
    let decoder = Derived::new(
        inner,
        2,
        vec![(0, see(Seen::Codes)), (1, see(Seen::Scales))],
    );
    Ok(Some(cx.weight(
        "quark",
        &*info.name,
        &shape,
        &[("codes", tensor)],
        decoder,
    )))
}
