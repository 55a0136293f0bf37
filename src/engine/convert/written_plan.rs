//! Whether the output has the weights of the source: its plan is made before it is written.
//!
//! Schemes recognise weights by names, shapes and the configuration. A rename may take a part from its weight, or give two weights
//! one name. The headers of the output are known, and its bytes are the source's, so that planning it
//! costs as much as planning the source.

use std::collections::HashMap;

use crate::base::error::{Error, Result};
use crate::base::limits::Budget;
use crate::engine::companions::{renamed_configuration, renamed_metadata};
use crate::engine::remember::planning::{config_edited, context, reader};
use crate::plan::Plan;
use crate::quant::scheme::Sidecars;
use crate::read::catalog::{Catalog, TensorInfo, Value, quote};
use crate::read::rename::{RenamedTensors, Renames};

use super::Convert;
use super::weight_parts::{PartGroup, groups};

const WHAT: &str = "the plan of the output";

/// Refuses a plan whose output has other weights than the source. The weights of `source` whose tensors are `kept` must be there, of
/// the same schemes and shapes, and made from the same parts.
pub(super) fn check(
    what: &Convert<'_>,
    renames: &Renames,
    plan: &Plan,
    source: &[PartGroup],
    kept: &[bool],
    budget: &Budget,
) -> Result<()> {
    if renames.is_empty() || source.iter().all(|group| group.known.is_none()) {
        // tensors that were left out are whole weights, so that the others are what they were
        return Ok(());
    }
    let weights = &what.weights;
    let checkpoint = &*weights.checkpoint;
    let _tree = budget.scope();
    let names = what.renamed_tensors(renames);
    let (catalog, stored) = described(what, &names, plan, budget)?;
    let edit = |file: &str, text: Vec<u8>| renamed_configuration(file, &text, &names, budget);
    let config = config_edited(weights, &edit, budget)?;
    let read = reader(checkpoint);
    let sidecars = Sidecars::default();
    let mut cx = context(weights, &config, &read, &sidecars, budget);
    cx.catalog = &catalog;
    let check = || weights.options.control.check();
    let written = groups(&cx, &mut Plan::default(), &check)?;
    // by the first part, in the source's numbers
    let mut found = HashMap::new();
    for group in &written {
        if let Some(known) = &group.known {
            found.insert(stored[group.tensors[0]], known);
        }
    }
    for group in source.iter().filter(|group| kept[group.tensors[0]]) {
        let Some(known) = &group.known else { continue };
        let same = found.get(&group.tensors[0]).is_some_and(|written| {
            let mut parts: Vec<_> = written
                .parts
                .iter()
                .map(|part| (part.role, stored[part.tensor]))
                .collect();
            let mut wanted: Vec<_> = known
                .parts
                .iter()
                .map(|part| (part.role, part.tensor))
                .collect();
            parts.sort_unstable();
            wanted.sort_unstable();
            written.scheme == known.scheme && written.shape == known.shape && parts == wanted
        });
        if !same {
            let what = format!(
                "the weight {}, {}, would no longer be one under the new names of its parts: rename all of them alike",
                quote(&group.name),
                known.scheme
            );
            return Err(Error::invalid_argument(what));
        }
    }
    Ok(())
}

/// The catalog of the output, and the number of each tensor in the source.
fn described(
    what: &Convert<'_>,
    names: &RenamedTensors<'_>,
    plan: &Plan,
    budget: &Budget,
) -> Result<(Catalog, Vec<usize>)> {
    let source = what.weights.checkpoint.catalog();
    let mut catalog = Catalog::new(source.format);
    let mut stored = Vec::new();
    for job in &plan.jobs {
        let tensor = job.parts[0].tensor;
        let info = &source.tensors()[tensor];
        budget.described_tensor(job.output.name.len())?;
        let renamed = TensorInfo {
            name: job.output.name.clone(),
            ..info.clone()
        };
        budget.push(&mut catalog.tensors, renamed, WHAT)?;
        budget.push(&mut stored, tensor, WHAT)?;
    }
    for (key, value) in source.metadata.iter() {
        let (key, value) = match value {
            Value::Text(text) => {
                let (key, text) = renamed_metadata(key, text, names, budget)?;
                (key, Value::text(text))
            }
            other => (key.to_owned(), other.clone()),
        };
        catalog.metadata.push_charged(&key, value, budget)?;
    }
    catalog.members.clone_from(&source.members);
    catalog.files.clone_from(&source.files);
    catalog.index_names(budget)?;
    Ok((catalog, stored))
}
