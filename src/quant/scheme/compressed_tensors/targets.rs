//! The group of a configuration whose targets name a module.

use serde_json::Value;

use crate::base::error::Result;
use crate::quant::scheme::context::Context;
use crate::quant::scheme::name_regex;

/// The settings of the weights of a module, by the group whose targets have its name, or else the first pattern that matches it:
/// compressed-tensors looks for both before it compares classes. `None` where there is neither, or a pattern is not understood.
pub(super) fn of_module<'c>(cx: &Context<'c>, module: &str) -> Result<Option<&'c Value>> {
    let groups = cx.config.get("config_groups").and_then(Value::as_object);
    let mut matching = None;
    for group in groups.into_iter().flat_map(|groups| groups.values()) {
        let targets = group.get("targets").and_then(Value::as_array);
        for target in targets.into_iter().flatten().filter_map(Value::as_str) {
            let cost = 1 + (target.len() + module.len()) as u64 / 8;
            cx.budget.steps(cost, "the configured groups")?;
            if target == module {
                return Ok(group.get("weights"));
            }
            let Some(pattern) = target.strip_prefix("re:") else {
                continue;
            };
            match name_regex::matches(pattern, module, false) {
                Some(true) if matching.is_none() => matching = group.get("weights"),
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }
    Ok(matching)
}
