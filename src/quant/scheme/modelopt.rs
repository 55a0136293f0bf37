//! ModelOpt's INT4 (`W4A16_AWQ`, `W4A8_AWQ`): two rows in one.
//!
//! Written by ModelOpt. Recognised by U8 `X.weight` with a float `X.weight_scale` that has twice its rows.
//!
//! `X.weight` is U8 `[…, out / 2, in]`: byte `[k, i]` holds row `2k` in its lower nibble and row `2k + 1` in its upper one, in
//! two's complement. `X.weight_scale` is `[…, out, in / group]`, `X.pre_quant_scale` `[in]`.
//! `w = code * scale * pre_quant_scale`. `X.weight_scale_2` of `W4A8_AWQ` is the step of the FP8 values that its kernels
//! multiply in; it is not a factor of the weight.
//!
//! Source: ModelOpt 0.47, `pack_int4_in_uint8` of `export/quant_utils.py` (the library packs such weights and has no code
//! that unpacks them: multiplications have the order of its other schemes).

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::base::kernel::{CodePacking, CodeValue, Formula};
use crate::plan::decode::{Codes, Factors, Grouped, NibbleRows, Scales, Zeros};
use crate::quant::settings::KnownValues::{Any, GroupSize, Texts};
use crate::quant::settings::{KnownValues, SchemeSettings};
use crate::read::catalog::quote;

use super::context::{Context, not_known, stem};
use super::granularity::filled;
use super::module_names::module_of_weight;
use super::quantized_layers::{algorithm, layer};
use super::smooth;
use super::stated::{Alternatives, ScaleNumbers, StatedGranularity, StatedNumbers};
use super::{MODELOPT, Weight};

/// The values of 4-bit codes in two's complement.
pub(super) const SIGNED_NIBBLES: [f32; 16] = [
    0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, -8.0, -7.0, -6.0, -5.0, -4.0, -3.0, -2.0, -1.0,
];

/// The settings of configurations of ModelOpt and TensorRT-LLM that are known.
pub(super) static SETTINGS: SchemeSettings = SchemeSettings {
    methods: &["modelopt", "modelopt_fp4", "modelopt_mixed"],
    keys: &[
        ("quant_algo", ALGORITHMS),
        ("kv_cache_quant_method", Any),
        ("group_size", GroupSize),
        ("awq_block_size", Any),
        ("has_zero_point", Any),
        ("pre_quant_scale", Any),
        ("smoothquant_val", Any),
        ("clamp_val", Any),
        ("use_meta_recipe", Any),
        ("targets", Any),
        ("quantized_layers.*.quant_algo", ALGORITHMS),
        ("quantized_layers.*.group_size", Any),
        ("quantized_layers.*.awq_block_size", Any),
        ("quantized_layers.*.has_zero_point", Any),
        ("quantized_layers.*.pre_quant_scale", Any),
    ],
};

const ALGORITHMS: KnownValues = Texts(&[
    "FP8",
    "FP8_PER_CHANNEL_PER_TOKEN",
    "FP8_PB_REAL",
    "FP8_PB_WO",
    "MIXED_PRECISION",
    "MXFP4",
    "MXFP8",
    "NVFP4",
    "NVFP4_AWQ",
    "NVFP4_SVD",
    "W4A16_AWQ",
    "W4A16_NVFP4",
    "W4A8_AWQ",
    "W4A8_MXFP4_FP8",
    "W4A8_NVFP4_FP8",
    "W8A16",
    "W8A8_SQ_PER_CHANNEL",
]);

/// The algorithms that smooth weights.
static SMOOTHED: &[&str] = &[
    "NVFP4_AWQ",
    "NVFP4_SVD",
    "W4A16_AWQ",
    "W4A8_AWQ",
    "W8A8_SQ_PER_CHANNEL",
];

