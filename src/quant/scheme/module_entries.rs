//! The entries of a configuration by which readers find the settings of a module: names, and patterns of names.
//!
//! A rename changes names alone. A pattern that has matched a module may match its new name no longer, or another pattern may, so that
//! readers take the module for another one than before.

use crate::base::error::Result;

use super::context::Context;
use super::listed_modules::listed;
use super::name_regex::FirstMatch;
use super::{autoround, quark, qweight};

/// An entry that is for a module: the key of its list, and its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ModuleEntry<'c> {
    pub(crate) key: &'static str,
    pub(crate) entry: &'c str,
}

/// The entries that are for a module, of each list the first.
pub(crate) fn entries_of_module<'c>(
    cx: &Context<'c>,
    module: &str,
) -> Result<Vec<ModuleEntry<'c>>> {
    if cx.config.is_empty() {
        return Ok(Vec::new());
    }
    let excluded = listed(cx, module)?;
    let excluded = excluded.and_then(|found| Some((found.key, found.entry?)));
    let of = |key| move |entry| (key, entry);
    let found = [
        excluded,
        target(cx, module)?.map(of("targets")),
        qweight::pattern_of_module(cx, module).map(of("dynamic")),
        autoround::entry_of_module(cx, module)?.map(of("extra_config")),
        quark::entry_of_module(cx, module)?.map(of("layer_quant_config")),
    ];
    let found = found.into_iter().flatten();
    Ok(found
        .map(|(key, entry)| ModuleEntry { key, entry })
        .collect())
}

/// The target of a group of compressed-tensors.
fn target<'c>(cx: &Context<'c>, module: &str) -> Result<Option<&'c str>> {
    let targets = cx.target_groups()?;
    if let Some((name, _)) = targets.named.get_key_value(module) {
        return Ok(Some(name));
    }
    Ok(match targets.patterns.first(module, cx.budget)? {
        FirstMatch::Known((target, _)) => Some(target),
        FirstMatch::Unknown | FirstMatch::Nothing => None,
    })
}
