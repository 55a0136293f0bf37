//! Settings of single modules that name none of the file's: another may have been meant, whose weights are then read by other
//! settings.

use crate::base::error::Result;
use crate::models::names::is_output_layer;

use super::context::Context;
use super::layer_configs::GLOB_SIGNS;
use super::module_overrides::ModuleOverrides;
use super::name_regex::{NamePatterns, PatternKind, is_pattern};
use super::{autoround, qweight};

const WHAT: &str = "the configured modules";

/// Names that are searched for, each in the names of all tensors.
const MAX_SEARCHED: usize = 64;

/// The key and the entry of the first settings that are of no module of the file.
pub(crate) fn settings_of_no_module<'c>(
    cx: &Context<'c>,
) -> Result<Option<(&'static str, &'c str)>> {
    let overrides = cx.caches.overrides.get();
    if let Some(name) = overrides.and_then(ModuleOverrides::unused) {
        return Ok(Some(("quantization", name)));
    }
    if let Some(name) = first_absent(cx, autoround::quantised_entries(cx))? {
        return Ok(Some(("extra_config", name)));
    }
    if cx.config.is(&["gptq", "gptqmodel"]) {
        let patterns = qweight::patterns_of_modules(cx);
        let patterns = patterns.map(|pattern| (pattern, Some(PatternKind::Begins)));
        if let Some(name) = first_absent(cx, patterns)? {
            return Ok(Some(("dynamic", name)));
        }
    }
    if !cx.config.is(&["quark"]) {
        return Ok(None);
    }
    let layers = cx.config.get("layer_quant_config");
    let layers = layers.and_then(|layers| layers.as_object());
    let layers = layers.into_iter().flat_map(|layers| layers.keys());
    let layers = layers.map(|name| {
        let kind = name.contains(GLOB_SIGNS).then_some(PatternKind::Glob);
        (name.as_str(), kind)
    });
    if let Some(name) = first_absent(cx, layers)? {
        return Ok(Some(("layer_quant_config", name)));
    }
    // Quark's templates exclude by patterns of all models, and an output layer that is tied is in no file
    let excluded = cx.config.get("exclude").and_then(|list| list.as_array());
    let excluded = excluded.into_iter().flatten();
    let excluded = excluded.filter_map(|entry| entry.as_str());
    let is_name = |name: &&str| {
        !name.is_empty() && !is_pattern(name) && !is_output_layer(&[name, ".weight"].concat())
    };
    let found = first_absent(cx, excluded.filter(is_name).map(|name| (name, None)))?;
    Ok(found.map(|name| ("exclude", name)))
}

/// The first entry that names no module: a name, or a pattern of a kind.
fn first_absent<'c>(
    cx: &Context<'c>,
    entries: impl Iterator<Item = (&'c str, Option<PatternKind>)>,
) -> Result<Option<&'c str>> {
    let (mut patterns, mut searched) = (Vec::new(), 0);
    for (name, kind) in entries {
        cx.budget.steps(1 + name.len() as u64 / 16, WHAT)?;
        if let Some(kind) = kind {
            cx.budget.push(&mut patterns, (name, kind, name), WHAT)?;
            continue;
        }
        let ends = [".weight", ".qweight", ".weight_packed"];
        if cx.first_sibling(name, &ends).is_none() && searched < MAX_SEARCHED {
            searched += 1;
            if !cx.has_module(name)? {
                return Ok(Some(name));
            }
        }
    }
    if patterns.is_empty() {
        return Ok(None);
    }
    let patterns = NamePatterns::new(patterns.into_iter(), cx.budget)?;
    let tensors = cx.catalog.tensors().iter();
    let modules = tensors.filter_map(|info| Some(info.name.rsplit_once('.')?.0));
    Ok(patterns.unmatched(modules, cx.budget)?.next())
}
