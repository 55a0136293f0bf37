//! torchao's tensor classes, flattened into safetensors files or pickled by `torch.save`.
//!
//! Written by torchao and transformers. Recognised by a tensor `m._weight_qdata` (names before 0.14: `CODES`) and a metadata
//! text under the weight's name, `m.weight`: `{"_type": class, "_data": {attributes}, "_tensor_data_names": [...]}`. Pickled
//! tensors of these classes are listed in the same way, with their shape.
//!
//! | class | formula |
//! |---|---|
//! | `Float8Tensor` | `q * scale` |
//! | `Int8Tensor`, `IntxUnpackedToInt8Tensor`, `AffineQuantizedTensor` | `(q - zero) * scale` |
//! | `MXTensor` | `code * 2^(s - 127)`, E8M0 scales |
//! | `NVFP4Tensor` | `code * (scale * per_tensor_scale)`, E4M3 scales |
//! | the parts of `int4.rs` | see there |
//!
//! Scales of `MXTensor` and `NVFP4Tensor` may be swizzled (`swizzled_scales.rs`). With `act_pre_scale`, columns are multiplied
//! by it at the end.
//!
//! Refused: a part that `_tensor_data_names` lists and the file lacks; unknown attributes whose names say rotation and the
//! like; transposed tensors, which torchao only makes inside a computation; classes whose bytes only one kernel can read
//! (`IntxOpaqueTensor`); a shape that contradicts the codes; unknown classes.
//!
//! Sources: torchao 0.18 `prototype/safetensors/*.py`, `quantization/quantize_/workflows/`,
//! `prototype/mx_formats/{mx,nvfp4}_tensor.py` and `utils.py` (`to_blocked`), `quantization/quant_primitives.py`.

mod description;
mod flat_tensor;
mod int4;
mod pre_scale;
mod preshuffled;
mod preshuffled_codes;
mod tinygemm_tiles;

use std::sync::Arc;

use serde_json::Value as Json;

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::base::kernel::{CodePacking, CodeValue, E2M1_VALUES, Formula};
use crate::plan::Decoder;
use crate::plan::decode::{
    Codes, Composite, Factors, GlobalScale, Grouped, PartOffset, PartView, Scales, Zeros,
};
use crate::quant::settings::KnownValues::{Any, Texts, Unrotated};
use crate::quant::settings::SchemeSettings;
use crate::read::catalog::Shape;
use crate::read::catalog::metadata;

use super::Weight;
use super::context::{Context, missing, not_known, plain, stem, unsupported};
use super::granularity::{are_of_blocks, factors, other_scales, stack};
use super::stated::ScaleNumbers;
use super::swizzled_scales::SwizzledScales;
use description::{dtype_name, sides};
use pre_scale::{TorchaoWeight, finish};

/// Suffixes of the codes: the current one, then the suffixes of classes before 0.14.
static CODES: &[&str] = &[
    "_qdata",
    "_packed_weights",
    "_int_data",
    "_packed_weight",
    "_float8_data",
];

/// Classes whose bytes only their kernels can read, and the reason.
static KERNELS: &[(&str, &str)] = &[(
    "IntxOpaqueTensor",
    "in which codes, scales and sums are packed together for the kernels of one CPU; save it before it is packed, as an \
     IntxUnpackedToInt8Tensor",
)];

/// The settings of configurations of torchao that are known: each weight describes itself.
pub(super) static SETTINGS: SchemeSettings = SchemeSettings {
    methods: &["torchao"],
    keys: &[
        ("quant_type", Texts(description::CONFIGURATIONS)),
        ("quant_type.*._type", Texts(description::CONFIGURATIONS)),
        ("quant_type.*._version", Any),
        ("quant_type.*._data.*", Unrotated),
        ("quant_type_kwargs", Any),
        ("include_input_output_embeddings", Any),
        ("untie_embedding_weights", Any),
    ],
};

pub(super) fn claim(cx: &Context<'_>, tensor: usize) -> Result<Option<Weight>> {
    let info = cx.info(tensor);
    // the names are attributes of the tensor class, by which torchao flattens it
    let Some(flat) = CODES.iter().find_map(|codes| stem(info, codes)) else {
        return Ok(None);
    };
    // `m._weight` is flattened from `m.weight`
    // `m.weight` becomes `m._weight_qdata`: the prefix of the attribute's name is an underscore and the parameter's
    // own name
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
    let Some(metadata::Value::Text(text)) = cx.metadata_value(&name) else {
        // other libraries may use such a suffix; only a configured method makes the description mandatory
        return if cx.config.is(&["torchao"]) {
            Err(missing(info, &format!("description {name}")))
        } else {
            Ok(None)
        };
    };
    // the tree of the description is dropped with this weight's claim
    let _tree = cx.budget.scope();
    let description = description::parsed(cx, info, flat, text)?;
    let weight = weight(cx, tensor, &name, flat, &description)?;
    let parts = weight.parts.iter().map(|part| part.tensor);
    description::check_listed(cx, info, flat, &description, parts)?;
    Ok(Some(weight))
}

