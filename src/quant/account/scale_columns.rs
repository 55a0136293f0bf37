//! Columns of factors beside FP8 without scales, under any name: in the same dictionary, or at the same place of another one. Nothing
//! else in a model is a matrix of one column with a row for each of a weight's.

use std::collections::HashMap;

use crate::base::error::Result;
use crate::quant::scheme::Context;
use crate::read::catalog::quote;

use super::integers::is_float;
use super::tensor_claim::{TensorClaim, is_unscaled};

const WHAT: &str = "the scales of FP8";

/// Adds weights without scales that a column of factors is beside to `warnings`.
pub(super) fn find(
    cx: &Context<'_>,
    slots: &[TensorClaim],
    warnings: &mut Vec<String>,
) -> Result<()> {
    let column = |tensor: usize| {
        let info = cx.info(tensor);
        let is_free = matches!(slots[tensor], TensorClaim::Free) && is_float(&info.encoding);
        match info.shape[..] {
            [rows, 1] if is_free && rows > 1 => Some(rows),
            _ => None,
        }
    };
    // the dictionary of a name, and its place in the dictionary that is the whole of the first component
    let around = |name: &'_ str| {
        let end = name.rfind('.')?;
        let start = name.find('.')?;
        Some((end, start + 1))
    };
    let mut found: HashMap<(bool, &str), usize> = HashMap::new();
    for (tensor, _) in slots.iter().enumerate() {
        if column(tensor).is_none() {
            continue;
        }
        let name = &*cx.info(tensor).name;
        cx.budget.steps(1 + name.len() as u64 / 16, WHAT)?;
        if let Some((end, start)) = around(name) {
            cx.budget.memory(96, WHAT)?;
            found.entry((true, &name[..end])).or_insert(tensor);
            found.entry((false, &name[start..])).or_insert(tensor);
        }
    }
    if found.is_empty() {
        return Ok(());
    }
    for (tensor, slot) in slots.iter().enumerate() {
        let info = cx.info(tensor);
        let (&[rows, _], true) = (&info.shape[..], is_unscaled(slot)) else {
            continue;
        };
        let name = &*info.name;
        cx.budget.steps(1 + name.len() as u64 / 16, WHAT)?;
        let Some((end, start)) = around(name) else {
            continue;
        };
        // a tensor on the stem of `X.weight` is a left-over tensor, but for adapters
        let is_other = |factor: &usize| {
            let own = cx.info(*factor).name[..].strip_prefix(&name[..=end]);
            !name.ends_with(".weight") || own.is_none_or(|own| own.starts_with("lora_"))
        };
        let factor = [(true, &name[..end]), (false, &name[start..])]
            .iter()
            .find_map(|key| found.get(key).copied().filter(is_other));
        if let Some(factor) = factor.filter(|factor| column(*factor) == Some(rows)) {
            let (own, factor) = (quote(name), quote(&cx.info(factor).name));
            let text = format!("{own}: {factor} may be its scale; the weight is made without it");
            cx.budget.text(text.len(), WHAT)?;
            warnings.push(text);
        }
    }
    Ok(())
}
