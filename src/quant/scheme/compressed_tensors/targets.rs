//! The group of a configuration whose targets name a module.

use serde_json::Value;

use crate::base::error::Result;
use crate::quant::scheme::context::Context;
use crate::quant::scheme::name_regex::FirstMatch;

/// The settings of the weights of a module, by the group whose targets have its name, or else the first pattern that matches it:
/// compressed-tensors looks for both before it compares classes. `None` where there is neither, or a pattern is not understood.
pub(super) fn of_module<'c>(cx: &Context<'c>, module: &str) -> Result<Option<&'c Value>> {
    let targets = cx.target_groups()?;
    if let Some(weights) = targets.named.get(module) {
        return Ok(*weights);
    }
    let first = targets.patterns.first(module, cx.budget)?;
    Ok(match first {
        FirstMatch::Known((_, weights)) => weights,
        FirstMatch::Unknown | FirstMatch::Nothing => None,
    })
}
