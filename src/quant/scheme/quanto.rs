//! quanto: INT8 and FP8 with a scale per channel, 4 and 2 bits in groups.
//!
//! Written by optimum-quanto and transformers. Recognised by `X._data` (8 bits) or `X._data._data` (4 and 2 bits) with
//! siblings `X._scale` and `X._shift`.
//!
//! 8 bits: `w = scale * _data`, codes I8 or FP8 `[out, in]`. Fewer: `_data._data` is U8 `[ceil(groups / planes), group]`, rows
//! of one group each, in planes from the lowest bits up; `_scale` and `_shift` are `[groups, 1]`.
//! `w = scale * code - shift`; integer shifts are zero points, `scale * (code - shift)`. The weight's shape is not stored:
//! see `quanto/shape.rs`.
//!
//! quanto computes in the dtype of the scales and rounds the product before it subtracts; `native_rounding` does the same.
//!
//! Refused: groups whose shape cannot be determined; the error lists the candidates.
//!
//! Source: optimum-quanto 0.2.7 `tensor/{packed,qbits,qbytes,grouped}.py`, `tensor/weights/qbits.py`.

mod shape;

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::base::kernel::{CodePacking, CodeValue, Formula};
use crate::plan::decode::{Codes, GroupFactors, Grouped, Linear, Planes, Scales, Zeros};
use crate::quant::settings::KnownValues::{Any, Texts};
use crate::quant::settings::{KnownValues, SchemeSettings};
use crate::read::catalog::{TensorInfo, elements};

use super::Weight;
use super::context::{Context, missing, not_known, plain, stem};
use super::granularity::{are_of_rows, factors, other_scales, stack};
use super::module_names::module_of_weight;
use super::stated::{Alternatives, ScaleNumbers, StatedNumbers};

/// The settings of configurations of quanto that are known, for all modules and for one.
pub(super) static SETTINGS: SchemeSettings = SchemeSettings {
    methods: &["quanto", ""],
    keys: &[
        ("weights", TYPES),
        ("activations", Any),
        ("weights_dtype", TYPES),
        ("*.weights", TYPES),
        ("*.activations", Any),
    ],
};

const TYPES: KnownValues = Texts(&[
    "float8",
    "int2",
    "int4",
    "int8",
    "qfloat8",
    "qfloat8_e4m3fn",
    "qfloat8_e4m3fnuz",
    "qfloat8_e5m2",
    "qint2",
    "qint4",
    "qint8",
    "none",
]);

/// The numbers of the configured type: of all modules, or in quanto's map of one.
pub(super) fn stated(cx: &Context<'_>, name: &str) -> Alternatives {
    let configured = ["weights", "weights_dtype"]
        .iter()
        .find_map(|key| cx.config.text(key));
    let Some(name) = configured.or_else(|| mapped(cx, name)) else {
        return Alternatives::new();
    };
    let numbers = match name.trim_start_matches('q') {
        "float8_e5m2" => StatedNumbers::float8("E5M2"),
        "float8" | "float8_e4m3fn" | "float8_e4m3fnuz" => StatedNumbers::float8("E4M3"),
        "int8" => StatedNumbers::integers(Some(8)),
        "int4" => StatedNumbers::integers(Some(4)).packed(),
        "int2" => StatedNumbers::integers(Some(2)).packed(),
        _ => return Alternatives::new(),
    };
    vec![vec![numbers.scaled_by(ScaleNumbers::Floats)]]
}

/// The type of a weight in quanto's map.
fn mapped<'c>(cx: &Context<'c>, name: &str) -> Option<&'c str> {
    let module = module_of_weight(name);
    cx.config.map().get(module)?.get("weights")?.as_str()
}

pub(super) fn claim(cx: &Context<'_>, tensor: usize) -> Result<Option<Weight>> {
    let info = cx.info(tensor);
    if let Some(name) = stem(info, "._data._data") {
        return bits(cx, tensor, name).map(Some);
    }
    match stem(info, "._data") {
        Some(name) => bytes(cx, tensor, name),
        None => Ok(None),
    }
}

fn bytes(cx: &Context<'_>, tensor: usize, name: &str) -> Result<Option<Weight>> {
    let info = cx.info(tensor);
    let value = plain(info)
        // U8 under this name is packed codes of fewer bits, whose name ends in `._data._data`
        .filter(|dtype| *dtype != Dtype::U8)
        .and_then(CodeValue::of);
    let Some(value) = value else {
        return Ok(None);
    };
    let Some(scale) = cx.sibling(name, "._scale") else {
        // FP8 without a scale would be a weight of another scheme
        return match plain(info) {
            Some(Dtype::I8) => Ok(None),
            _ => Err(missing(info, "_scale")),
        };
    };
    let (rows, cols, matrix_rows) = stack(&info.shape);
    // `QBytesTensor` has one scale, or one for each index of the first dimension
    let scales = factors(cx, 1, scale, &info.shape, None)?;
    let dtype = cx.dtype(scale);
    let is_float = dtype.is_some_and(|dtype| ScaleNumbers::Floats.are_stored_in(dtype));
    if !is_float || !are_of_rows(&scales, &info.shape) {
        return Err(other_scales(
            cx,
            scale,
            &info.shape,
            "a scale in floats for each row",
        ));
    }
    let decoder = Grouped {
        rows,
        cols,
        matrix_rows: matrix_rows.max(1),
        codes: Codes::new(CodePacking::Bytes, value, cols),
        formula: rounded(cx, scale, Formula::Scale),
        scales: Scales::Stored(scales),
        zeros: Zeros::None,
    };
    Ok(Some(cx.weight(
        "quanto",
        name,
        &info.shape,
        &[("codes", tensor), ("scale", scale)],
        decoder,
    )))
}

