//! HQQ: `w = (code - zero) * scale`, reshaped.
//!
//! Written by hqq, transformers and `torch.save`. Recognised by `X.W_q` with a sibling scale. The settings (`nbits`, `axis`,
//! `group_size`, `shape`, `packing`, …) are tensors of one value or a text each (safetensors), or values of the pickle
//! (PyTorch), maybe in a dict `meta`.
//!
//! The weight is seen as a matrix whose rows (axis 1) or columns (axis 0) are its groups. The rows are packed in planes: the
//! first half of them in the high nibbles, the second half in the low ones; likewise for 2 bits and 1. Codes of 3 bits are ten
//! to a 32-bit word, from bit 27 down, with padding rows. Codes of 5 and 6 bits take a byte each, 1.58 bits are stored in 2.
//! Scales and zero points are F32, F16 or BF16, one per group, or quantised themselves (`nested.rs`).
//!
//! Refused: settings that contradict each other or the shapes.
//!
//! Source: hqq `core/bitpack.py`, `core/quantize.py` (`Quantizer`, `HQQLinear.state_dict`), `core/utils.py`.

mod matrix;
mod nested;

use std::sync::Arc;

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::base::kernel::Formula;
use crate::plan::decode::{Composite, PartOffset, PartSource};
use crate::quant::settings::KnownValues::{Any, Count, Number};
use crate::quant::settings::SchemeSettings;
use crate::read::catalog::TensorInfo;

use super::Weight;
use super::attributes::Attributes;
use super::context::{Context, missing, not_known, plain, stem};
use matrix::HqqMatrix;

/// Settings: siblings of the codes that no decoder reads.
static DESCRIPTORS: &[&str] = &[
    "nbits",
    "group_size",
    "shape",
    "axis",
    "packing",
    "unpack_view_dtype",
    "view_as_float",
    "quant_scale",
    "quant_zero",
    "compute_dtype",
    "offload_meta",
    "encoded_state_dict",
    "stores_quant_config",
    "channel_wise",
    "optimize",
    "round_zero",
];

/// Suffixes of the scales: values, codes, or zero points and scales in one tensor.
static SCALES: &[&str] = &[".scale", ".scale_q", ".zero_scale"];

/// The settings of configurations of HQQ that are known: weights describe themselves, except for the axis.
pub(super) static SETTINGS: SchemeSettings = SchemeSettings {
    methods: &["hqq"],
    keys: &[
        ("quant_config.offload_meta", Any),
        ("quant_config.scale_quant_params", Any),
        ("quant_config.zero_quant_params", Any),
        ("quant_config.weight_quant_params.axis", Count),
        ("quant_config.weight_quant_params.channel_wise", Any),
        ("quant_config.weight_quant_params.group_size", Count),
        ("quant_config.weight_quant_params.nbits", Number),
        ("quant_config.weight_quant_params.optimize", Any),
        ("quant_config.weight_quant_params.round_zero", Any),
        ("quant_config.weight_quant_params.view_as_float", Any),
    ],
};

pub(super) fn claim(cx: &Context<'_>, tensor: usize) -> Result<Option<Weight>> {
    let info = cx.info(tensor);
    let Some(module) = stem(info, ".W_q") else {
        return Ok(None);
    };
    let meta = [module, ".meta"].concat();
    let found = [module, &meta]
        .into_iter()
        .find(|prefix| cx.first_sibling(prefix, SCALES).is_some());
    let Some(prefix) = found else {
        // SINQ names its codes `W_q` too (`unsupported.rs`)
        return if cx.position(&meta).is_some() {
            Ok(None)
        } else {
            Err(missing(info, "scale"))
        };
    };
    weight(cx, tensor, module, &Attributes { cx, prefix }).map(Some)
}

