//! Which stored tensors go together: the parts of a weight.

use std::collections::HashMap;
use std::sync::Arc;

use crate::base::error::{Error, Result};
use crate::plan::{Decoder, Plan, StoredPart};
use crate::quant::account::{TensorClaim, claims};
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

/// The weights of a checkpoint with several parts, or of a scheme. Notes of planning are added to the plan.
pub(super) fn groups(
    cx: &Context<'_>,
    plan: &mut Plan,
    check: &dyn Fn() -> Result<()>,
) -> Result<Vec<PartGroup>> {
    let mut planned = Plan::default();
    let slots = claims(cx, &mut planned, &|_| true, check)?;
    let mut found = Vec::new();
    for slot in slots {
        if let TensorClaim::Weight(weight) = slot {
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
    let mut refused = planned.refused.iter().peekable();
    if refused.peek().is_some() {
        let first = &refused.peek().expect("there is one").error;
        plan.notes.push(format!(
            "{} weights are copied as they are stored, and could not be dequantised: {}",
            planned.refused.len(),
            first.kind()
        ));
    }
    let refused = refused.filter(|refused| is_recognised(&refused.error));
    let mut below = match refused.clone().next() {
        Some(_) => by_module(cx)?,
        None => HashMap::new(),
    };
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
    Ok(found)
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
