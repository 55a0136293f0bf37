//! torchao's tensor classes, as flattened into safetensors files.
//!
//! `m._weight_qdata`, `m._weight_scale`, … are the tensors of `m.weight`, and the file's metadata has a JSON
//! text of that name: `{"_type": class, "_data": {attributes}, "_tensor_data_names": [...]}`.
//! Classes: `Float8Tensor` (`q * scale`), `Int8Tensor` and `IntxUnpackedToInt8Tensor` (`(q - zero) * scale`),
//! `MXTensor` (E8M0 scales), `NVFP4Tensor` (E4M3 scales, times `per_tensor_scale`), whose scales may be swizzled, as
//! cuBLAS wants them; and those of `int4.rs`. Where inputs are multiplied by `act_pre_scale`, columns are in the end.
//! Pickled tensors of these classes are listed in the same way, and with their shape.
//! Source: torchao 0.18 `prototype/safetensors/*.py`, `quantization/quantize_/workflows/`,
//! `prototype/mx_formats/{mx,nvfp4}_tensor.py` and `utils.py` (`to_blocked`), `quantization/quant_primitives.py`.

mod int4;
mod shuffled;

use std::sync::Arc;

use serde_json::Value as Json;

use crate::Dtype;
use crate::catalog::Shape;
use crate::decode::{
    Codes, Derived, Factors, Global, Grouped, Place, Scales, Smoothed, Swizzled, View, Zeros,
};
use crate::error::Result;
use crate::kernel::{E2M1, Form, Packing, Value};
use crate::metadata;
use crate::plan::Decoder;

use super::Weight;
use super::context::{Context, malformed, plain, stem, unsupported};
use super::grain::{factors, stack};
use super::plain::missing;

/// What codes are called: in classes as they are, and in those before 0.14.
static CODES: &[&str] = &[
    "_qdata",
    "_packed_weights",
    "_int_data",
    "_packed_weight",
    "_float8_data",
];

/// Classes whose bytes only their kernels can read, and why.
static KERNELS: &[(&str, &str)] = &[(
    "IntxOpaqueTensor",
    "in which codes, scales and sums are packed together for the kernels of one CPU; save it before it is packed, as an \
     IntxUnpackedToInt8Tensor",
)];

pub(super) fn claim(cx: &Context<'_>, tensor: usize) -> Result<Option<Weight>> {
    let info = cx.info(tensor);
    let Some(flat) = CODES.iter().find_map(|codes| stem(info, codes)) else {
        return Ok(None);
    };
    // `m._weight` is flattened from `m.weight`
    let Some((module, own)) = flat
        .rsplit_once("._")
        .or_else(|| Some(("", flat.strip_prefix('_')?)))
    else {
        return Ok(None);
    };
    let name = if module.is_empty() {
        own.to_owned()
    } else {
        format!("{module}.{own}")
    };
    let Some(metadata::Value::Text(text)) = cx.fact(&name) else {
        return if cx.config.is(&["torchao"]) {
            Err(missing(info, &format!("description {name}")))
        } else {
            Ok(None)
        };
    };
    let said: Json =
        serde_json::from_str(text).map_err(|e| malformed(info, format!("its description: {e}")))?;
    weight(cx, tensor, &name, flat, &said).map(Some)
}

