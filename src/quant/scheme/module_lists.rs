//! Lists of modules that are not quantised, compared with one module.
//!
//! Each writer has a list of its own, and each reader compares names with it in its own way. The comparison here holds for all of
//! them: a name that it finds is one that its reader leaves out.
//!
//! Sources: transformers `quantizers/quantizers_utils.py` (`should_convert_module`), compressed-tensors `utils/match.py`, Quark
//! `torch/export/main_export/quant_config_parser.py` (`fnmatch`), ModelOpt `export/quant_utils.py`.

use std::collections::HashMap;

use crate::base::error::Result;
use crate::base::limits::Budget;

use super::QuantConfig;
use super::layer_configs::{CLASS_SIGNS, fits};
use super::module_names::{PrefixPatterns, SKIPPED_LISTS, module_of_weight};
use super::name_regex::{NamePatterns, PatternKind};

const WHAT: &str = "the configured modules";

/// A statement that a module is not quantised: the key, and the entry of its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exclusion<'c> {
    pub(crate) key: &'static str,
    /// `None` for a list of those that are quantised, and has no such entry.
    pub(crate) entry: Option<&'c str>,
}

/// The entries of the lists of a configuration, read once for all modules.
#[derive(Default)]
pub(super) struct ExclusionLists<'c> {
    /// In their order.
    entries: Vec<(&'static str, &'c str)>,
    /// The first entry of each name.
    named: HashMap<&'c str, usize>,
    globs: PrefixPatterns<'c>,
    pub(super) patterns: NamePatterns<'c, usize>,
}

impl<'c> ExclusionLists<'c> {
    pub(super) fn read(config: &'c QuantConfig, budget: &Budget) -> Result<Self> {
        let lists = SKIPPED_LISTS.iter().filter_map(|&key| {
            let entries = config.get(key)?.as_array()?;
            Some(
                entries
                    .iter()
                    .filter_map(move |entry| Some((key, entry.as_str()?))),
            )
        });
        Self::of(lists.flatten(), budget)
    }

    fn of(entries: impl Iterator<Item = (&'static str, &'c str)>, budget: &Budget) -> Result<Self> {
        let mut found = Self::default();
        for (key, entry) in entries {
            budget.push(&mut found.entries, (key, entry), WHAT)?;
            let name = module_of_weight(entry);
            if pattern(entry).is_none() && !name.contains('*') && !name.is_empty() {
                budget.memory(64, WHAT)?;
                let row = found.entries.len() - 1;
                found.named.entry(name).or_insert(row);
            }
        }
        let rows = || found.entries.iter().enumerate();
        let globs = rows().filter(|(_, (_, entry))| pattern(entry).is_none());
        let globs = globs.map(|(row, (_, entry))| (row, module_of_weight(entry)));
        let patterns = rows().filter_map(|(row, (_, entry))| {
            let (text, kind) = pattern(entry)?;
            Some((text, kind, row))
        });
        let patterns = NamePatterns::new(patterns, budget)?;
        found.globs = PrefixPatterns::new(globs, budget)?;
        found.patterns = patterns;
        Ok(found)
    }

    /// The first entry that names a module, for certain.
    pub(super) fn first(
        &self,
        module: &str,
        is_exact: bool,
        budget: &Budget,
    ) -> Result<Option<usize>> {
        budget.steps(1 + module.len() as u64 / 16, WHAT)?;
        let own = std::iter::once(module);
        // modules inside of the entry's, and a module without the first components of its name
        let dots = || module.match_indices('.').filter(|_| !is_exact);
        let around = dots().map(|(at, _)| &module[..at]);
        let last = dots().map(|(at, _)| &module[at + 1..]);
        let named = own.chain(around).chain(last);
        let named = named.filter_map(|name| self.named.get(name).copied());
        let glob = self.globs.first(module, budget, fits)?;
        let pattern = self.patterns.first_known(module, budget)?;
        Ok(named.chain(glob).chain(pattern).min())
    }

    /// The key of the list, and the text, of an entry.
    pub(super) fn entry(&self, row: usize) -> (&'static str, &'c str) {
        self.entries[row]
    }
}

/// An entry that is a pattern: a regular expression behind `re:`, or what `fnmatch` compares with other signs than `*`.
fn pattern(entry: &str) -> Option<(&str, PatternKind)> {
    match entry.strip_prefix("re:") {
        Some(text) => Some((text, PatternKind::Begins)),
        None => {
            let text = module_of_weight(entry);
            let is_glob = text.contains(CLASS_SIGNS);
            is_glob.then_some((text, PatternKind::Glob))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ExclusionLists;
    use crate::base::limits::{Budget, Limits};

    fn excludes(entry: &str, module: &str, is_exact: bool) -> bool {
        let budget = Budget::new(Limits::default());
        let entries = [("ignore", "before"), ("ignore", entry), ("exclude", module)];
        let lists = ExclusionLists::of(entries.into_iter(), &budget).unwrap();
        let first = lists.first(module, is_exact, &budget).unwrap();
        assert!(first == Some(1) || first == Some(2));
        first == Some(1)
    }

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
            r"re:.*mlp\.(gate|up|down)_proj.*",
            r"re:model\.layers\.\d+\.",
            "model.layers.?.*",
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
