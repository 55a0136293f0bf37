//! Lists of modules that are not quantised, compared with one module.
//!
//! Each writer has a list of its own, and each reader compares names with it in its own way. The comparison here holds for all of
//! them: a name that it finds is one that its reader leaves out.
//!
//! Sources: transformers `quantizers/quantizers_utils.py` (`should_convert_module`), compressed-tensors `utils/match.py`, Quark
//! `torch/export/main_export/quant_config_parser.py` (`fnmatch`), ModelOpt `export/quant_utils.py`.

use serde_json::Value as Json;

use crate::base::error::Result;

use super::context::Context;
use super::layer_configs::is_glob_of;
use super::module_names::{SKIPPED_LISTS, module_of_weight};
use super::name_regex;

const WHAT: &str = "the configured modules";

/// A statement that a module is not quantised: the key, and the entry of its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exclusion<'c> {
    pub(crate) key: &'static str,
    /// `None` for a list of those that are quantised, and has no such entry.
    pub(crate) entry: Option<&'c str>,
}

/// The entry of a list of modules that are not quantised.
pub(super) fn listed<'c>(cx: &Context<'c>, module: &str) -> Result<Option<Exclusion<'c>>> {
    // most weights are on none: the entries are compared at once
    if !cx.skipped(module) {
        return Ok(None);
    }
    // others leave out what is inside of a module, too
    let is_exact = cx.config.is_of(&[
        "compressed-tensors",
        "modelopt",
        "modelopt_fp4",
        "modelopt_mixed",
    ]);
    for &key in SKIPPED_LISTS {
        let entries = cx.config.get(key).and_then(Json::as_array);
        for entry in entries.into_iter().flatten().filter_map(Json::as_str) {
            let cost = 1 + (entry.len() + module.len()) as u64 / 16;
            cx.budget.steps(cost, WHAT)?;
            if excludes(entry, module, is_exact) {
                let entry = Some(entry);
                return Ok(Some(Exclusion { key, entry }));
            }
        }
    }
    Ok(None)
}

/// Whether an entry names a module, for certain.
fn excludes(entry: &str, module: &str, is_exact: bool) -> bool {
    let entry = module_of_weight(entry);
    if let Some(pattern) = entry.strip_prefix("re:") {
        return name_regex::matches(pattern, module, false) == Some(true);
    }
    if entry.contains('*') {
        return is_glob_of(entry, module);
    }
    if entry == module {
        return true;
    }
    let is_around = module
        .strip_prefix(entry)
        .is_some_and(|rest| rest.starts_with('.'));
    let is_last = module
        .strip_suffix(entry)
        .is_some_and(|rest| rest.ends_with('.'));
    !is_exact && !entry.is_empty() && (is_around || is_last)
}

#[cfg(test)]
mod tests {
    use super::excludes;

    #[test]
    fn entries_name_modules() {
        let module = "model.layers.1.mlp.down_proj";
        for entry in [
            module,
            "model.layers.1.mlp.down_proj.weight",
            "*down_proj",
            "model.layers.*.mlp.*",
            "re:.*down_proj",
            r"re:model\.layers\.1\..*",
        ] {
            assert!(excludes(entry, module, true), "{entry}");
        }
        for entry in ["down_proj", "model.layers.1", "mlp.down_proj"] {
            assert!(excludes(entry, module, false), "{entry}");
            assert!(!excludes(entry, module, true), "{entry}");
        }
        for entry in [
            "",
            "model.layers.1.mlp.down",
            "proj",
            "*.down",
            "model.layers.10",
            "re:down_proj",
            "layers.1",
        ] {
            assert!(!excludes(entry, module, false), "{entry}");
        }
    }
}
