//! Quark's settings of layers, by name and pattern.

use std::collections::HashMap;

use serde_json::Value as Json;

use crate::base::error::Result;
use crate::base::limits::Budget;

use super::QuantConfig;
use super::module_names::PrefixPatterns;
use super::name_regex::{NamePatterns, PatternKind};

/// The signs of `fnmatch`.
pub(super) const GLOB_SIGNS: [char; 3] = ['*', '?', '['];

/// Those that stand for one letter.
pub(super) const CLASS_SIGNS: [char; 2] = ['?', '['];

/// `layer_quant_config`: settings by the layer's name, or by a pattern with `*`.
#[derive(Default)]
pub(super) struct LayerConfigs<'c> {
    all: Vec<(&'c str, &'c Json)>,
    named: HashMap<&'c str, usize>,
    patterns: PrefixPatterns<'c>,
    /// Patterns with other signs than `*`.
    pub(super) others: NamePatterns<'c, usize>,
}

impl<'c> LayerConfigs<'c> {
    pub(super) fn new(config: &'c QuantConfig, budget: &Budget) -> Result<Self> {
        const ROW: u64 = 3 * size_of::<(&Json, &str, usize)>() as u64;
        let Some(layers) = config.get("layer_quant_config").and_then(Json::as_object) else {
            return Ok(Self::default());
        };
        budget.memory(ROW * layers.len() as u64, "layer_quant_config")?;
        let names = || layers.keys().map(String::as_str).enumerate();
        let named = names().filter(|(_, name)| !name.contains(GLOB_SIGNS));
        let globs = names().filter(|(_, name)| !name.contains(CLASS_SIGNS));
        let others = names().filter(|(_, name)| name.contains(CLASS_SIGNS));
        let others = others.map(|(position, name)| (name, PatternKind::Glob, position));
        Ok(Self {
            all: layers.iter().map(|(name, row)| (&**name, row)).collect(),
            named: named.map(|(position, name)| (name, position)).collect(),
            patterns: PrefixPatterns::new(globs, budget)?,
            others: NamePatterns::new(others, budget)?,
        })
    }

    /// The first name or pattern that matches, and its settings.
    pub(super) fn first(
        &self,
        layer: &str,
        budget: &Budget,
    ) -> Result<Option<(&'c str, &'c Json)>> {
        let named = self.named.get(layer).copied();
        let pattern = self.patterns.first(layer, budget, fits)?;
        let other = self.others.first_known(layer, budget)?;
        let first = [named, pattern, other].into_iter().flatten().min();
        Ok(first.map(|position| self.all[position]))
    }
}

/// Whether the rest of a name matches the rest of a pattern behind its first `*`.
pub(super) fn fits(mut rest: &str, pattern: &str) -> bool {
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