fn bits(cx: &Context<'_>, tensor: usize, name: &str) -> Result<Weight> {
    let info = cx.info(tensor);
    let part = |suffix: &str| {
        cx.sibling(name, suffix)
            .ok_or_else(|| missing(info, suffix))
    };
    let (scale, shift) = (part("._scale")?, part("._shift")?);
    let (&[stored, group], Some(Dtype::U8)) = (&info.shape[..], cx.dtype(tensor)) else {
        return Err(not_known(
            info,
            format!(
                "{} {:?} instead of U8 codes of two dimensions",
                info.encoding,
                info.shape.as_slice()
            ),
        ));
    };
    let groups = cx.info(scale).elements();
    let wrong = |info: &TensorInfo| {
        not_known(
            info,
            format!(
                "shape {:?} does not fit {groups} groups",
                info.shape.as_slice()
            ),
        )
    };
    if cx.info(scale).shape[..] != [groups, 1] || cx.info(shift).shape[..] != [groups, 1] {
        return Err(wrong(cx.info(if cx.info(scale).shape[..] == [groups, 1] {
            shift
        } else {
            scale
        })));
    }
    // rows in two or four planes, the last of which may be shorter; both fit for very few groups only
    let module = module_of_weight(name);
    // configured for all modules, or in quanto's map for this one
    let configured = cx.config.text("weights").or_else(|| mapped(cx, name));
    let two_bits = matches!(configured, Some("int2" | "qint2"));
    let planes = if two_bits { [4u32, 2] } else { [2, 4] };
    let planes = planes
        .into_iter()
        .find(|planes| groups.div_ceil((*planes).into()) == stored);
    let (Some(planes), true) = (planes, groups > 0 && group > 0) else {
        return Err(wrong(info));
    };
    if groups <= 2 && planes == 2 && configured.is_none() {
        cx.note(format!(
            "4-bit codes are assumed for {}: it has too few rows to distinguish them from 2 bits",
            crate::read::catalog::quote(name)
        ));
    }
    let count = elements(&[groups, group]).ok_or_else(|| wrong(info))?;
    let [rows, cols] = shape::of(cx, info, module, groups, group)?;
    let float = |part: usize| match cx.dtype(part) {
        Some(dtype @ (Dtype::F32 | Dtype::F16 | Dtype::BF16)) => Ok(dtype),
        _ => Err(not_known(
            cx.info(part),
            format!(
                "dtype {} instead of F32, F16 or BF16",
                cx.info(part).encoding
            ),
        )),
    };
    let (formula, zeros) = match cx.dtype(shift) {
        // integer shifts are zero points, float shifts are products
        Some(dtype @ (Dtype::I8 | Dtype::U8)) => {
            (Formula::ZeroScale, GroupFactors::Stored { part: 2, dtype })
        }
        _ => (
            Formula::ScaleOffset,
            GroupFactors::Negated {
                part: 2,
                dtype: float(shift)?,
            },
        ),
    };
    let formula = rounded(cx, scale, formula);
    let bits = 8 / planes;
    let planes = Planes {
        // planes count elements in a `Linear`
        stored: stored * group,
        word: 1,
        bits,
        shifts: (0..planes).map(|plane| plane * bits).collect(),
    };
    let decoder = Linear {
        elements: count,
        group,
        codes: Codes {
            planes: Some(planes),
            ..Codes::new(CodePacking::Bytes, CodeValue::Unsigned, 0)
        },
        table: None,
        formula,
        scales: GroupFactors::Stored {
            part: 1,
            dtype: float(scale)?,
        },
        zeros: Some(zeros),
    };
    let parts = [("codes", tensor), ("scale", scale), ("shift", shift)];
    Ok(cx.weight("quanto", name, &[rows, cols], &parts, decoder))
}

/// The formula: in F32, or with quanto's rounding. quanto computes in the dtype of the scales, which the products and, in
/// place, their differences have, whatever the dtype of the shifts.
fn rounded(cx: &Context<'_>, scale: usize, exact: Formula) -> Formula {
    let dtype = cx.dtype(scale).filter(|_| cx.native_rounding);
    match (dtype, exact) {
        (Some(Dtype::F16), Formula::ScaleOffset) => Formula::ScaleOffsetF16,
        (Some(Dtype::BF16), Formula::ScaleOffset) => Formula::ScaleOffsetBf16,
        // codes and their differences from zero points are exact in both dtypes
        (Some(Dtype::F16), Formula::ZeroScale | Formula::Scale) => Formula::ZeroScaleF16,
        (Some(Dtype::BF16), Formula::ZeroScale | Formula::Scale) => Formula::ZeroScaleBf16,
        (_, exact) => exact,
    }
}
