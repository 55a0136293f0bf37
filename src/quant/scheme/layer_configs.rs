//! Quark's settings of layers, by name and pattern.

use std::collections::HashMap;

use serde_json::Value as Json;

use crate::base::error::Result;
use crate::base::limits::Budget;

use super::QuantConfig;
use super::module_names::PrefixPatterns;

/// `layer_quant_config`: settings by the layer's name, or by a pattern with `*`.
#[derive(Default)]
pub(super) struct LayerConfigs<'c> {
    all: Vec<&'c Json>,
    named: HashMap<&'c str, usize>,
    patterns: PrefixPatterns<'c>,
}

impl<'c> LayerConfigs<'c> {
    pub(super) fn new(config: &'c QuantConfig, budget: &Budget) -> Result<Self> {
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
    pub(super) fn first(&self, layer: &str, budget: &Budget) -> Result<Option<&'c Json>> {
        let named = self.named.get(layer).copied();
        let pattern = self.patterns.first(layer, budget, fits)?;
        let first = match (named, pattern) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Ok(first.map(|position| self.all[position]))
    }
}

/// Whether a pattern with `*` matches a whole name, as `fnmatch` does.
pub(super) fn is_glob_of(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        Some((before, behind)) => name
            .strip_prefix(before)
            .is_some_and(|rest| fits(rest, behind)),
        None => pattern == name,
    }
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
