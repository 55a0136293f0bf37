//! Quark's configuration of a layer's weight.

use serde_json::Value as Json;

use crate::catalog::TensorInfo;
use crate::error::Result;
use crate::quant::scheme::context::{Context, unsupported};

/// The steps in which a weight was quantised: one, or two.
pub(super) fn steps<'c>(cx: &Context<'c>, name: &str) -> Vec<&'c Json> {
    let layer = name.strip_suffix(".weight").unwrap_or(name);
    let of_layer = cx
        .config
        .get("layer_quant_config")
        .and_then(Json::as_object);
    let of_layer = of_layer
        .into_iter()
        .flatten()
        .find(|(pattern, _)| fits(pattern, layer));
    let weight = match of_layer {
        // a layer's configuration replaces the global one, even if it does not quantise the weight
        Some((_, config)) => config.get("weight"),
        None => cx.config.get("global_quant_config.weight"),
    };
    match weight {
        // several steps are a list, a single one is an object
        Some(Json::Array(steps)) => steps.iter().collect(),
        one => one.into_iter().collect(),
    }
}

pub(super) fn text<'j>(spec: &'j Json, key: &str) -> &'j str {
    spec.get(key).and_then(Json::as_str).unwrap_or_default()
}

/// Whether a step quantises the scales of the step before, and not its codes.
pub(super) fn of_scales(step: &Json) -> bool {
    step.get("is_scale_quant").and_then(Json::as_bool) == Some(true)
}

/// Whether a name matches a pattern with `*`.
fn fits(pattern: &str, name: &str) -> bool {
    // linear in pattern and name: each piece is searched behind the one before, which suffices for `*` alone
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else {
        return false;
    };
    let mut pieces = pieces.peekable();
    if pieces.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return rest.ends_with(piece);
        }
        let Some(at) = rest.find(piece) else {
            return false;
        };
        rest = &rest[at + piece.len()..];
    }
    true
}

/// The settings of the first step, if the method is Quark.
fn spec<'c>(cx: &Context<'c>, name: &str) -> Option<&'c Json> {
    steps(cx, name)
        .first()
        .copied()
        .filter(|_| cx.config.is(&["quark"]))
}

/// The configured dtype of the codes.
pub(in crate::quant::scheme) fn dtype<'c>(cx: &Context<'c>, name: &str) -> Option<&'c str> {
    spec(cx, name)?.get("dtype")?.as_str()
}

/// The configured format of the scales.
pub(in crate::quant::scheme) fn scale_format<'c>(cx: &Context<'c>, name: &str) -> Option<&'c str> {
    spec(cx, name)?.get("scale_format")?.as_str()
}

/// Refuses scales in U8 that Quark's configuration says are not E8M0.
pub(in crate::quant::scheme) fn plain_exponents(
    cx: &Context<'_>,
    name: &str,
    info: &TensorInfo,
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
        None | Some("e8m0") => Ok(()),
        Some(other) => Err(unsupported(
            info,
            format!("Quark's scale format {other:?} is not supported"),
        )),
    }
}