fn weight(
    cx: &Context<'_>,
    tensor: usize,
    name: &str,
    flat: &str,
    description: &Json,
) -> Result<Weight> {
    let info = cx.info(tensor);
    let class = description
        .get("_type")
        .and_then(Json::as_str)
        .unwrap_or_default();
    let data = |key: &str| description.get("_data").and_then(|data| data.get(key));
    let sibling = |key: &str| cx.sibling(flat, &["_", key].concat());
    if let Some((_, why)) = KERNELS.iter().find(|(known, _)| *known == class) {
        return Err(unsupported(info, format!("torchao's {class}, {why}")));
    }
    if data("transposed").is_some_and(|on| on.as_bool() != Some(false)) {
        return Err(unsupported(
            info,
            format!("{class} is transposed, which torchao only does inside a computation"),
        ));
    }
    // 2 is `ZeroPointDomain.FLOAT`
    let floats =
        data("zero_point_domain").and_then(|domain| domain.get("_data")?.as_u64()) == Some(2);
    if class == "AffineQuantizedTensor" && floats != info.name.ends_with("_packed_weight") {
        return Err(unsupported(
            info,
            format!("{class}: the zero point domain does not fit the codes"),
        ));
    }
    // layouts of one kernel each, in files of their own
    if let Some(claim) = int4::class(class, &info.name) {
        let made = claim(
            cx,
            &flat_tensor::TorchaoTensor {
                info,
                tensor,
                flat,
                description,
                class,
            },
        )?;
        return finish(cx, name, made, data("shape"), sibling("act_pre_scale"));
    }
    let swizzled = data("is_swizzled_scales").is_some_and(|on| on.as_bool() != Some(false));
    let scale = sibling("scale").ok_or_else(|| missing(info, "scale"))?;
    let mut parts = vec![("codes", tensor), ("scale", scale)];
    let dtype = plain(info);
    let not = || {
        not_known(
            info,
            format!("{class} with codes of dtype {}", info.encoding),
        )
    };
    // U8 counts bytes of two codes, F4 counts codes
    let halves = dtype == Some(Dtype::U8);
    let nibbles = || {
        (
            CodePacking::LowNibbles,
            CodeValue::Table(Box::new(E2M1_VALUES)),
        )
    };
    let ((packing, value), block) = match class {
        "Float8Tensor" | "Int8Tensor" | "IntxUnpackedToInt8Tensor" => {
            let whole = class != "Float8Tensor";
            let value = dtype
                .filter(|d| *d != Dtype::U8 && whole == (*d == Dtype::I8))
                .and_then(CodeValue::of);
            ((CodePacking::Bytes, value.ok_or_else(not)?), None)
        }
        "AffineQuantizedTensor" => {
            let value = dtype.and_then(CodeValue::of);
            ((CodePacking::Bytes, value.ok_or_else(not)?), None)
        }
        "MXTensor" => match (data("elem_dtype").and_then(dtype_name), dtype) {
            (Some("float8_e4m3fn"), Some(Dtype::F8_E4M3)) => {
                ((CodePacking::Bytes, CodeValue::E4m3), Some(Dtype::F8_E8M0))
            }
            (Some("float8_e5m2"), Some(Dtype::F8_E5M2)) => {
                ((CodePacking::Bytes, CodeValue::E5m2), Some(Dtype::F8_E8M0))
            }
            (Some("float4_e2m1fn_x2"), Some(Dtype::U8 | Dtype::F4)) => {
                (nibbles(), Some(Dtype::F8_E8M0))
            }
            (elements, _) => {
                return Err(unsupported(
                    info,
                    format!(
                        "{class} of {} stored in {} is not supported",
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
                format!("torchao class {other:?} is not supported"),
            ));
        }
    };
    let mut shape = Shape::from_slice(&info.shape);
    if let (Some(_), true, Some(cols)) = (
        block,
        halves && packing == CodePacking::LowNibbles,
        shape.last_mut(),
    ) {
        *cols = cols.checked_mul(2).ok_or_else(not)?;
    }
    let (rows, cols, matrix_rows) = stack(&shape);
    let stored = match block {
        Some(dtype) => grouped(cx, scale, &shape, dtype, data("block_size"), swizzled)?,
        // the block layout of cuBLAS exists for scales of one byte only
        None if swizzled => {
            return Err(unsupported(info, format!("{class} with swizzled scales")));
        }
        None => {
            let block = sides(data("block_size"));
            if !plain(cx.info(scale)).is_some_and(|dtype| ScaleNumbers::Floats.are_stored_in(dtype))
            {
                return Err(other_scales(cx, scale, &shape, "scales in floats"));
            }
            let stored = factors(cx, 1, scale, &shape, block)?;
            if let Some((high, wide)) = block
                && (!are_of_blocks(&stored, &shape, (high, wide))
                    // groups within a row divide it, unlike blocks of matrices
                    || (high == 1 && !cols.is_multiple_of(wide)))
            {
                let what = format!("a scale for each block of {high} by {wide}");
                return Err(other_scales(cx, scale, &shape, &what));
            }
            stored
        }
    };
    // symmetric quantisation stores no zero points
    let (mut formula, mut zeros) = (Formula::Scale, Zeros::None);
    if let Some(zero) = sibling("zero_point").filter(|_| block.is_none()) {
        let there = cx.info(zero);
        let kind = plain(there).filter(|d| {
            matches!(
                d,
                Dtype::I8 | Dtype::I32 | Dtype::I64 | Dtype::F32 | Dtype::F16 | Dtype::BF16
            )
        });
        let (Some(dtype), true) = (kind, there.shape == cx.info(scale).shape) else {
            return Err(not_known(there, "zero points do not fit the scales"));
        };
        parts.push(("zero_point", zero));
        (formula, zeros) = (
            Formula::ZeroScale,
            Zeros::Stored(Factors {
                part: 2,
                dtype,
                ..stored.clone()
            }),
        );
    }
    let scales = match sibling("per_tensor_scale") {
        Some(global) => {
            let there = cx.info(global);
            if plain(there) != Some(Dtype::F32) || there.elements() != 1 {
                return Err(not_known(there, "expected a single F32"));
            }
            parts.push(("per_tensor_scale", global));
            Scales::Times(
                stored,
                GlobalScale {
                    part: parts.len() - 1,
                    dtype: Dtype::F32,
                    count: 1,
                },
            )
        }
        None => Scales::Stored(stored),
    };
    // parts that only the arithmetic with quantised inputs needs
    for key in [
        "act_quant_scale",
        "act_quant_zero_point",
        "act_per_tensor_scale",
    ] {
        // claimed although no decoder reads them, or they would be copied as plain tensors
        parts.extend(sibling(key).map(|part| ("activation", part)));
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
        formula,
        scales,
        zeros,
    };
    let decoder: Box<dyn Decoder> = if swizzled {
        // a view puts the scales into rows, so that the decoder for plain scales serves both
        let view: Arc<dyn PartView> = Arc::new(SwizzledScales {
            place: PartOffset::whole(1),
            rows,
            groups,
        });
        Box::new(Composite::new(decoder, parts.len(), vec![(1, view)]))
    } else {
        Box::new(decoder)
    };
    finish(
        cx,
        name,
        TorchaoWeight {
            shape,
            parts,
            decoder,
        },
        data("shape"),
        sibling("act_pre_scale"),
    )
}

/// The granularity of scales per group along the rows, stored in `dtype` or as U8.
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
    let group = group.ok_or_else(|| not_known(info, "block_size is missing"))?;
    let stored = if swizzled {
        SwizzledScales::bytes(rows, cols / group)
    } else {
        rows.checked_mul(cols / group)
    };
    // rows of groups; or blocks of tiles, or tiles that are padded in both dimensions
    let is_shaped = match (swizzled, info.shape.split_last()) {
        (false, Some((last, leading))) => {
            *last == cols / group && *leading == shape[..shape.len() - 1]
        }
        (true, _) if info.shape.len() == 2 && shape.len() == 2 => {
            let shape = [Some(info.shape[0]), Some(info.shape[1])];
            let is = |tile| SwizzledScales::sides(rows, cols / group, tile) == shape;
            is([32, 16]) || is([128, 4])
        }
        (true, _) => true,
        (false, None) => false,
    };
    let fits =
        cols.is_multiple_of(group) && cols > 0 && is_shaped && stored == Some(info.elements());
    if !fits || !plain(info).is_some_and(|found| found == dtype || found == Dtype::U8) {
        let what = format!(
            "{} {:?} does not scale {shape:?} by groups of {group}",
            info.encoding,
            info.shape.as_slice()
        );
        return Err(not_known(info, what));
    }
    Ok(Factors::per_group(1, dtype, group))
}