/// The numbers of the algorithm of a weight, or of all.
pub(super) fn stated(cx: &Context<'_>, name: &str) -> Alternatives {
    let module = module_of_weight(name);
    let (own, algorithm) = (layer(cx, module), algorithm(cx, module));
    let own_size = |key: &str| own.and_then(|own| own.get(key)?.as_u64());
    // a layer with an algorithm of its own may have one of another size of groups
    let is_of_all = own.is_none_or(|own| own.get("quant_algo").is_none())
        || algorithm.and_then(fixed_size).is_none();
    let is_default = is_default_size(cx, algorithm);
    let of_all = |key: &str| {
        let size = || cx.config.get(key)?.as_u64();
        (is_of_all && !is_default).then(size)?
    };
    let size = |key: &str| own_size(key).or_else(|| of_all(key));
    let size = size("group_size").or_else(|| size("awq_block_size"));
    let size = size.filter(|size| *size > 0);
    let numbers = algorithm.and_then(|algorithm| of_algorithm(algorithm, size));
    numbers.map(|numbers| vec![numbers]).into_iter().collect()
}

/// The size of groups that an algorithm has in all readers; `None` where it is a setting.
fn fixed_size(algorithm: &str) -> Option<u64> {
    match algorithm {
        "MXFP8" | "MXFP4" | "W4A8_MXFP4_FP8" => Some(32),
        "NVFP4" | "NVFP4_AWQ" | "NVFP4_SVD" | "W4A16_NVFP4" | "W4A8_NVFP4_FP8" => Some(16),
        _ => None,
    }
}

/// Whether the configured `group_size` says nothing: TensorRT-LLM's `QuantConfig` writes all of its fields, with the default 128, and
/// its layers of NVFP4 have groups of 16 whatever it is (`models/modeling_utils.py`; `scaling_vector_size` of `quantization/layers.py`).
fn is_default_size(cx: &Context<'_>, algorithm: Option<&str>) -> bool {
    const DEFAULT: u64 = 128;
    // a field of it that ModelOpt's own configurations lack
    let is_its_own = cx.config.get("smoothquant_val").is_some();
    let size = cx.config.get("group_size").and_then(|size| size.as_u64());
    is_its_own && size == Some(DEFAULT) && algorithm.and_then(fixed_size).is_some()
}

/// Whether a setting of a weight's layer, or else of all, is on.
fn is_on(cx: &Context<'_>, module: &str, key: &str) -> bool {
    let own = layer(cx, module).and_then(|own| own.get(key));
    own.or_else(|| cx.config.get(key)) == Some(&serde_json::Value::Bool(true))
}

/// The setting that demands a part which a weight lacks. A factor of smoothing is folded into the norm in front of a layer where there is
/// one, so that weights without it are read, with a warning where none has it.
pub(super) fn lacks_part(cx: &Context<'_>, weight: &Weight) -> Option<String> {
    let module = module_of_weight(&weight.name);
    if !cx.config.is_of(&MODELOPT[..3]) || weight.is_unscaled() {
        return None;
    }
    let has = |role: &str| weight.parts.iter().any(|part| part.role.contains(role));
    if is_on(cx, module, "has_zero_point") && !has("zero") {
        return Some(format!(
            "`has_zero_point`: true of {}, and it has no zero points",
            cx.config.place()
        ));
    }
    if !smooth::has_factors(cx) {
        if is_on(cx, module, "pre_quant_scale") {
            cx.assume(format!(
                "`pre_quant_scale`: true of {}, and no weight has one; weights are made without it",
                cx.config.place()
            ));
        } else if let Some(name) = algorithm(cx, module).filter(|name| SMOOTHED.contains(name)) {
            cx.note(format!(
                "{} divides columns of weights by `pre_quant_scale`, and no weight has one: it is taken to be part of the norms"
                , quote(name)
            ));
        }
    }
    None
}

