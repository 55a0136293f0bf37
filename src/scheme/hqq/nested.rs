//! HQQ's scales and zero points: numbers, or codes with scales and zero points of their own.
//!
//! `scale_q` holds the codes, and the dict `meta_scale` beside it is to them what a weight's own is to its codes:
//! `scale = (code - zero) * scale`; likewise `zero_q` and `meta_zero`. Where they were to be kept elsewhere than the
//! weights, both lie in one tensor `zero_scale` of two halves, codes or numbers, the zero points first.
//! Source: hqq `core/quantize.py` (`HQQLinear.quantize`, `.cuda`, `.dequantize`).

use std::sync::Arc;

use crate::Dtype;
use crate::catalog::{TensorInfo, elements};
use crate::decode::{self, Place, Source};
use crate::error::Result;
use crate::kernel::Form;
use crate::scheme::context::{Context, malformed};
use crate::scheme::facts::Facts;
use crate::scheme::plain::missing;

use super::{Matrix, form};

/// What numbers are called: themselves, their codes, the dict that says how these are to be read, and which half of
/// `zero_scale` they are.
pub(super) struct Role {
    numbers: &'static str,
    codes: &'static str,
    /// Says that there are codes.
    flag: &'static str,
    meta: &'static str,
    half: u64,
}

impl Role {
    /// Where the dict is.
    pub(super) fn at(&self, facts: &Facts<'_, '_>) -> String {
        [facts.at, ".", self.meta].concat()
    }
}

pub(super) static SCALE: &Role = &Role {
    numbers: "scale",
    codes: "scale_q",
    flag: "quant_scale",
    meta: "meta_scale",
    half: 1,
};
pub(super) static ZERO: &Role = &Role {
    numbers: "zero",
    codes: "zero_q",
    flag: "quant_zero",
    meta: "meta_zero",
    half: 0,
};

/// Where numbers come from, and what they are there.
pub(super) struct Numbers {
    pub(super) source: Source,
    pub(super) dtype: Dtype,
    /// Their dtype for the reference.
    pub(super) native: Dtype,
}

/// Scales or zero points, of one of these shapes; their tensors become parts.
pub(super) fn numbers(
    cx: &Context<'_>,
    info: &TensorInfo,
    facts: &Facts<'_, '_>,
    role: &Role,
    shapes: [Vec<u64>; 2],
    parts: &mut Vec<(&'static str, usize)>,
) -> Result<Numbers> {
    let quantised = facts.integer(role.flag)?.map(|on| on != 0);
    if let Some(tensor) = facts
        .tensor(role.numbers)
        .filter(|_| quantised != Some(true))
    {
        let found = cx.info(tensor);
        if !shapes.iter().any(|shape| found.shape[..] == shape[..]) {
            return Err(malformed(
                found,
                format!("{:?} where {:?} belongs", found.shape.as_slice(), shapes[0]),
            ));
        }
        let dtype = float(cx, tensor)?;
        parts.push((role.numbers, tensor));
        let source = Source::Stored(Place::whole(parts.len() - 1));
        return Ok(Numbers {
            source,
            dtype,
            native: dtype,
        });
    }
    let own = facts.tensor(role.codes);
    let both = || {
        facts
            .tensor("zero_scale")
            .filter(|t| cx.info(*t).shape.first() == Some(&2))
    };
    let Some(tensor) = own.or_else(both) else {
        return Err(match quantised {
            Some(true) => malformed(
                info,
                format!(
                    "its {} is quantised, and {} is missing",
                    role.numbers, role.codes
                ),
            ),
            _ => missing(info, role.numbers),
        });
    };
    let found = cx.info(tensor);
    // half of the bytes, where there are two of them
    let (nbytes, half) = if own.is_some() {
        (found.nbytes(), 0)
    } else {
        (found.nbytes() / 2, role.half)
    };
    let part = parts
        .iter()
        .position(|(_, t)| *t == tensor)
        .unwrap_or_else(|| {
            parts.push((
                if own.is_some() {
                    role.codes
                } else {
                    "zero_scale"
                },
                tensor,
            ));
            parts.len() - 1
        });
    let place = Place {
        part,
        start: half * nbytes,
    };
    if cx.dtype(tensor) != Some(Dtype::U8) {
        let dtype = float(cx, tensor)?;
        if own.is_some() || quantised == Some(true) || found.shape[1..] != shapes[0][..] {
            return Err(malformed(
                found,
                format!("{} {:?} where {:?} belongs", dtype, found.shape, shapes[0]),
            ));
        }
        return Ok(Numbers {
            source: Source::Stored(place),
            dtype,
            native: dtype,
        });
    }
    made(
        cx,
        info,
        facts,
        role,
        &shapes[0],
        (tensor, place, nbytes),
        parts,
    )
}

/// Numbers that are to be made from codes.
fn made(
    cx: &Context<'_>,
    info: &TensorInfo,
    facts: &Facts<'_, '_>,
    role: &Role,
    shape: &[u64],
    (tensor, place, nbytes): (usize, Place, u64),
    parts: &mut Vec<(&'static str, usize)>,
) -> Result<Numbers> {
    let found = cx.info(tensor);
    let at = role.at(facts);
    let own = Facts { cx, at: &at };
    let matrix = Matrix::read(found, &own, own.integer("axis")?)?;
    if elements(&matrix.shape) != elements(shape) {
        return Err(malformed(
            found,
            format!("{:?} where {shape:?} belongs", matrix.shape),
        ));
    }
    matrix.hold(found, nbytes)?;
    let mut places = vec![place];
    let mut dtypes = [Dtype::F32; 2];
    for (role, dtype) in [SCALE, ZERO].into_iter().zip(&mut dtypes) {
        let tensor = own
            .tensor(role.numbers)
            .ok_or_else(|| missing(info, role.meta))?;
        let there = cx.info(tensor);
        if !matrix
            .factors()
            .iter()
            .any(|shape| there.shape[..] == shape[..])
        {
            let what = format!(
                "{:?} where {:?} belongs",
                there.shape.as_slice(),
                matrix.factors()[0]
            );
            return Err(malformed(there, what));
        }
        *dtype = float(cx, tensor)?;
        parts.push((
            if role.half == SCALE.half {
                "nested_scale"
            } else {
                "nested_zero"
            },
            tensor,
        ));
        places.push(Place::whole(parts.len() - 1));
    }
    let [scale, zero] = dtypes;
    let form = form(cx, &own, scale, zero)?;
    let native = match form {
        Form::ZeroScaleF16 => Dtype::F16,
        Form::ZeroScaleBf16 => Dtype::BF16,
        _ => Dtype::F32,
    };
    let decoder = matrix.decoder(form, scale, zero);
    let source = Source::Made(Arc::new(decode::Numbers { decoder, places }));
    Ok(Numbers {
        source,
        dtype: Dtype::F32,
        native,
    })
}

fn float(cx: &Context<'_>, tensor: usize) -> Result<Dtype> {
    match cx.dtype(tensor) {
        Some(dtype @ (Dtype::F32 | Dtype::F16 | Dtype::BF16)) => Ok(dtype),
        _ => Err(malformed(
            cx.info(tensor),
            format!("{} where floats belong", cx.info(tensor).encoding),
        )),
    }
}
