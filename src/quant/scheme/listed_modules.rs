//! A module on the lists of those that are not quantised.

use crate::base::error::Result;

use super::context::Context;
use super::module_lists::Exclusion;

/// The entry of a list of modules that are not quantised.
pub(crate) fn listed<'c>(cx: &Context<'c>, module: &str) -> Result<Option<Exclusion<'c>>> {
    // others leave out what is inside of a module, too
    let is_exact = cx.config.is_of(&[
        "compressed-tensors",
        "modelopt",
        "modelopt_fp4",
        "modelopt_mixed",
    ]);
    let lists = cx.exclusion_lists()?;
    let first = lists.first(module, is_exact, cx.budget)?;
    Ok(first.map(|row| {
        let (key, entry) = lists.entry(row);
        let entry = Some(entry);
        Exclusion { key, entry }
    }))
}
