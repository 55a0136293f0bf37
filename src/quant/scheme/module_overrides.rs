//! MLX's settings of single modules, by name.
//!
//! A multimodal model has its language model under a prefix, and configurations and files are made by programs of which one has the
//! prefix and the other has not. So a name of the configuration names a module if one of the two ends with the other, as whole
//! components.

use std::cell::Cell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use serde_json::Value as Json;

use crate::base::error::Result;
use crate::base::limits::Budget;

use super::QuantConfig;
use super::module_names::module_of_weight;

const WHAT: &str = "the configuration's settings of modules";

/// The settings of modules.
#[derive(Default)]
pub(super) struct ModuleOverrides<'c> {
    rows: Vec<ModuleOverride<'c>>,
    /// By whole name.
    named: HashMap<&'c str, usize>,
    /// By the rest of a name behind any of its dots; `None` for two modules whose settings differ.
    rests: HashMap<&'c str, Option<usize>>,
}

/// The settings of a module.
struct ModuleOverride<'c> {
    name: &'c str,
    settings: &'c Json,
    /// Whether a weight has been read by them.
    is_used: Cell<bool>,
}

impl<'c> ModuleOverrides<'c> {
    pub(super) fn new(config: &'c QuantConfig, budget: &Budget) -> Result<Self> {
        const ENTRY: u64 = 3 * size_of::<(&str, usize)>() as u64;
        let mut made = Self::default();
        let modules = config.map().iter().filter(|(_, value)| value.is_object());
        for (name, settings) in modules {
            // `X.weight` is the weight of module `X`
            let name = module_of_weight(name);
            let dots = name.bytes().filter(|byte| *byte == b'.').count() as u64;
            budget.memory((3 + dots) * ENTRY, WHAT)?;
            let row = made.rows.len();
            made.rows.push(ModuleOverride {
                name,
                settings,
                is_used: Cell::new(false),
            });
            made.named.insert(name, row);
            for (at, _) in name.match_indices('.') {
                match made.rests.entry(&name[at + 1..]) {
                    Entry::Vacant(free) => {
                        free.insert(Some(row));
                    }
                    Entry::Occupied(mut taken) => {
                        // one of two modules that are called alike may be meant
                        made.rows[row].is_used.set(true);
                        if taken.get().map(|row| made.rows[row].settings) != Some(settings) {
                            taken.insert(None);
                        }
                    }
                }
            }
        }
        Ok(made)
    }

    /// The settings of a module.
    pub(super) fn of(&self, module: &str) -> Option<&'c Json> {
        let inner = module.match_indices('.').map(|(at, _)| &module[at + 1..]);
        let row = std::iter::once(module)
            .chain(inner)
            .find_map(|name| self.named.get(name).copied())
            .or_else(|| self.rests.get(module).copied().flatten())?;
        self.rows[row].is_used.set(true);
        Some(self.rows[row].settings)
    }

    /// The first module whose settings no weight was read by.
    pub(super) fn unused(&self) -> Option<&'c str> {
        let unused = self.rows.iter().find(|row| !row.is_used.get());
        unused.map(|row| row.name)
    }
}
