//! Whether the output has the weights of the source: its plan is made before it is written.
//!
//! Schemes recognise weights by names, shapes and the configuration. A rename may take a part from its weight, or give two weights
//! one name. The headers of the output are known, and its bytes are the source's, so that planning it
//! costs as much as planning the source.

use std::collections::{BTreeSet, HashMap};

use crate::base::error::{Error, Result};
use crate::base::limits::Budget;
use crate::base::note::Note;
use crate::engine::companions::{renamed_configuration, renamed_metadata};
use crate::engine::remember::planning::{config_edited, context, reader};
use crate::plan::{Plan, StoredPart};
use crate::quant::scheme::{Context, Exclusion, Sidecars, listed, module_of_weight};
use crate::read::catalog::{Catalog, TensorInfo, Value, quote};
use crate::read::rename::{RenamedTensors, Renames};

use super::weight_parts::{PartGroup, groups};
use super::{Convert, header};

const WHAT: &str = "the plan of the output";

/// Entries that a note names.
const NAMED_ENTRIES: usize = 3;

/// Refuses a plan whose output has other weights than the source. The weights of `source` whose tensors are `kept` must be there, of
/// the same schemes and shapes, and made from the same parts. Returns a note about names in lists that are lost; `as_stored` is the
/// source.
pub(super) fn check(
    as_stored: &Context<'_>,
    what: &Convert<'_>,
    renames: &Renames,
    plan: &Plan,
    source: &[PartGroup],
    kept: &[bool],
) -> Result<Option<Note>> {
    let metadata_differs =
        !what.metadata.is_empty() || !as_stored.catalog.differing_values.is_empty();
    let is_same = renames.is_empty() && !metadata_differs;
    if is_same || source.iter().all(|group| group.known.is_none()) {
        // tensors that were left out are whole weights, so that the others are what they were
        return Ok(None);
    }
    let budget = as_stored.budget;
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
            // names of parts in it are compared under the old ones
            let name = |part: &StoredPart| {
                let old = &as_stored.info(stored[part.tensor]).name;
                (
                    format!("{:?}", cx.info(part.tensor).name),
                    format!("{old:?}"),
                )
            };
            let names = written.parts.iter().map(name);
            let settings = names.fold(written.settings(), |text, (new, old)| {
                text.replace(&new, &old)
            });
            written.scheme == known.scheme
                && written.shape == known.shape
                && parts == wanted
                && settings == known.settings()
        });
        if !same {
            let why = match metadata_differs {
                true if renames.is_empty() => {
                    "with the metadata of the output: keep the keys that describe it"
                }
                _ => "under the new names of its parts: rename all of them alike",
            };
            let what = format!(
                "the weight {}, {}, would no longer be one, or have other values, {why}",
                quote(&group.name),
                known.scheme
            );
            return Err(Error::invalid_argument(what));
        }
    }
    lost_exclusions(as_stored, &cx, &stored)
}

/// The note about entries that say of modules that they are not quantised, and that do not name them any more: parts of names and
/// regular expressions stay. `stored`: the tensors of the output in the source's numbers.
fn lost_exclusions(
    source: &Context<'_>,
    output: &Context<'_>,
    stored: &[usize],
) -> Result<Option<Note>> {
    let (mut lost, mut first, mut count) = (BTreeSet::new(), None, 0);
    for (tensor, &old) in output.catalog.tensors().iter().zip(stored) {
        let name = &*source.info(old).name;
        let entry = listed(source, module_of_weight(name))?;
        let Some(Exclusion { key, entry }) = entry.filter(|_| *name != *tensor.name) else {
            continue;
        };
        if listed(output, module_of_weight(&tensor.name))?.is_none() {
            lost.insert((key, entry));
            first.get_or_insert(&tensor.name);
            count += 1;
        }
    }
    let Some(first) = first else { return Ok(None) };
    let named = lost.iter().take(NAMED_ENTRIES).map(|(key, entry)| {
        let entry = entry.map(quote).unwrap_or_default();
        format!("{entry} of {key}")
    });
    let named: Vec<String> = named.collect();
    let others = match lost.len().checked_sub(NAMED_ENTRIES) {
        Some(more @ 1..) => format!(" and {more} others"),
        _ => String::new(),
    };
    let (names, tensors) = match count {
        1 => ("name", "tensor that is"),
        _ => ("names", "tensors that are"),
    };
    Ok(Some(Note::from(format!(
        "the configuration does not match the new {names} of {count} {tensors} not quantised, such as {}: change {}{others} in it",
        quote(first),
        named.join(", ")
    ))))
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
    if source.format == "safetensors" {
        for (key, text) in header::described(what)? {
            catalog
                .metadata
                .push_charged(&key, Value::text(text), budget)?;
        }
    } else {
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
    }
    catalog.members.clone_from(&source.members);
    catalog.files.clone_from(&source.files);
    catalog.index_names(budget)?;
    Ok((catalog, stored))
}
