//! Quark's configuration of a layer's weight.

use serde_json::Value as Json;

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::quant::scheme::context::{Context, missing_by, not_known, plain, unsupported};
use crate::quant::scheme::layer_configs::LayerConfigs;
use crate::quant::scheme::module_names::module_of_weight;
use crate::quant::scheme::stated::{Alternatives, ScaleNumbers, StatedGranularity, StatedNumbers};
use crate::quant::settings::is_off;
use crate::read::catalog::{TensorInfo, quote};

/// The steps in which a weight was quantised: one, or two.
pub(super) fn steps<'c>(cx: &Context<'c>, name: &str) -> Vec<&'c Json> {
    let layer = module_of_weight(name);
    let weight = match cx.sound(layers(cx).first(layer, cx.budget)).flatten() {
        // a layer's configuration replaces the global one, even if it does not quantise the weight
        Some((_, config)) => config.get("weight"),
        None => cx.config.get("global_quant_config.weight"),
    };
    match weight {
        // several steps are a list, a single one is an object
        Some(Json::Array(steps)) => steps.iter().take(2).collect(),
        one => one.into_iter().filter(|spec| !spec.is_null()).collect(),
    }
}

/// The settings of a layer of its own.
pub(in crate::quant::scheme) fn settings_of_module<'c>(
    cx: &Context<'c>,
    module: &str,
) -> Option<&'c Json> {
    let row = cx.sound(row_of_module(cx, module)).flatten()?;
    Some(row.1)
}

/// The name or pattern of `layer_quant_config` that is for a layer.
pub(in crate::quant::scheme) fn entry_of_module<'c>(
    cx: &Context<'c>,
    module: &str,
) -> Result<Option<&'c str>> {
    Ok(row_of_module(cx, module)?.map(|(name, _)| name))
}

fn row_of_module<'c>(cx: &Context<'c>, module: &str) -> Result<Option<(&'c str, &'c Json)>> {
    match cx.config.is(&["quark"]) {
        true => layers(cx).first(module, cx.budget),
        false => Ok(None),
    }
}

/// The settings of layers, which are read once.
fn layers<'x, 'c>(cx: &'x Context<'c>) -> &'x LayerConfigs<'c> {
    cx.caches.layers.get_or_init(|| {
        cx.sound(LayerConfigs::new(cx.config, cx.budget))
            .unwrap_or_default()
    })
}

/// Whether the configuration of a layer quantises no weight.
pub(in crate::quant::scheme) fn leaves_out(cx: &Context<'_>, module: &str) -> bool {
    cx.config.is(&["quark"]) && steps(cx, module).is_empty()
}

pub(super) fn text<'j>(spec: &'j Json, key: &str) -> &'j str {
    spec.get(key).and_then(Json::as_str).unwrap_or_default()
}

/// Notes a layer whose settings have another dtype of as many bits than the global ones: its codes look the same.
pub(super) fn note_other_dtype(cx: &Context<'_>, name: &str, own: &Json) {
    let all = match cx.config.get("global_quant_config.weight") {
        Some(Json::Array(steps)) => steps.first(),
        one => one,
    };
    let (own, all) = (text(own, "dtype"), all.map_or("", |all| text(all, "dtype")));
    let unsigned = |dtype: &str| dtype.strip_prefix('u').unwrap_or(dtype).to_owned();
    if own != all && unsigned(own) == unsigned(all) {
        cx.note(format!(
            "{} is read as {own} by `layer_quant_config`, and others as {all}: the files do not tell them apart",
            quote(name)
        ));
    }
}

/// Whether a step quantises the scales of the step before, and not its codes.
pub(super) fn of_scales(step: &Json) -> bool {
    step.get("is_scale_quant").and_then(Json::as_bool) == Some(true)
}

/// Refuses a weight without zero points where its step is not symmetric: Quark stores them then, whatever their values are.
pub(super) fn needs_no_zeros(info: &TensorInfo, step: &Json) -> Result<()> {
    if !step.get("symmetric").is_some_and(is_off) {
        return Ok(());
    }
    Err(missing_by(info, "weight_zero_point", "symmetric", "false"))
}

/// The settings of the first step, if the method is Quark.
fn spec<'c>(cx: &Context<'c>, name: &str) -> Option<&'c Json> {
    if !cx.config.is(&["quark"]) {
        return None;
    }
    steps(cx, name).first().copied()
}

