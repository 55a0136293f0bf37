//! Which stored tensors go together: the parts of a weight.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::base::error::{Error, Result};
use crate::plan::{Decoder, Plan, RefusedWeight, StoredPart};
use crate::quant::account::{TensorClaim, claims, classify_unclaimed};
use crate::quant::scheme::Context;
use crate::read::catalog::{Shape, quote};

use super::is_recognised;

const WHAT: &str = "the parts of the weights";

/// A weight whose parts are copied together.
pub(super) struct PartGroup {
    pub(super) name: Box<str>,
    /// Scheme, shape and roles; `None` where no scheme decodes it, and the parts are those below one module.
    pub(super) known: Option<KnownWeight>,
    /// Indices of the stored tensors.
    pub(super) tensors: Vec<usize>,
}

/// A weight that a scheme has recognised.
#[derive(Clone)]
pub(super) struct KnownWeight {
    pub(super) scheme: &'static str,
    pub(super) shape: Shape,
    pub(super) parts: Vec<StoredPart>,
    /// Rows and columns that share a scale.
    pub(super) block: Option<(u64, u64)>,
    pub(super) decoder: Arc<dyn Decoder>,
}

impl KnownWeight {
    /// Whether another reading of the same stored tensors gives the same values.
    pub(super) fn is_read_as(&self, other: &Self) -> bool {
        self.scheme == other.scheme
            && self.shape == other.shape
            && self.parts == other.parts
            && self.settings() == other.settings()
    }

    /// All settings of the decoder, as for the id of a plan: its debug form. It may have names of parts.
    pub(super) fn settings(&self) -> String {
        format!("{:?}", self.decoder)
    }
}

/// The weights of a checkpoint, and its tensors that are none because something about them is not known.
pub(super) struct StoredWeights {
    pub(super) groups: Vec<PartGroup>,
    /// Whether each stored tensor is a part of a weight that is refused, or refused itself.
    pub(super) is_refused: Vec<bool>,
    refusals: Vec<RefusedWeight>,
}

impl StoredWeights {
    /// Whether a tensor is refused.
    pub(super) fn has_refused(&self) -> bool {
        self.is_refused.contains(&true)
    }

    /// The note about weights that are refused, of which at least one is `kept`.
    pub(super) fn note(&self, cx: &Context<'_>, kept: &[bool]) -> Result<Option<String>> {
        let tensors = cx.catalog.tensors();
        cx.budget.memory(64 * tensors.len() as u64, WHAT)?;
        let mut left_out: HashSet<&str> = HashSet::new();
        let tensors = tensors.iter().zip(kept).filter(|(_, kept)| !**kept);
        left_out.extend(tensors.map(|(info, _)| &*info.name));
        let groups = self.groups.iter();
        let groups = groups.filter(|group| !kept[group.tensors[0]]);
        left_out.extend(groups.map(|group| &*group.name));
        let is_kept = |weight: &&RefusedWeight| {
            let module = weight.name.rsplit_once('.').map(|(module, _)| module);
            !left_out.contains(&*weight.name)
                && !module.is_some_and(|module| left_out.contains(module))
        };
        let mut refused = self.refusals.iter().filter(is_kept);
        let Some(first) = refused.next() else {
            return Ok(None);
        };
        let weights = match refused.count() {
            0 => "1 weight is".to_owned(),
            more => format!("{} weights are", more + 1),
        };
        Ok(Some(format!(
            "{weights} copied as stored, and could not be dequantised: {}",
            first.error.kind()
        )))
    }

    /// The name of the refused weight that a tensor is a part of, and the reason.
    pub(super) fn refusal(&self, cx: &Context<'_>, tensor: usize) -> (String, String) {
        let own = &*cx.info(tensor).name;
        let group = self
            .groups
            .iter()
            .find(|group| group.known.is_none() && group.tensors.contains(&tensor));
        let name = group.map_or(own, |group| &group.name);
        let is_of = |refused: &&RefusedWeight| {
            let module = refused.name.rsplit_once('.').map(|(module, _)| module);
            *refused.name == *name || *refused.name == *own || module == Some(name)
        };
        let found = self.refusals.iter().find(is_of);
        let why = found.map_or_else(
            || "what is beside it is not known".to_owned(),
            |refused| refused.error.kind().to_string(),
        );
        (quote(name), why)
    }
}

