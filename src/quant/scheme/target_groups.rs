//! The targets of the groups of compressed-tensors, read once for all weights.

use std::collections::HashMap;

use serde_json::Value;

use crate::base::error::Result;
use crate::base::limits::Budget;

use super::QuantConfig;
use super::name_regex::{NamePatterns, PatternKind};

const WHAT: &str = "the configured groups";

/// The targets of all groups, with the settings of weights. There may be a target for each module, so they are read once.
#[derive(Default)]
pub(super) struct TargetGroups<'c> {
    pub(super) named: HashMap<&'c str, Option<&'c Value>>,
    /// With the text of each.
    pub(super) patterns: NamePatterns<'c, (&'c str, Option<&'c Value>)>,
}

impl<'c> TargetGroups<'c> {
    pub(super) fn read(config: &'c QuantConfig, budget: &Budget) -> Result<Self> {
        let groups = config.get("config_groups").and_then(Value::as_object);
        let (mut found, mut patterns) = (Self::default(), Vec::new());
        for group in groups.into_iter().flat_map(|groups| groups.values()) {
            let (weights, targets) = (group.get("weights"), group.get("targets"));
            let targets = targets.and_then(Value::as_array);
            for target in targets.into_iter().flatten().filter_map(Value::as_str) {
                budget.steps(1 + target.len() as u64 / 8, WHAT)?;
                match target.strip_prefix("re:") {
                    Some(text) => {
                        let row = (text, PatternKind::Begins, (target, weights));
                        budget.push(&mut patterns, row, WHAT)?;
                    }
                    None => {
                        budget.memory(64, WHAT)?;
                        found.named.entry(target).or_insert(weights);
                    }
                }
            }
        }
        found.patterns = NamePatterns::new(patterns.into_iter(), budget)?;
        Ok(found)
    }
}
