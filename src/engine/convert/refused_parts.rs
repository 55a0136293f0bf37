//! The parts of a refused weight stay together.
//!
//! A weight is refused because of something that stands beside its codes, or is missing there. Without that, under another name or
//! left out, the rest would have the names and shapes of a scheme that is known, and decode to other values. A copy of all parts under
//! names that are alike is refused by every reader as the source is.

use crate::base::error::{Error, Remedy, Result};
use crate::quant::scheme::Context;
use crate::read::catalog::quote;
use crate::read::rename::Renames;

use super::weight_parts::{PartGroup, StoredWeights, is_tensor_alone};

/// Refuses new names by which the parts of a refused weight are no parts of one module any more.
pub(super) fn check_names(
    cx: &Context<'_>,
    weights: &StoredWeights,
    kept: &[bool],
    renames: &Renames,
) -> Result<()> {
    if renames.is_empty() {
        return Ok(());
    }
    let groups = weights.groups.iter();
    for group in groups.filter(|group| group.known.is_none() && kept[group.tensors[0]]) {
        if let Some(part) = renamed_alone(cx, group, renames) {
            let (name, why) = weights.refusal(cx, part);
            let part = quote(&cx.info(part).name);
            let what = format!(
                "{part} is a part of the weight {name}, which is refused as it is stored ({why}): rename all of its parts alike"
            );
            return Err(Error::invalid_argument(what));
        }
    }
    Ok(())
}

/// A part whose new name is not the one that the others have, with its own end.
fn renamed_alone(cx: &Context<'_>, group: &PartGroup, renames: &Renames) -> Option<usize> {
    let module = match group.name.strip_suffix(".weight") {
        Some(module) => module,
        None => &*group.name,
    };
    let mut first: Option<String> = None;
    for &part in &group.tensors {
        let name = &*cx.info(part).name;
        let Some(end) = name.strip_prefix(module) else {
            continue;
        };
        let new = renames.preview(name);
        // a module without a name has no dot in front of its tensors
        let bare = end.strip_prefix('.').filter(|bare| new == **bare);
        let front = match new.strip_suffix(end) {
            Some(front) => front.to_owned(),
            None if bare.is_some() => String::new(),
            None => return Some(part),
        };
        if first.get_or_insert_with(|| front.clone()) != &front {
            return Some(part);
        }
    }
    None
}

/// Refuses an output of which a tensor is decoded, or copied as a plain one, that the source refuses. `outputs`: the weights of the
/// output, and the number of each of its tensors in the source.
pub(super) fn check_output(
    source: &Context<'_>,
    weights: &StoredWeights,
    (outputs, stored): (&StoredWeights, &[usize]),
    is_renamed: bool,
) -> Result<()> {
    if !weights.has_refused() {
        return Ok(());
    }
    let refused = |tensor: usize, how: &str| {
        let (name, why) = weights.refusal(source, tensor);
        let what = format!(
            "the weight {name} is refused as it is stored ({why}), and the output would have it {how}"
        );
        // without a rename, another format or the absence of a tensor is the reason
        Err(match is_renamed {
            true => Error::invalid_argument(format!(
                "{what}: rename all of its parts alike, or leave all of them out"
            )),
            false => Error::invalid_argument(what).with_remedy(Remedy::LeaveOutOrAssumePlain),
        })
    };
    let mut is_part = vec![false; stored.len()];
    for group in &outputs.groups {
        group.tensors.iter().for_each(|&part| is_part[part] = true);
        let Some(known) = &group.known else { continue };
        let mut parts = group.tensors.iter().map(|&part| stored[part]);
        if let Some(part) = parts.find(|&part| weights.is_refused[part]) {
            return refused(part, &format!("as a weight of {}", known.scheme));
        }
    }
    for (new, &old) in stored.iter().enumerate() {
        let is_plain = !outputs.is_refused[new] && !is_part[new];
        if weights.is_refused[old] && is_plain && !is_tensor_alone(source, old)? {
            return refused(old, "as one that is not quantised");
        }
    }
    Ok(())
}
