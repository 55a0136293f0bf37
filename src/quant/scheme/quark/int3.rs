//! Quark's `int3`: rows of `[out, in]` as a stream of 3 bits in two's complement.
//!
//! `X.weight` is U8 `[out, 3 * in / 8]`. Scales of groups are stored transposed, `[groups, out]`, though codes and zero points
//! are not. Zero points are such a stream too, one for each scale; Quark packs them so and fails to read that shape itself.
//! `w = (q - zero) * scale`.
//!
//! Refused: two steps; zero points of other counts, unless all are 0.
//!
//! Source: Quark 0.13, `torch/utils/pack.py` (`Pack_3_bits`), `torch/export/nn/modules/realquantizer.py`.

use std::sync::Arc;

use serde_json::Value as Json;

use super::config::needs_no_zeros;
use super::reordered::PackedZeroPoints;
use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::base::kernel::{CodePacking, CodeValue, Formula};
use crate::plan::decode::{
    CodeOrder, Codes, Composite, Factors, Grouped, PartOffset, PartView, Scales, TransposedFactors,
    Zeros,
};
use crate::quant::scheme::Weight;
use crate::quant::scheme::context::{Context, missing, not_known, plain, unsupported};
use crate::quant::scheme::granularity::{factors, filled};

pub(super) fn weight(cx: &Context<'_>, tensor: usize, stem: &str, spec: &Json) -> Result<Weight> {
    let info = cx.info(tensor);
    filled(info, &info.shape)?;
    // eight codes are three bytes, so that rows are whole groups of three
    let shape = match info.shape[..] {
        [rows, bytes] if bytes.is_multiple_of(3) => {
            bytes.checked_mul(8).map(|bits| [rows, bits / 3])
        }
        _ => None,
    };
    let [rows, cols] = shape.ok_or_else(|| {
        not_known(
            info,
            format!(
                "rows of shape {:?} do not divide into eight codes of 3 bits",
                info.shape.as_slice()
            ),
        )
    })?;
    if cx.sibling(stem, ".weight_scale_2").is_some() {
        return Err(unsupported(
            info,
            "Quark's int3 with two quantisation steps",
        ));
    }
    let scale = cx
        .sibling(stem, ".weight_scale")
        .ok_or_else(|| missing(info, "weight_scale"))?;
    let mut parts = vec![("codes", tensor), ("scale", scale)];
    let zero = cx.sibling(stem, ".weight_zero_point");
    if zero.is_none() {
        needs_no_zeros(info, spec)?;
    }
    parts.extend(zero.map(|zero| ("zero_point", zero)));
    let there = cx.info(scale);
    let (mut made, mut scales) = (Vec::new(), None);
    if spec.get("qscheme").and_then(Json::as_str) == Some("per_group") {
        let dtype = plain(there).filter(|d| matches!(d, Dtype::F32 | Dtype::F16 | Dtype::BF16));
        let (Some(dtype), [groups, _]) = (
            dtype,
            *there
                .shape
                .first_chunk()
                .filter(|s: &&[u64; 2]| s[1] == rows)
                .unwrap_or(&[0, 0]),
        ) else {
            return Err(not_known(
                there,
                format!(
                    "{} {:?} does not scale {shape:?}",
                    there.encoding, there.shape
                ),
            ));
        };
        if groups == 0 || there.shape.len() != 2 || !cols.is_multiple_of(groups) {
            return Err(not_known(
                there,
                format!(
                    "{:?} does not scale {:?}",
                    there.shape.as_slice(),
                    [rows, cols]
                ),
            ));
        }
        // a view turns `[groups, out]` into rows of groups
        let view = TransposedFactors::alone(1, dtype, [rows, rows], groups, groups);
        made.push((1, Arc::new(view) as Arc<dyn PartView>));
        scales = Some(Factors::per_group(1, dtype, cols / groups));
    }
    let scales = match scales {
        Some(scales) => scales,
        None => factors(cx, 1, scale, &[rows, cols], None)?,
    };
    // zero points of symmetric codes are 0
    let symmetric = spec.get("symmetric").and_then(Json::as_bool) == Some(true);
    let zeros = match zero {
        Some(zero) if symmetric => {
            if cx.peek(zero)?.iter().any(|byte| *byte != 0) {
                let what =
                    "zero points other than 0, though the configuration says `symmetric`: true";
                return Err(not_known(cx.info(zero), what));
            }
            None
        }
        Some(zero) => zero_points(cx, zero, [rows, cols], &scales)?,
        None => None,
    };
    let (formula, zeros) = match zeros {
        Some(view) => {
            made.push((2, view));
            (
                Formula::ZeroScale,
                Zeros::Stored(Factors {
                    part: 2,
                    dtype: Dtype::I8,
                    ..scales.clone()
                }),
            )
        }
        None => (Formula::Scale, Zeros::None),
    };
    let mut table = [0.0; 16];
    table
        .iter_mut()
        // three bits in two's complement
        .zip([0i8, 1, 2, 3, -4, -3, -2, -1])
        .for_each(|(value, code)| *value = code.into());
    let inner = Grouped {
        rows,
        cols,
        matrix_rows: rows,
        codes: Codes::new(
            CodePacking::Stream(3),
            CodeValue::Table(Box::new(table)),
            cols / 8 * 3,
        ),
        formula,
        scales: Scales::Stored(scales),
        zeros,
    };
    let decoder = Composite::new(inner, parts.len(), made);
    Ok(cx.weight("quark", &*info.name, &[rows, cols], &parts, decoder))
}

/// Zero points, one for each scale, eight in three bytes. `None` if all are 0, whatever their count.
fn zero_points(
    cx: &Context<'_>,
    zero: usize,
    [rows, cols]: [u64; 2],
    scales: &Factors,
) -> Result<Option<Arc<dyn PartView>>> {
    let info = cx.info(zero);
    let count = if scales.rows == 1 {
        rows.checked_mul(cols.div_ceil(scales.cols))
    } else {
        None
    };
    let count = count.filter(|count| {
        // the stream of zero points ends at a byte only if eight divide them
        count.is_multiple_of(8) && info.elements().checked_mul(8) == count.checked_mul(3)
    });
    let Some(rows) = count.filter(|_| plain(info) == Some(Dtype::U8)) else {
        if cx.peek(zero)?.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let what = format!(
            "{} {:?} instead of zero points of 3 bits for each scale",
            info.encoding,
            info.shape.as_slice()
        );
        return Err(not_known(info, what));
    };
    let place = PartOffset::whole(2);
    Ok(Some(Arc::new(PackedZeroPoints {
        place,
        rows,
        order: CodeOrder::Natural,
        per_item: 8,
        bits: 3,
        signed: true,
    })))
}
