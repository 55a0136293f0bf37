//! Statements of configurations about single modules: that they are not quantised, by a list (`module_lists.rs`) or by settings
//! of their own, or that they are.
//!
//! Sources: GPTQModel `quantization/config.py` (`dynamic_get`), auto-round `inference/convert_model.py` (`get_layer_config`),
//! mlx-lm `utils.py` (`class_predicate`), ModelOpt `export/quant_utils.py`.

use crate::base::error::Result;

use super::context::Context;
use super::listed_modules::listed;
use super::module_lists::Exclusion;
use super::module_names::module_of_weight;
use super::name_regex::NamePatterns;
use super::{Scheme, Weight, autoround, mlx, quantized_layers, quark, qweight, statements};

const WHAT: &str = "the configured modules";

/// The statement that a weight is not quantised, although it is stored as the configuration's own method stores it. One that
/// is stored in another way may have been quantised before: the statement is true of it.
pub(crate) fn exclusion<'c>(
    cx: &Context<'c>,
    scheme: &Scheme,
    weight: &Weight,
) -> Result<Option<Exclusion<'c>>> {
    let is_own = scheme
        .described_by
        .is_some_and(|methods| cx.config.is_of(methods));
    let module = module_of_weight(&weight.name);
    if cx.config.is_empty() || !is_own || weight.is_unscaled() || cx.has_marker(weight, module) {
        return Ok(None);
    }
    let found = match listed(cx, module)? {
        Some(found) => Some(found),
        None => by_settings(cx, module)?,
    };
    match found {
        Some(_) if statements::are_contradicted(cx, weight)? => Ok(None),
        found => Ok(found),
    }
}

/// Settings of a single module that say it.
fn by_settings<'c>(cx: &Context<'c>, module: &str) -> Result<Option<Exclusion<'c>>> {
    if let Some(pattern) = qweight::left_out(cx, module) {
        let entry = Some(pattern);
        return Ok(Some(Exclusion {
            key: "dynamic",
            entry,
        }));
    }
    if let Some(name) = autoround::left_out(cx, module)? {
        let (key, entry) = ("extra_config", Some(name));
        return Ok(Some(Exclusion { key, entry }));
    }
    if let Some(entry) = mlx::left_out(cx, module) {
        let (key, entry) = ("quantization", Some(entry));
        return Ok(Some(Exclusion { key, entry }));
    }
    if quark::leaves_out(cx, module) {
        let (key, entry) = ("layer_quant_config", None);
        return Ok(Some(Exclusion { key, entry }));
    }
    let is_absent = quantized_layers::layers(cx).is_some_and(|layers| !layers.is_empty())
        && quantized_layers::layer(cx, module).is_none();
    Ok(is_absent.then_some(Exclusion {
        key: "quantized_layers",
        entry: None,
    }))
}

/// The patterns of the configuration that are not understood, each with its key and the reason. They match no module, so that one
/// which they name is read as the others are.
pub(crate) fn unknown_patterns<'x, 'c>(
    cx: &'x Context<'c>,
) -> impl Iterator<Item = (&'static str, &'c str, &'x str)> {
    let lists = cx.read_exclusion_lists();
    let lists = lists.into_iter().flat_map(|lists| {
        let unknown = lists.patterns.unknown().iter();
        unknown.map(|pattern| (lists.entry(pattern.meaning).0, pattern.text, &*pattern.why))
    });
    let caches = &cx.caches;
    let layers = caches.layers.get().map(|layers| layers.others.unknown());
    let layers = layers.into_iter().flatten();
    let layers = layers.map(|pattern| ("layer_quant_config", pattern.text, &*pattern.why));
    let targets = cx.read_targets().map(|targets| targets.patterns.unknown());
    let targets = targets.into_iter().flatten();
    let targets = targets.map(|pattern| ("targets", pattern.text, &*pattern.why));
    let settings = [
        ("extra_config", &caches.extra),
        ("dynamic", &caches.dynamic),
    ];
    let settings = settings.into_iter().flat_map(|(key, patterns)| {
        let unknown = patterns.get().map(NamePatterns::unknown);
        let unknown = unknown.into_iter().flatten();
        unknown.map(move |pattern| (key, pattern.text, &*pattern.why))
    });
    lists.chain(targets).chain(layers).chain(settings)
}

/// The first weight for which the configuration has settings of quantisation under its name, and that is stored plain.
pub(crate) fn plain_although_listed(
    cx: &Context<'_>,
    is_plain: &dyn Fn(usize) -> bool,
) -> Result<Option<(&'static str, usize)>> {
    let weight_of = |module: &str| {
        let tensor = cx
            .sibling(module, ".weight")
            .filter(|&tensor| is_plain(tensor))?;
        (!cx.skipped(module)).then_some(tensor)
    };
    for (module, _) in quantized_layers::layers(cx).into_iter().flatten() {
        cx.budget.steps(1 + module.len() as u64 / 16, WHAT)?;
        if let Some(tensor) = weight_of(module) {
            return Ok(Some(("quantized_layers", tensor)));
        }
    }
    for (module, weights) in &cx.target_groups()?.named {
        cx.budget.steps(1 + module.len() as u64 / 16, WHAT)?;
        // the names of classes have no dot
        let is_quantised = weights.is_some_and(|weights| !weights.is_null());
        if let Some(tensor) = weight_of(module).filter(|_| is_quantised && module.contains('.')) {
            return Ok(Some(("targets", tensor)));
        }
    }
    Ok(None)
}