fn weight(cx: &Context<'_>, tensor: usize, name: &str, flat: &str, said: &Json) -> Result<Weight> {
    let info = cx.info(tensor);
    let class = said.get("_type").and_then(Json::as_str).unwrap_or_default();
    let data = |key: &str| said.get("_data").and_then(|data| data.get(key));
    let beside = |key: &str| cx.beside(flat, &["_", key].concat());
    if let Some((_, why)) = KERNELS.iter().find(|(known, _)| *known == class) {
        return Err(unsupported(info, format!("torchao's {class}, {why}")));
    }
    if data("transposed").is_some_and(|on| on.as_bool() != Some(false)) {
        return Err(unsupported(
            info,
            format!("a {class} that was turned: it is one only inside of a computation"),
        ));
    }
    // the number of the choice that zero points are floats
    let floats =
        data("zero_point_domain").and_then(|domain| domain.get("_data")?.as_u64()) == Some(2);
    if class == "AffineQuantizedTensor" && floats != info.name.ends_with("_packed_weight") {
        return Err(unsupported(
            info,
            format!("a {class} with zero points of another kind than its codes have"),
        ));
    }
    if let Some(claim) = int4::class(class, &info.name) {
        let made = claim(
            cx,
            &int4::Said {
                info,
                tensor,
                flat,
                said,
                class,
            },
        )?;
        return finished(cx, name, made, data("shape"), beside("act_pre_scale"));
    }
    let swizzled = data("is_swizzled_scales").is_some_and(|on| on.as_bool() != Some(false));
    let scale = beside("scale").ok_or_else(|| missing(info, "scale"))?;
    let mut parts = vec![("codes", tensor), ("scale", scale)];
    let dtype = plain(info);
    let not = || malformed(info, format!("{} in a {class}", info.encoding));
    let halves = dtype == Some(Dtype::U8);
    let nibbles = || (Packing::LowNibbles, Value::Table(Box::new(E2M1)));
    let ((packing, value), block) = match class {
        "Float8Tensor" | "Int8Tensor" | "IntxUnpackedToInt8Tensor" => {
            let whole = class != "Float8Tensor";
            let value = dtype
                .filter(|d| *d != Dtype::U8 && whole == (*d == Dtype::I8))
                .and_then(Value::of);
            ((Packing::Bytes, value.ok_or_else(not)?), None)
        }
        "AffineQuantizedTensor" => {
            let value = dtype.and_then(Value::of);
            ((Packing::Bytes, value.ok_or_else(not)?), None)
        }
        "MXTensor" => match (data("elem_dtype").and_then(dtype_name), dtype) {
            (Some("float8_e4m3fn"), Some(Dtype::F8_E4M3)) => {
                ((Packing::Bytes, Value::E4m3), Some(Dtype::F8_E8M0))
            }
            (Some("float8_e5m2"), Some(Dtype::F8_E5M2)) => {
                ((Packing::Bytes, Value::E5m2), Some(Dtype::F8_E8M0))
            }
            (Some("float4_e2m1fn_x2"), Some(Dtype::U8 | Dtype::F4)) => {
                (nibbles(), Some(Dtype::F8_E8M0))
            }
            (elements, _) => {
                return Err(unsupported(
                    info,
                    format!(
                        "a {class} of {} in {}",
                        elements.unwrap_or("?"),
                        info.encoding
                    ),
                ));
            }
        },
        "NVFP4Tensor" if matches!(dtype, Some(Dtype::U8 | Dtype::F4)) => {
            (nibbles(), Some(Dtype::F8_E4M3))
        }
        other => {
            return Err(unsupported(
                info,
                format!("a torchao {other:?}, which is laid out for its kernel"),
            ));
        }
    };
    let mut shape = Shape::from_slice(&info.shape);
    if let (Some(_), true, Some(cols)) = (
        block,
        halves && packing == Packing::LowNibbles,
        shape.last_mut(),
    ) {
        *cols = cols.checked_mul(2).ok_or_else(not)?;
    }
    let (rows, cols, matrix_rows) = stack(&shape);
    let stored = match block {
        Some(dtype) => grouped(cx, scale, &shape, dtype, data("block_size"), swizzled)?,
        None if swizzled => {
            return Err(unsupported(
                info,
                format!("a {class} whose scales are swizzled"),
            ));
        }
        None => factors(cx, 1, scale, &shape, sides(data("block_size")))?,
    };
    let (mut form, mut zeros) = (Form::Scale, Zeros::None);
    if let Some(zero) = beside("zero_point").filter(|_| block.is_none()) {
        let there = cx.info(zero);
        let kind = plain(there).filter(|d| {
            matches!(
                d,
                Dtype::I8 | Dtype::I32 | Dtype::I64 | Dtype::F32 | Dtype::F16 | Dtype::BF16
            )
        });
        let (Some(dtype), true) = (kind, there.shape == cx.info(scale).shape) else {
            return Err(malformed(there, "no zero points for these scales"));
        };
        parts.push(("zero_point", zero));
        (form, zeros) = (
            Form::ZeroScale,
            Zeros::Stored(Factors {
                part: 2,
                dtype,
                ..stored.clone()
            }),
        );
    }
    let scales = match beside("per_tensor_scale") {
        Some(global) => {
            let there = cx.info(global);
            if plain(there) != Some(Dtype::F32) || there.elements() != 1 {
                return Err(malformed(there, "not one F32"));
            }
            parts.push(("per_tensor_scale", global));
            Scales::Times(
                stored,
                Global {
                    part: parts.len() - 1,
                    dtype: Dtype::F32,
                    count: 1,
                },
            )
        }
        None => Scales::Stored(stored),
    };
    // what only the arithmetic with quantised inputs needs
    for key in [
        "act_quant_scale",
        "act_quant_zero_point",
        "act_per_tensor_scale",
    ] {
        parts.extend(beside(key).map(|part| ("activation", part)));
    }
    let row_bytes = packing.row_bytes(cols).ok_or_else(not)?;
    let codes = Codes::new(packing, value, row_bytes);
    let groups = scales
        .factors()
        .map_or(1, |factors| cols.div_ceil(factors.cols));
    let decoder = Grouped {
        rows,
        cols,
        matrix_rows: matrix_rows.max(1),
        codes,
        form,
        scales,
        zeros,
    };
    let decoder: Box<dyn Decoder> = if swizzled {
        let view: Arc<dyn View> = Arc::new(Swizzled {
            place: Place::whole(1),
            rows,
            groups,
        });
        Box::new(Derived::new(decoder, parts.len(), vec![(1, view)]))
    } else {
        Box::new(decoder)
    };
    finished(
        cx,
        name,
        Made {
            shape,
            parts,
            decoder,
        },
        data("shape"),
        beside("act_pre_scale"),
    )
}