fn weight(
    cx: &Context<'_>,
    tensor: usize,
    module: &str,
    attributes: &Attributes<'_, '_>,
) -> Result<Weight> {
    let info = cx.info(tensor);
    // transformers stores the axis in the configuration and not with the weight
    let configured = || cx.config.integer("quant_config.weight_quant_params.axis");
    let matrix = HqqMatrix::read(
        info,
        attributes,
        attributes.integer("axis")?.or_else(configured),
    )?;
    is_as_configured(cx, info, attributes)?;
    let whole_numbers = matches!(
        plain(info),
        Some(Dtype::U8 | Dtype::I8 | Dtype::I32 | Dtype::U32)
    );
    if !whole_numbers
        && attributes
            .integer("view_as_float")?
            .is_none_or(|on| on == 0)
    {
        return Err(not_known(
            info,
            format!("dtype {} instead of packed codes", info.encoding),
        ));
    }
    // in bytes, since codes may be viewed as floats
    matrix.hold(info, info.nbytes())?;
    let mut parts = vec![("codes", tensor)];
    let scale = nested::numbers(
        cx,
        info,
        attributes,
        nested::SCALE,
        matrix.factors(),
        &mut parts,
    )?;
    let zero = nested::numbers(
        cx,
        info,
        attributes,
        nested::ZERO,
        matrix.factors(),
        &mut parts,
    )?;
    let inner = matrix.decoder(
        formula(cx, attributes, scale.native, zero.native)?,
        scale.dtype,
        zero.dtype,
    );
    attributes.know(DESCRIPTORS);
    let descriptors = DESCRIPTORS
        .iter()
        .flat_map(|&key| attributes.tensors(key, module).map(move |t| (key, t)));
    parts.extend(descriptors);
    // the settings of nested matrices are claimed too, or they would be copied as tensors
    for role in [nested::SCALE, nested::ZERO] {
        let prefix = role.prefix(attributes);
        let own = Attributes {
            cx,
            prefix: &prefix,
        };
        own.know(DESCRIPTORS);
        parts.extend(
            DESCRIPTORS
                .iter()
                .filter_map(|&key| Some((key, own.tensor(key)?))),
        );
    }
    let name = [module, ".weight"].concat();
    let decoder = match (&scale.source, &zero.source) {
        (
            // stored factors in their places need no view
            PartSource::Stored(PartOffset { part: 1, start: 0 }),
            PartSource::Stored(PartOffset { part: 2, start: 0 }),
        ) => inner,
        _ => {
            let parts = vec![
                PartSource::Stored(PartOffset::whole(0)),
                scale.source,
                zero.source,
            ];
            Arc::new(Composite { inner, parts })
        }
    };
    Ok(cx.weight_by("hqq", name, &matrix.shape, &parts, decoder))
}

/// Refuses a weight whose own settings differ from the configuration: one of the two is of another file.
fn is_as_configured(
    cx: &Context<'_>,
    info: &TensorInfo,
    attributes: &Attributes<'_, '_>,
) -> Result<()> {
    if !cx.config.is(&["hqq"]) {
        return Ok(());
    }
    let settings = cx.config.get("quant_config.weight_quant_params");
    for key in ["nbits", "group_size", "axis"] {
        let stated = settings.and_then(|settings| settings.get(key)?.as_f64());
        let (Some(stated), Some(found)) = (stated, attributes.number(key)?) else {
            continue;
        };
        // 1.58 bits have no exact representation
        if (stated - found).abs() > 1e-3 {
            let place = cx.config.place();
            let what = format!("{place} states {key}: {stated}, and its own {key} is {found}");
            return Err(not_known(info, what));
        }
    }
    Ok(())
}

/// The formula: in F32, or with the rounding of the reference.
fn formula(
    cx: &Context<'_>,
    attributes: &Attributes<'_, '_>,
    scale: Dtype,
    zero: Dtype,
) -> Result<Formula> {
    if cx.native_rounding {
        native_rounding(attributes, scale, zero)
    } else {
        Ok(Formula::ZeroScale)
    }
}

/// The formula with the reference's rounding: PyTorch computes in the promotion of `compute_dtype`, the codes' dtype, and the
/// dtypes of zero points and scales.
fn native_rounding(attributes: &Attributes<'_, '_>, scale: Dtype, zero: Dtype) -> Result<Formula> {
    let compute = attributes.text("compute_dtype")?;
    let compute = match compute
        .as_deref()
        // F16 is hqq's default of `compute_dtype`
        .map_or("float16", |name| name.trim_start_matches("torch."))
    {
        "float16" | "half" => Dtype::F16,
        "bfloat16" => Dtype::BF16,
        _ => Dtype::F32,
    };
    Ok(match [compute, scale, zero] {
        [Dtype::F16, Dtype::F16, Dtype::F16] => Formula::ZeroScaleF16,
        [Dtype::BF16, Dtype::BF16, Dtype::BF16] => Formula::ZeroScaleBf16,
        _ => Formula::ZeroScale,
    })
}
