//! Quark's configuration of a layer's weight.

use std::collections::HashMap;

use serde_json::Value as Json;

use crate::base::error::Result;
use crate::base::limits::Budget;
use crate::quant::scheme::QuantConfig;
use crate::quant::scheme::context::{Context, unsupported};
use crate::quant::scheme::module_names::PrefixPatterns;
use crate::read::catalog::TensorInfo;

/// `layer_quant_config`: settings by the layer's name, or by a pattern with `*`.
#[derive(Default)]
pub(in crate::quant::scheme) struct LayerConfigs<'c> {
    all: Vec<&'c Json>,
    named: HashMap<&'c str, usize>,
    patterns: PrefixPatterns<'c>,
}

impl<'c> LayerConfigs<'c> {
    fn new(config: &'c QuantConfig, budget: &Budget) -> Result<Self> {
        const ROW: u64 = 3 * size_of::<(&Json, &str, usize)>() as u64;
        let Some(layers) = config.get("layer_quant_config").and_then(Json::as_object) else {
            return Ok(Self::default());
        };
        budget.memory(ROW * layers.len() as u64, "layer_quant_config")?;
        let names = || layers.keys().map(String::as_str).enumerate();
        let named = names().filter(|(_, name)| !name.contains('*'));
        Ok(Self {
            all: layers.values().collect(),
            named: named.map(|(position, name)| (name, position)).collect(),
            patterns: PrefixPatterns::new(names(), budget)?,
        })
    }

    /// The settings of the first name or pattern that matches.
    fn first(&self, layer: &str, budget: &Budget) -> Result<Option<&'c Json>> {
        let named = self.named.get(layer).copied();
        let pattern = self.patterns.first(layer, budget, fits)?;
        let first = match (named, pattern) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Ok(first.map(|position| self.all[position]))
    }
}

/// The steps in which a weight was quantised: one, or two.
pub(super) fn steps<'c>(cx: &Context<'c>, name: &str) -> Vec<&'c Json> {
    let layer = name.strip_suffix(".weight").unwrap_or(name);
    let layers = cx.caches.layers.get_or_init(|| {
        cx.sound(LayerConfigs::new(cx.config, cx.budget))
            .unwrap_or_default()
    });
    let weight = match cx.sound(layers.first(layer, cx.budget)).flatten() {
        // a layer's configuration replaces the global one, even if it does not quantise the weight
        Some(config) => config.get("weight"),
        None => cx.config.get("global_quant_config.weight"),
    };
    match weight {
        // several steps are a list, a single one is an object
        Some(Json::Array(steps)) => steps.iter().take(2).collect(),
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

/// Whether the rest of a name matches the rest of a pattern behind its first `*`.
fn fits(mut rest: &str, pattern: &str) -> bool {
    let mut pieces = pattern.split('*').peekable();
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