/// A weight in the basis of inputs that were multiplied, if they were.
struct Made {
    shape: Shape,
    parts: Vec<(&'static str, usize)>,
    decoder: Box<dyn Decoder>,
}

/// The weight, in the basis of the inputs as they come; its shape must be the one that is said of it, if one is.
fn finished(
    cx: &Context<'_>,
    name: &str,
    made: Made,
    said: Option<&Json>,
    factors: Option<usize>,
) -> Result<Weight> {
    let Made {
        shape,
        mut parts,
        decoder,
    } = made;
    let same = |sizes: &Json| {
        sizes.as_array().is_some_and(|sizes| {
            sizes
                .iter()
                .map(Json::as_u64)
                .eq(shape.iter().map(|n| Some(*n)))
        })
    };
    if said.is_some_and(|sizes| !same(sizes)) {
        let what = format!(
            "its codes make {shape:?}, and are said to make {}: turned or filled up; make it contiguous before saving",
            said.unwrap_or(&Json::Null)
        );
        return Err(unsupported(cx.info(parts[0].1), what));
    }
    let Some(factors) = factors else {
        return Ok(cx.weight_by("torchao", name, &shape, &parts, decoder.into()));
    };
    let (info, cols) = (cx.info(factors), shape.last().copied().unwrap_or_default());
    let dtype = plain(info).filter(|d| matches!(d, Dtype::F32 | Dtype::F16 | Dtype::BF16));
    let (Some(dtype), true) = (dtype, info.elements() == cols) else {
        let what = format!(
            "{} {:?} is not a factor for each of {cols} columns",
            info.encoding,
            info.shape.as_slice()
        );
        return Err(malformed(info, what));
    };
    parts.push(("act_pre_scale", factors));
    let decoder = Smoothed {
        inner: decoder,
        columns: Some((parts.len() - 1, dtype)),
        low_rank: None,
    };
    Ok(cx.weight("torchao", name, &shape, &parts, decoder))
}

/// Scales of groups along the rows, stored as bytes of this type or as it.
fn grouped(
    cx: &Context<'_>,
    scale: usize,
    shape: &[u64],
    dtype: Dtype,
    group: Option<&Json>,
    swizzled: bool,
) -> Result<Factors> {
    let info = cx.info(scale);
    let (rows, cols, _) = stack(shape);
    let group = group.and_then(Json::as_u64).filter(|group| *group > 0);
    let group = group.ok_or_else(|| malformed(info, "its block_size is missing"))?;
    let stored = if swizzled {
        Swizzled::bytes(rows, cols / group)
    } else {
        rows.checked_mul(cols / group)
    };
    let fits = cols.is_multiple_of(group) && cols > 0 && stored == Some(info.elements());
    if !fits || !plain(info).is_some_and(|found| found == dtype || found == Dtype::U8) {
        let what = format!(
            "{} {:?} does not scale {shape:?} by groups of {group}",
            info.encoding,
            info.shape.as_slice()
        );
        return Err(malformed(info, what));
    }
    Ok(Factors::per_group(1, dtype, group))
}

/// The sides of a block, of which the last two count.
fn sides(block: Option<&Json>) -> Option<(u64, u64)> {
    match block?.as_array()?.as_slice() {
        [.., high, wide] => Some((high.as_u64()?, wide.as_u64()?)),
        _ => None,
    }
}

/// The name in `{"_type": "torch.dtype", "_data": name}`.
fn dtype_name(said: &Json) -> Option<&str> {
    said.as_str().or_else(|| said.get("_data")?.as_str())
}