/// The weights of a checkpoint with several parts, or of a scheme. Notes of planning are added to the plan.
pub(super) fn groups(
    cx: &Context<'_>,
    plan: &mut Plan,
    check: &dyn Fn() -> Result<()>,
) -> Result<StoredWeights> {
    let mut planned = Plan::default();
    let slots = claims(cx, &mut planned, &|_| true, check)?;
    let mut found = Vec::new();
    let mut is_refused = Vec::new();
    cx.budget.reserve(&mut is_refused, slots.len(), WHAT)?;
    for (tensor, slot) in slots.iter().enumerate() {
        is_refused.push(match slot {
            // where nothing is refused, there is no note about it either
            TensorClaim::Free => !cx.assume_plain && classify_unclaimed(cx, tensor).is_err(),
            TensorClaim::Weight(_) => false,
            // until its weight is found
            TensorClaim::Refused(_) | TensorClaim::Taken => true,
        });
        cx.check()?;
    }
    let mut refused_weights = Vec::new();
    for slot in slots {
        if let TensorClaim::Refused(weight) = slot {
            cx.budget.push(&mut refused_weights, weight, WHAT)?;
        } else if let TensorClaim::Weight(weight) = slot {
            let group = PartGroup {
                name: weight.name,
                tensors: weight.parts.iter().map(|part| part.tensor).collect(),
                known: Some(KnownWeight {
                    block: weight.decoder.numbers().and_then(|numbers| numbers.block),
                    decoder: weight.decoder,
                    scheme: weight.scheme,
                    shape: weight.shape,
                    parts: weight.parts,
                }),
            };
            cx.budget.push(&mut found, group, WHAT)?;
        }
    }
    let mut taken = vec![false; cx.catalog.tensors().len()];
    for group in &found {
        group
            .tensors
            .iter()
            .for_each(|&tensor| taken[tensor] = true);
    }
    let parts = found.iter().flat_map(|group| &group.tensors);
    parts.for_each(|&part| is_refused[part] = false);
    let refused = planned.refused.iter();
    let refused = refused.filter(|refused| is_recognised(&refused.error));
    let mut below = match refused.clone().next().is_some() || !refused_weights.is_empty() {
        true => by_module(cx)?,
        false => HashMap::new(),
    };
    for weight in refused_weights {
        let module = weight.name.strip_suffix(".weight");
        let beside = module.and_then(|module| below.remove(module));
        let parts = weight.parts.iter().map(|part| part.tensor);
        let mut tensors = Vec::new();
        for tensor in parts.chain(beside.unwrap_or_default()) {
            if !std::mem::replace(&mut taken[tensor], true) {
                cx.budget.push(&mut tensors, tensor, WHAT)?;
            }
        }
        if !tensors.is_empty() {
            let group = PartGroup {
                name: weight.name,
                known: None,
                tensors,
            };
            cx.budget.push(&mut found, group, WHAT)?;
        }
    }
    for refused in refused {
        let Some((module, _)) = refused.name.rsplit_once('.') else {
            continue;
        };
        let mut tensors = below.remove(module).unwrap_or_default();
        tensors.retain(|&tensor| !taken[tensor]);
        tensors.iter().for_each(|&tensor| taken[tensor] = true);
        if !tensors.is_empty() {
            let group = PartGroup {
                name: module.into(),
                known: None,
                tensors,
            };
            cx.budget.push(&mut found, group, WHAT)?;
        }
    }
    plan.notes.extend(planned.notes);
    plan.unexplained.extend(planned.unexplained);
    Ok(StoredWeights {
        groups: found,
        is_refused,
        refusals: planned.refused,
    })
}

/// Whether no other tensor stands in the module of one, or is named after it: nothing that it could be a part of.
pub(super) fn is_tensor_alone(cx: &Context<'_>, tensor: usize) -> Result<bool> {
    let name = &*cx.info(tensor).name;
    let module = name.rsplit_once('.').map(|(module, _)| module);
    let tensors = cx.catalog.tensors();
    cx.budget.steps(tensors.len() as u64, WHAT)?;
    Ok(!tensors.iter().enumerate().any(|(other, info)| {
        let beside = match module {
            Some(module) => info.name.strip_prefix(module),
            None => info.name.strip_prefix(name),
        };
        other != tensor && beside.is_some_and(|rest| rest.starts_with(['.', '_']))
    }))
}

/// The tensors right below each module.
fn by_module<'c>(cx: &Context<'c>) -> Result<HashMap<&'c str, Vec<usize>>> {
    let tensors = cx.catalog.tensors();
    cx.budget.memory(128 * tensors.len() as u64, WHAT)?;
    let mut found: HashMap<&str, Vec<usize>> = HashMap::new();
    for (tensor, info) in tensors.iter().enumerate() {
        cx.budget.steps(1 + info.name.len() as u64 / 64, WHAT)?;
        if let Some((module, _)) = info.name.rsplit_once('.') {
            found.entry(module).or_default().push(tensor);
        }
    }
    Ok(found)
}

/// Decides which tensors are copied. A weight is selected by its name or the name of a part, and left out by its name or by the
/// names of all parts.
pub(super) fn selected(
    cx: &Context<'_>,
    groups: &[PartGroup],
    includes: &dyn Fn(&str) -> bool,
    excludes: &dyn Fn(&str) -> bool,
) -> Result<Vec<bool>> {
    let name = |tensor: usize| &*cx.info(tensor).name;
    let mut kept: Vec<bool> = (0..cx.catalog.tensors().len())
        .map(|tensor| includes(name(tensor)) && !excludes(name(tensor)))
        .collect();
    for group in groups {
        let all = || group.tensors.iter().map(|&tensor| name(tensor));
        let is_included = includes(&group.name) | all().any(includes);
        let left_out: Vec<&str> = all().filter(|name| excludes(name)).collect();
        let is_excluded = left_out.len() == group.tensors.len() || excludes(&group.name);
        if is_included
            && !is_excluded
            && let Some(part) = left_out.first()
        {
            let what = format!(
                "{} is a part of the weight {}, which would be left without it: leave out the weight, or all of its parts",
                quote(part),
                quote(&group.name)
            );
            return Err(Error::invalid_argument(what));
        }
        for &tensor in &group.tensors {
            kept[tensor] = is_included && !is_excluded;
        }
    }
    Ok(kept)
}
