//! Modules that a configuration names: those that are not quantised, and those that have tensors.

use crate::base::error::Result;
use crate::base::limits::Budget;
use crate::quant::scheme::QuantConfig;
use crate::quant::scheme::module_lists::ExclusionLists;
use crate::quant::scheme::module_names::{
    ComponentSequences, PrefixPatterns, SKIPPED_LISTS, module_of_weight,
};

use super::Context;

/// The configured lists of modules that are not quantised.
#[derive(Default)]
pub(super) struct SkippedModules<'c> {
    names: ComponentSequences<'c>,
    patterns: PrefixPatterns<'c>,
    lists: ExclusionLists<'c>,
}

impl<'c> Context<'c> {
    /// Whether a tensor is of a module of this name, which may lack the first components of the tensor's name.
    pub(crate) fn has_module(&self, name: &str) -> Result<bool> {
        if self.position(&[name, ".weight"].concat()).is_some() {
            return Ok(true);
        }
        for info in self.catalog.tensors() {
            self.budget
                .steps(1 + info.name.len() as u64 / 16, "the configured modules")?;
            // `a.b` is a module of `m.a.b.weight` and of `m.a.b.c.weight`
            let found = info.name.find(name).is_some_and(|at| {
                let (before, after) = (&info.name[..at], &info.name[at + name.len()..]);
                (before.is_empty() || before.ends_with('.')) && after.starts_with('.')
            });
            if found {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the configuration lists this module as not quantised.
    pub(crate) fn skipped(&self, name: &str) -> bool {
        let Some(skipped) = self.sound(self.skipped_modules()) else {
            return false;
        };
        if skipped.names.occur_in(name) {
            return true;
        }
        let patterns = &skipped.lists.patterns;
        let matching = patterns.first_known(module_of_weight(name), self.budget);
        if self.sound(matching).flatten().is_some() {
            return true;
        }
        let found = skipped.patterns.first(name, self.budget, |rest, pattern| {
            pattern.split('*').all(|piece| {
                // a search is prepared for long texts, and most pieces are not there
                let first = piece.as_bytes().first();
                first.is_none_or(|byte| rest.as_bytes().contains(byte) && rest.contains(piece))
            })
        });
        self.sound(found).flatten().is_some()
    }

    /// The configured lists of modules that are not quantised, compared one by one.
    pub(in crate::quant::scheme) fn exclusion_lists(&self) -> Result<&ExclusionLists<'c>> {
        Ok(&self.skipped_modules()?.lists)
    }

    /// These lists, if a module has been compared with them.
    pub(in crate::quant::scheme) fn read_exclusion_lists(&self) -> Option<&ExclusionLists<'c>> {
        self.caches.skipped.get().map(|skipped| &skipped.lists)
    }

    fn skipped_modules(&self) -> Result<&SkippedModules<'c>> {
        if let Some(read) = self.caches.skipped.get() {
            return Ok(read);
        }
        let read = SkippedModules::new(self.config, self.budget)?;
        Ok(self.caches.skipped.get_or_init(|| read))
    }
}

impl<'c> SkippedModules<'c> {
    /// An entry matches as a sequence of whole dotted components, or as a pattern with `*`. For `re:` patterns, the literal
    /// text between leading and trailing special characters is matched.
    fn new(config: &'c QuantConfig, budget: &Budget) -> Result<Self> {
        let texts = || {
            let lists = SKIPPED_LISTS.iter();
            let lists = lists.filter_map(|key| config.get(key)?.as_array());
            lists.flatten().filter_map(|item| item.as_str())
        };
        let entries = texts()
            .map(|entry| {
                entry
                    .strip_prefix("re:")
                    .map_or(entry, |re| re.trim_matches(['.', '*', '^', '$']))
            })
            .filter(|entry| !entry.is_empty());
        let names = entries.clone().filter(|entry| !entry.contains('*'));
        Ok(Self {
            names: ComponentSequences::new(names, budget)?,
            patterns: PrefixPatterns::new(entries.enumerate(), budget)?,
            lists: ExclusionLists::read(config, budget)?,
        })
    }
    // whole components, so that `layers.1` does not cover `layers.10`
}
