//! quanto: INT8 and FP8 with a scale per channel, 4 and 2 bits in groups.
//!
//! 8 bits: `w = scale * _data`. Fewer: `_data._data` holds rows of a group each, in planes from the lowest bits
//! up, and `w = scale * code - shift`, or `scale * (code - shift)` where shifts are whole numbers. The files do
//! not say what shape the groups make: see `shape.rs`.
//! Source: optimum-quanto 0.2.7 `tensor/{packed,qbits,qbytes,grouped}.py`, `tensor/weights/qbits.py`.

mod shape;

use crate::Dtype;
use crate::catalog::{TensorInfo, elements};
use crate::decode::{Codes, Flat, Grouped, PerGroup, Planes, Scales, Zeros};
use crate::error::Result;
use crate::kernel::{Form, Packing, Value};

use super::Weight;
use super::context::{Context, malformed, plain, stem};
use super::grain::{factors, stack};
use super::plain::missing;

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
        .filter(|dtype| *dtype != Dtype::U8)
        .and_then(Value::of);
    let (Some(value), Some(scale)) = (value, cx.beside(name, "._scale")) else {
        return Ok(None);
    };
    let (rows, cols, matrix_rows) = stack(&info.shape);
    let decoder = Grouped {
        rows,
        cols,
        matrix_rows: matrix_rows.max(1),
        codes: Codes::new(Packing::Bytes, value, cols),
        form: Form::Scale,
        scales: Scales::Stored(factors(cx, 1, scale, &info.shape, None)?),
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
    let part = |suffix: &str| cx.beside(name, suffix).ok_or_else(|| missing(info, suffix));
    let (scale, shift) = (part("._scale")?, part("._shift")?);
    let (&[stored, group], Some(Dtype::U8)) = (&info.shape[..], cx.dtype(tensor)) else {
        return Err(malformed(
            info,
            format!(
                "{} {:?} is no packed matrix",
                info.encoding,
                info.shape.as_slice()
            ),
        ));
    };
    let groups = cx.info(scale).elements();
    let wrong = |info: &TensorInfo| {
        malformed(
            info,
            format!("{:?} for {groups} groups", info.shape.as_slice()),
        )
    };
    if cx.info(scale).shape[..] != [groups, 1] || cx.info(shift).shape[..] != [groups, 1] {
        return Err(wrong(cx.info(if cx.info(scale).shape[..] == [groups, 1] {
            shift
        } else {
            scale
        })));
    }
    // rows of two or four planes, the last of which may be cut short: hardly ever both fit
    let module = name.strip_suffix(".weight").unwrap_or(name);
    // of all of them, or, in quanto's map, of this one
    let of_module = || cx.config.map().get(module)?.get("weights")?.as_str();
    let configured = cx.config.text("weights").or_else(of_module);
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
            "codes of 4 bits: {} has too few rows to tell them from 2",
            crate::catalog::quote(name)
        ));
    }
    let count = elements(&[groups, group]).ok_or_else(|| wrong(info))?;
    let [rows, cols] = shape::of(cx, info, module, groups, group)?;
    let float = |part: usize| match cx.dtype(part) {
        Some(dtype @ (Dtype::F32 | Dtype::F16 | Dtype::BF16)) => Ok(dtype),
        _ => Err(malformed(
            cx.info(part),
            format!("{} where floats belong", cx.info(part).encoding),
        )),
    };
    let (form, zeros) = match cx.dtype(shift) {
        Some(dtype @ (Dtype::I8 | Dtype::U8)) => {
            (Form::ZeroScale, PerGroup::Stored { part: 2, dtype })
        }
        _ => (
            Form::ScaleOffset,
            PerGroup::Negated {
                part: 2,
                dtype: float(shift)?,
            },
        ),
    };
    let bits = 8 / planes;
    let planes = Planes {
        stored: stored * group,
        word: 1,
        bits,
        shifts: (0..planes).map(|plane| plane * bits).collect(),
    };
    let decoder = Flat {
        elements: count,
        group,
        codes: Codes {
            planes: Some(planes),
            ..Codes::new(Packing::Bytes, Value::Unsigned, 0)
        },
        table: None,
        form,
        scales: PerGroup::Stored {
            part: 1,
            dtype: float(scale)?,
        },
        zeros: Some(zeros),
    };
    let parts = [("codes", tensor), ("scale", scale), ("shift", shift)];
    Ok(cx.weight("quanto", name, &[rows, cols], &parts, decoder))
}
