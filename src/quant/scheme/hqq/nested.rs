//! HQQ's scales and zero points: stored values, or codes with scales and zero points of their own.
//!
//! `scale_q` has the codes and the dict `meta_scale` their settings: `scale = (code - zero) * scale`, with the packing of
//! `hqq.rs`; likewise `zero_q` and `meta_zero`. If hqq kept both on another device than the weights, they are in one tensor
//! `zero_scale` of two halves, codes or values, the zero points first.
//!
//! Source: hqq `core/quantize.py` (`HQQLinear.quantize`, `.cuda`, `.dequantize`).

use std::sync::Arc;

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::base::kernel::Formula;
use crate::plan::decode::{self, PartOffset, PartSource};
use crate::quant::scheme::attributes::Attributes;
use crate::quant::scheme::context::{Context, missing, not_known};
use crate::read::catalog::{TensorInfo, elements};

use super::formula;
use super::matrix::HqqMatrix;

/// The names of scales or of zero points: of the values, of their codes, of the dict with their settings, and their half of
/// `zero_scale`.
pub(super) struct FactorRole {
    numbers: &'static str,
    codes: &'static str,
    /// Setting that is true if there are codes.
    flag: &'static str,
    meta: &'static str,
    half: u64,
}

impl FactorRole {
    /// Prefix of the dict's names.
    pub(super) fn prefix(&self, attributes: &Attributes<'_, '_>) -> String {
        [attributes.prefix, ".", self.meta].concat()
    }
}

pub(super) static SCALE: &FactorRole = &FactorRole {
    numbers: "scale",
    codes: "scale_q",
    flag: "quant_scale",
    meta: "meta_scale",
    half: 1,
};
pub(super) static ZERO: &FactorRole = &FactorRole {
    numbers: "zero",
    codes: "zero_q",
    flag: "quant_zero",
    meta: "meta_zero",
    half: 0,
};

/// The source of scales or zero points, and their dtype.
pub(super) struct HqqFactors {
    pub(super) source: PartSource,
    pub(super) dtype: Dtype,
    /// Their dtype in the reference implementation.
    pub(super) native: Dtype,
}

/// Finds the scales or zero points, of one of these shapes; their tensors are appended to `parts`.
pub(super) fn numbers(
    cx: &Context<'_>,
    info: &TensorInfo,
    attributes: &Attributes<'_, '_>,
    role: &FactorRole,
    shapes: [Vec<u64>; 2],
    parts: &mut Vec<(&'static str, usize)>,
) -> Result<HqqFactors> {
    let quantised = attributes.integer(role.flag)?.map(|on| on != 0);
    if let Some(tensor) = attributes
        .tensor(role.numbers)
        // a flag that is set takes precedence over a leftover tensor of values
        .filter(|_| quantised != Some(true))
    {
        let found = cx.info(tensor);
        if !shapes.iter().any(|shape| found.shape[..] == shape[..]) {
            return Err(not_known(
                found,
                format!(
                    "shape {:?} instead of {:?}",
                    found.shape.as_slice(),
                    shapes[0]
                ),
            ));
        }
        let dtype = float(cx, tensor)?;
        parts.push((role.numbers, tensor));
        let source = PartSource::Stored(PartOffset::whole(parts.len() - 1));
        return Ok(HqqFactors {
            source,
            dtype,
            native: dtype,
        });
    }
    let own = attributes.tensor(role.codes);
    // hqq joins scales and zero points only if it moves them to another device
    let both = || {
        attributes
            .tensor("zero_scale")
            .filter(|t| cx.info(*t).shape.first() == Some(&2))
    };
    let Some(tensor) = own.or_else(both) else {
        return Err(match quantised {
            Some(true) => not_known(
                info,
                format!(
                    "{} is quantised, but {} is missing",
                    role.numbers, role.codes
                ),
            ),
            _ => missing(info, role.numbers),
        });
    };
    let found = cx.info(tensor);
    // half of the bytes of `zero_scale`
    let (nbytes, half) = if own.is_some() {
        (found.nbytes(), 0)
    } else {
        (found.nbytes() / 2, role.half)
    };
    // scales and zero points may be halves of one tensor, which is then one part of the weight
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
    let place = PartOffset {
        part,
        start: half * nbytes,
    };
    // codes are bytes; floats in their place are values that were joined, not quantised
    if cx.dtype(tensor) != Some(Dtype::U8) {
        let dtype = float(cx, tensor)?;
        if own.is_some() || quantised == Some(true) || found.shape[1..] != shapes[0][..] {
            return Err(not_known(
                found,
                format!(
                    "{} shape {:?} instead of {:?}",
                    dtype, found.shape, shapes[0]
                ),
            ));
        }
        return Ok(HqqFactors {
            source: PartSource::Stored(place),
            dtype,
            native: dtype,
        });
    }
    computed(
        cx,
        info,
        attributes,
        role,
        &shapes[0],
        (tensor, place, nbytes),
        parts,
    )
}

/// Scales or zero points that are computed from codes.
fn computed(
    cx: &Context<'_>,
    info: &TensorInfo,
    attributes: &Attributes<'_, '_>,
    role: &FactorRole,
    shape: &[u64],
    (tensor, place, nbytes): (usize, PartOffset, u64),
    parts: &mut Vec<(&'static str, usize)>,
) -> Result<HqqFactors> {
    let found = cx.info(tensor);
    let prefix = role.prefix(attributes);
    let own = Attributes {
        cx,
        prefix: &prefix,
    };
    // the axis of a nested matrix is never in the configuration
    let matrix = HqqMatrix::read(found, &own, own.integer("axis")?)?;
    if elements(&matrix.shape) != elements(shape) {
        return Err(not_known(
            found,
            format!("shape {:?} instead of {shape:?}", matrix.shape),
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
                "shape {:?} instead of {:?}",
                there.shape.as_slice(),
                matrix.factors()[0]
            );
            return Err(not_known(there, what));
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
        // in the order in which `HqqMatrix::decoder` numbers its parts: codes, scales, zero points
        places.push(PartOffset::whole(parts.len() - 1));
    }
    let [scale, zero] = dtypes;
    let formula = formula(cx, &own, scale, zero)?;
    // the outer formula is rounded in the dtype that the nested one produces in hqq
    let native = match formula {
        Formula::ZeroScaleF16 => Dtype::F16,
        Formula::ZeroScaleBf16 => Dtype::BF16,
        _ => Dtype::F32,
    };
    let decoder = matrix.decoder(formula, scale, zero);
    let source = PartSource::Computed(Arc::new(decode::DecodedPart { decoder, places }));
    Ok(HqqFactors {
        source,
        // `DecodedPart` makes F32
        dtype: Dtype::F32,
        native,
    })
}

fn float(cx: &Context<'_>, tensor: usize) -> Result<Dtype> {
    match cx.dtype(tensor) {
        Some(dtype @ (Dtype::F32 | Dtype::F16 | Dtype::BF16)) => Ok(dtype),
        _ => Err(not_known(
            cx.info(tensor),
            format!(
                "dtype {} instead of F32, F16 or BF16",
                cx.info(tensor).encoding
            ),
        )),
    }
}
