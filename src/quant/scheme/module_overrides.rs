//! MLX's settings of single modules, by name.
//!
//! A multimodal model has its language model under a prefix, and configurations and files are made by programs of which one has the
//! prefix and the other has not. So a name of the configuration names a module if one of the two ends with the other, as whole
//! components.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use serde_json::Value as Json;

use crate::base::error::Result;
use crate::base::limits::Budget;

use super::QuantConfig;

const WHAT: &str = "the configuration's settings of modules";

/// The settings of modules.
#[derive(Default)]
pub(super) struct ModuleOverrides<'c> {
    /// By whole name.
    named: HashMap<&'c str, &'c Json>,
    /// By the rest of a name behind any of its dots; `None` for two modules whose settings differ.
    rests: HashMap<&'c str, Option<&'c Json>>,
}

impl<'c> ModuleOverrides<'c> {
    pub(super) fn new(config: &'c QuantConfig, budget: &Budget) -> Result<Self> {
        const ENTRY: u64 = 3 * size_of::<(&str, &Json)>() as u64;
        let mut made = Self::default();
        let modules = config.map().iter().filter(|(_, value)| value.is_object());
        for (name, settings) in modules {
            // `X.weight` is the weight of module `X`
            let name = name.strip_suffix(".weight").unwrap_or(name);
            let dots = name.bytes().filter(|byte| *byte == b'.').count() as u64;
            budget.memory((2 + dots) * ENTRY, WHAT)?;
            made.named.insert(name, settings);
            for (at, _) in name.match_indices('.') {
                match made.rests.entry(&name[at + 1..]) {
                    Entry::Vacant(free) => {
                        free.insert(Some(settings));
                    }
                    Entry::Occupied(mut taken) if *taken.get() != Some(settings) => {
                        taken.insert(None);
                    }
                    Entry::Occupied(_) => {}
                }
            }
        }
        Ok(made)
    }

    /// The settings of a module.
    pub(super) fn of(&self, module: &str) -> Option<&'c Json> {
        let inner = module.match_indices('.').map(|(at, _)| &module[at + 1..]);
        std::iter::once(module)
            .chain(inner)
            .find_map(|name| self.named.get(name).copied())
            .or_else(|| self.rests.get(module).copied().flatten())
    }
}
