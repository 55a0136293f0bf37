//! MLX's settings of single modules, by name.
//!
//! mlx-lm compares whole names. A multimodal model has its language model under a prefix, and configurations and files are made by
//! programs of which one has the prefix and the other has not. So a name of the configuration that is no module's names the one module
//! that ends with it, or that it ends with, as whole components. Where several do, or a module has several such names with different
//! settings, no module has them.
//!
//! Source: mlx-lm 0.32, `class_predicate` of `utils.py`.

use std::cell::Cell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use serde_json::Value as Json;

use crate::base::error::Result;
use crate::base::limits::Budget;
use crate::read::catalog::Catalog;

use super::QuantConfig;
use super::module_names::module_of_weight;

const WHAT: &str = "the configuration's settings of modules";

/// The settings of modules.
#[derive(Default)]
pub(super) struct ModuleOverrides<'c> {
    rows: Vec<ModuleOverride<'c>>,
    /// By whole name.
    named: HashMap<&'c str, usize>,
    /// By the rest of a name behind any of its dots; `None` for several names with different settings.
    rests: HashMap<&'c str, Option<usize>>,
}

/// The settings of a module.
struct ModuleOverride<'c> {
    name: &'c str,
    settings: &'c Json,
    /// Whether a module of the file has this name.
    is_exact: bool,
    /// Other modules whose names end alike.
    alike: u64,
    /// Whether a weight has been read by them.
    is_used: Cell<bool>,
}

impl<'c> ModuleOverrides<'c> {
    pub(super) fn new(config: &'c QuantConfig, catalog: &Catalog, budget: &Budget) -> Result<Self> {
        const ENTRY: u64 = 3 * size_of::<(&str, usize)>() as u64;
        let mut made = Self::default();
        let modules = config.map().iter().filter(|(_, value)| value.is_object());
        for (name, settings) in modules {
            // `X.weight` is the weight of module `X`
            let name = module_of_weight(name);
            let dots = name.bytes().filter(|byte| *byte == b'.').count() as u64;
            budget.memory((4 + dots) * ENTRY, WHAT)?;
            let row = made.rows.len();
            made.rows.push(ModuleOverride {
                name,
                settings,
                is_exact: false,
                alike: 0,
                is_used: Cell::new(false),
            });
            made.named.insert(name, row);
            for (at, _) in name.match_indices('.') {
                match made.rests.entry(&name[at + 1..]) {
                    Entry::Vacant(free) => {
                        free.insert(Some(row));
                    }
                    Entry::Occupied(mut taken) => {
                        if taken.get().map(|row| made.rows[row].settings) != Some(settings) {
                            taken.insert(None);
                        }
                    }
                }
            }
        }
        if !made.rows.is_empty() {
            made.count(catalog, budget)?;
        }
        Ok(made)
    }

    /// Counts the modules that each name may be of.
    fn count(&mut self, catalog: &Catalog, budget: &Budget) -> Result<()> {
        for info in catalog.tensors() {
            let name = &*info.name;
            budget.steps(1, WHAT)?;
            let Some(module) = name.strip_suffix(".scales") else {
                continue;
            };
            budget.steps(1 + module.len() as u64 / 4, WHAT)?;
            if let Some(&row) = self.named.get(module) {
                self.rows[row].is_exact = true;
                continue;
            }
            let around = module.match_indices('.').map(|(at, _)| &module[at + 1..]);
            for inner in around {
                if let Some(&row) = self.named.get(inner) {
                    self.rows[row].alike += 1;
                }
            }
            if let Some(&Some(row)) = self.rests.get(module) {
                self.rows[row].alike += 1;
            }
        }
        Ok(())
    }

    /// The settings of a module.
    pub(super) fn of(&self, module: &str) -> Option<&'c Json> {
        let row = match self.named.get(module) {
            Some(&row) => row,
            None => self.alike(module)?,
        };
        self.rows[row].is_used.set(true);
        Some(self.rows[row].settings)
    }

    /// The only settings whose name ends as a module's does.
    fn alike(&self, module: &str) -> Option<usize> {
        let inner = module.match_indices('.').map(|(at, _)| &module[at + 1..]);
        let inner = inner.filter_map(|name| self.named.get(name).copied());
        let longer = self.rests.get(module).copied().flatten();
        let is_free = |row: &usize| !self.rows[*row].is_exact && self.rows[*row].alike == 1;
        let mut found = inner.chain(longer).filter(is_free);
        let first = found.next()?;
        let settings = |row: usize| self.rows[row].settings;
        found
            .all(|row| settings(row) == settings(first))
            .then_some(first)
    }

    /// The first module whose settings no weight was read by.
    pub(super) fn unused(&self) -> Option<&'c str> {
        let unused = self.rows.iter().find(|row| !row.is_used.get());
        unused.map(|row| row.name)
    }
}