/// The configured dtype of the codes.
pub(in crate::quant::scheme) fn dtype<'c>(cx: &Context<'c>, name: &str) -> Option<&'c str> {
    spec(cx, name)?.get("dtype")?.as_str()
}

/// The configured format of the scales.
pub(in crate::quant::scheme) fn scale_format<'c>(cx: &Context<'c>, name: &str) -> Option<&'c str> {
    spec(cx, name)?.get("scale_format")?.as_str()
}

/// Notes a group of another size than the configured one, which the shapes decide.
pub(in crate::quant::scheme) fn note_group(cx: &Context<'_>, name: &str, found: u64) {
    let said = spec(cx, name).and_then(|spec| spec.get("group_size")?.as_u64());
    if let Some(said) = said.filter(|said| *said != found) {
        cx.note(format!(
            "groups of {found} columns, by the shapes; the configuration says {said}"
        ));
    }
}

/// Refuses scales in U8 that Quark's configuration says are not E8M0.
pub(in crate::quant::scheme) fn plain_exponents(
    cx: &Context<'_>,
    name: &str,
    info: &TensorInfo,
    scale: &TensorInfo,
) -> Result<()> {
    let Some(spec) = spec(cx, name) else {
        return Ok(());
    };
    if text(spec, "dtype") == "mx" {
        return Err(unsupported(
            info,
            "configured as Quark's older MX export, whose scales are inline, but stored with a scale tensor",
        ));
    }
    match scale_format(cx, name) {
        // bytes are UE5M3 too, and Quark has no default
        None if plain(scale) == Some(Dtype::U8) => Err(not_known(
            info,
            "Quark's configuration names no scale_format, by which its scales in U8 are exponents or UE5M3",
        )),
        None | Some("e8m0") => Ok(()),
        Some(other) => Err(not_known(info, format!("Quark's scale format {other:?}"))),
    }
}

/// The numbers of the last step that quantises codes.
pub(in crate::quant::scheme) fn stated(cx: &Context<'_>, name: &str) -> Alternatives {
    let steps = steps(cx, name);
    let Some(last) = steps.iter().rev().find(|step| !of_scales(step)) else {
        return Alternatives::new();
    };
    let dtype = match text(last, "dtype") {
        "mx" => text(last, "mx_element_dtype"),
        other => other,
    };
    let numbers = match dtype {
        "fp8_e4m3" => StatedNumbers::float8("E4M3").scaled_by(ScaleNumbers::Floats),
        "fp8_e5m2" => StatedNumbers::float8("E5M2").scaled_by(ScaleNumbers::Floats),
        "fp4" => StatedNumbers::floats(Some(4)),
        "fp6_e2m3" | "fp6_e3m2" => StatedNumbers::floats(Some(6)),
        "int8" | "uint8" => StatedNumbers::integers(Some(8)),
        "int4" | "uint4" => StatedNumbers::integers(Some(4)),
        "int3" => StatedNumbers::integers(Some(3)),
        "int2" | "uint2" => StatedNumbers::integers(Some(2)),
        _ => return Alternatives::new(),
    };
    let size = last.get("group_size").and_then(Json::as_u64);
    // rows are the first axis, and groups go along the last: another is none that Quark has for weights
    let axis = last.get("ch_axis").and_then(Json::as_i64);
    let by_column = StatedGranularity::Block(u64::MAX, 1);
    let scales = match text(last, "qscheme") {
        "per_tensor" => Some(StatedGranularity::Tensor),
        "per_channel" if matches!(axis, Some(1 | -1)) => Some(by_column),
        "per_channel" => Some(StatedGranularity::Channel),
        "per_group" if matches!(axis, Some(0 | -2)) => Some(by_column),
        // UE5M3 is read by its shapes, with a note
        _ if dtype == "fp4" && text(last, "scale_format") == "e5m3" => None,
        _ => size.filter(|size| *size > 0).map(StatedGranularity::Group),
    };
    // the writer's default is int32; symmetric numbers have zero points of 0, in any dtype
    let zeros = match text(last, "zero_point_type") {
        _ if last.get("symmetric").and_then(Json::as_bool) != Some(false) => None,
        "float32" => Some(Dtype::F32),
        "int32" | "" => Some(Dtype::I32),
        _ => None,
    };
    vec![vec![numbers.with_scales(scales).shifted_in(zeros)]]
}