/// The numbers of an algorithm; `size` is the configured one of groups.
fn of_algorithm(algorithm: &str, size: Option<u64>) -> Option<StatedNumbers> {
    use ScaleNumbers::{Exponents, Float8, Floats};
    let fixed = || {
        let size = size.or_else(|| fixed_size(algorithm));
        size.map(StatedGranularity::Group)
    };
    let float8 = StatedNumbers::float8("E4M3");
    let float4 = StatedNumbers::floats(Some(4));
    Some(match algorithm {
        "FP8_PER_CHANNEL_PER_TOKEN" => float8
            .scaled_by(Floats)
            .with_scales(Some(StatedGranularity::Channel)),
        "FP8" | "FP8_PB_REAL" | "FP8_PB_WO" => float8.scaled_by(Floats),
        "MXFP8" => float8.scaled_by(Exponents).with_scales(fixed()),
        "MXFP4" | "W4A8_MXFP4_FP8" => float4.scaled_by(Exponents).with_scales(fixed()),
        "NVFP4" | "NVFP4_AWQ" | "NVFP4_SVD" | "W4A16_NVFP4" | "W4A8_NVFP4_FP8" => {
            float4.scaled_by(Float8).with_scales(fixed())
        }
        "W4A16_AWQ" | "W4A8_AWQ" => StatedNumbers::integers(Some(4))
            .packed()
            .scaled_by(Floats)
            .with_scales(size.map(StatedGranularity::Group)),
        "W8A16" | "W8A8_SQ_PER_CHANNEL" => StatedNumbers::integers(Some(8)).scaled_by(Floats),
        // each layer has its own
        _ => return None,
    })
}

pub(super) fn claim(cx: &Context<'_>, tensor: usize) -> Result<Option<Weight>> {
    let info = cx.info(tensor);
    let (Some(stem), Some(Dtype::U8)) = (stem(info, ".weight"), cx.dtype(tensor)) else {
        return Ok(None);
    };
    let Some(scale) = cx.sibling(stem, ".weight_scale") else {
        return Ok(None);
    };
    let Some(dtype @ (Dtype::F32 | Dtype::F16 | Dtype::BF16)) = cx.dtype(scale) else {
        return Ok(None);
    };
    let (shape, scales) = (&info.shape[..], cx.info(scale));
    let last = shape.len().saturating_sub(1);
    if last == 0
        || scales.shape.len() != shape.len()
        // twice the rows of the codes: what distinguishes this packing along the outputs from FP4 along the inputs
        || Some(scales.shape[last - 1]) != shape[last - 1].checked_mul(2)
    {
        return Ok(None);
    }
    filled(info, shape)?;
    filled(scales, &scales.shape)?;
    let (cols, groups) = (shape[last], scales.shape[last]);
    if scales.shape[..last - 1] != shape[..last - 1] || !cols.is_multiple_of(groups) {
        let what = format!(
            "{} {:?} does not scale {} {:?}",
            scales.encoding, scales.shape, info.encoding, info.shape
        );
        return Err(not_known(scales, what));
    }
    let mut parts = vec![("codes", tensor), ("scale", scale)];
    // no other algorithm has one, and none has several: such a tensor is left over
    let step = cx.sibling(stem, ".weight_scale_2").filter(|&step| {
        cx.info(step).elements() == 1 && algorithm(cx, stem).is_none_or(|name| name == "W4A8_AWQ")
    });
    parts.extend(step.map(|step| ("activation_step", step)));
    if ["group_size", "awq_block_size"]
        .iter()
        .all(|key| cx.config.get(key).is_none())
        && !cx.config.is_empty()
    {
        cx.note(format!(
            "ModelOpt's INT4 in groups of {} columns, by the shapes: the configuration states no size",
            cols / groups
        ));
    }
    let mut logical = info.shape.clone();
    // does not overflow: it is the number of rows of the scales
    logical[last - 1] *= 2;
    let inner = Grouped {
        rows: logical[..last].iter().product(),
        cols,
        matrix_rows: logical[last - 1],
        codes: Codes::new(
            CodePacking::LowNibbles,
            CodeValue::Table(Box::new(SIGNED_NIBBLES)),
            cols,
        ),
        formula: Formula::Scale,
        scales: Scales::Stored(Factors::per_group(1, dtype, cols / groups)),
        zeros: Zeros::None,
    };
    smooth::weight(
        cx,
        "int4",
        &info.name,
        &logical,
        &parts,
        NibbleRows { inner },
    )
    .map(Some)
}
