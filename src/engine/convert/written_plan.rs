//! Whether the output has the weights of the source: its plan is made before it is written.
//!
//! Schemes recognise weights by names, shapes and the configuration. A rename may take a part from its weight, or give two weights
//! one name. The headers of the output are known, and its bytes are the source's, so that planning it
//! costs as much as planning the source.

use std::collections::{BTreeSet, HashMap};

use crate::base::error::{Error, Result};
use crate::base::limits::Budget;
use crate::base::note::Note;
use crate::engine::companions::renamed_configuration;
use crate::engine::remember::planning::{config_edited, context, reader};
use crate::plan::{Plan, StoredPart};
use crate::quant::scheme::{
    Context, ModuleEntry, TENSOR_NAMES, entries_of_module, module_of_weight,
};
use crate::read::catalog::{Catalog, TensorInfo, quote};
use crate::read::rename::{RenamedTensors, Renames};

use super::weight_parts::{PartGroup, StoredWeights, groups};
use super::{Convert, header, refused_parts};

const WHAT: &str = "the plan of the output";

/// Entries that a note names.
const NAMED_ENTRIES: usize = 3;

/// Refuses a plan whose output has other weights than the source. The weights of `source` whose tensors are `kept` must be there, of
/// the same schemes and shapes, and made from the same parts; those that it refuses must be refused. Returns notes: about entries that do not follow a rename, or about
/// metadata that is not known. `as_stored` is the source, and `unexplained` are its own unknown statements.
pub(super) fn check(
    as_stored: &Context<'_>,
    what: &Convert<'_>,
    renames: &Renames,
    plan: &Plan,
    (weights_of_source, kept): (&StoredWeights, &[bool]),
    unexplained: &[String],
) -> Result<Vec<Note>> {
    let metadata_differs = !what.metadata.is_empty()
        || !as_stored.catalog.differing_values.is_empty()
        || is_of_another_format(as_stored.catalog);
    let source = &weights_of_source.groups;
    let has_refused = weights_of_source.has_refused();
    let is_same = renames.is_empty() && !metadata_differs;
    // tensors that were left out are whole weights, so that the others are what they were, unless one of them is the reason for a
    // refusal
    let is_as_it_was = is_same && !(has_refused && kept.contains(&false));
    if is_as_it_was || (!has_refused && source.iter().all(|group| group.known.is_none())) {
        return Ok(Vec::new());
    }
    refused_parts::check_names(as_stored, weights_of_source, kept, renames)?;
    check_list(as_stored, what, (source, kept))?;
    let budget = as_stored.budget;
    let weights = &what.weights;
    let checkpoint = &*weights.checkpoint;
    let _tree = budget.scope();
    let names = what.renamed_tensors(renames);
    let (catalog, stored) = described(what, &names, plan, budget)?;
    let edit = |file: &str, text: Vec<u8>| renamed_configuration(file, &text, &names, budget);
    let config = config_edited(weights, &edit, budget)?;
    let read = reader(checkpoint);
    let mut cx = context(weights, &config, &read, as_stored.sidecars, budget);
    cx.catalog = &catalog;
    let check = || weights.options.control.check();
    let mut described = Plan::default();
    let weights_of_output = groups(&cx, &mut described, &check)?;
    let outputs = (&weights_of_output, &*stored);
    refused_parts::check_output(as_stored, weights_of_source, outputs, !renames.is_empty())?;
    let written = &weights_of_output.groups;
    // by the first part, in the source's numbers
    let mut found = HashMap::new();
    for group in written {
        if let Some(known) = &group.known {
            found.insert(stored[group.tensors[0]], (&*group.name, known));
        }
    }
    for group in source.iter().filter(|group| kept[group.tensors[0]]) {
        let Some(known) = &group.known else { continue };
        let same = found.get(&group.tensors[0]).is_some_and(|(_, written)| {
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
            let why = match (is_of_another_format(as_stored.catalog), renames.is_empty()) {
                (true, true) => {
                    "in another format, which has no place for what describes it: dequantise it (`--dtype`), or keep the file"
                }
                (true, false) => {
                    "under its new name in another format: copy it without a rename first"
                }
                // without a rename, the metadata alone can differ
                (false, true) => "with the metadata of the output: keep the keys that describe it",
                (false, false) => "under the new names of its parts: rename all of them alike",
            };
            let what = format!(
                "the weight {}, {}, would no longer be one, or have other values, {why}",
                quote(&group.name),
                known.scheme
            );
            return Err(Error::invalid_argument(what));
        }
    }
    let new_names = |tensor: usize| found.get(&tensor).map(|(name, _)| *name);
    let weights = source
        .iter()
        .filter(|group| group.known.is_some())
        .filter_map(|group| Some((&*group.name, new_names(group.tensors[0])?)));
    let mut is_part = vec![false; kept.len()];
    for group in source.iter().filter(|group| group.known.is_some()) {
        group.tensors.iter().for_each(|&part| is_part[part] = true);
    }
    let plain = stored.iter().enumerate();
    let plain = plain.filter(|(_, tensor)| !is_part[**tensor]);
    let plain = plain.map(|(new, &old)| (&*as_stored.info(old).name, &*cx.info(new).name));
    if !renames.is_empty() {
        let note = entries_that_stay((as_stored, &cx), weights.chain(plain), &names)?;
        return Ok(note.into_iter().collect());
    }
    // statements of the new metadata that readers do not know
    let new = described.unexplained.iter();
    let new = new.filter(|note| !unexplained.contains(note));
    Ok(new.map(|note| Note::from(note.clone())).collect())
}

/// Refuses to take away or change the list by which torchao finds its weights; names in it follow a rename.
fn check_list(
    as_stored: &Context<'_>,
    what: &Convert<'_>,
    (source, kept): (&[PartGroup], &[bool]),
) -> Result<()> {
    let is_changed = what
        .metadata
        .iter()
        .any(|change| change.key() == TENSOR_NAMES);
    if !is_changed || as_stored.catalog.metadata.get(TENSOR_NAMES).is_none() {
        return Ok(());
    }
    let is_listed = |group: &&PartGroup| {
        let is_torchao = group
            .known
            .as_ref()
            .is_some_and(|known| known.scheme == "torchao");
        is_torchao && kept[group.tensors[0]]
    };
    match source.iter().find(is_listed) {
        None => Ok(()),
        Some(group) => Err(Error::invalid_argument(format!(
            "torchao reads the weight {} by its list `{TENSOR_NAMES}`: keep the keys that describe it",
            quote(&group.name)
        ))),
    }
}

/// The note about entries of the configuration that match other modules than before: parts of names and regular expressions stay.
/// `weights`: their names in the source and in the output, whose contexts are the first two.
fn entries_that_stay<'n>(
    (source, output): (&Context<'_>, &Context<'_>),
    weights: impl Iterator<Item = (&'n str, &'n str)>,
    names: &RenamedTensors<'_>,
) -> Result<Option<Note>> {
    let (mut lost, mut first, mut count) = (BTreeSet::new(), None, 0);
    for (old, new) in weights {
        let before = entries_of_module(source, module_of_weight(old))?;
        let behind = entries_of_module(output, module_of_weight(new))?;
        let keys = before.iter().chain(&behind).map(|found| found.key);
        let keys: BTreeSet<&str> = keys.collect();
        let mut differs = false;
        for key in keys {
            let of = |found: &[ModuleEntry<'_>]| {
                let found = found.iter().find(|found| found.key == key);
                found.map(|found| found.entry.to_owned())
            };
            let (before, behind) = (of(&before), of(&behind));
            let followed = match &before {
                Some(entry) => names.renamed(entry, output.budget)?,
                None => None,
            };
            // an entry is the same one under its new name
            if before == behind || (followed.is_some() && followed == behind) {
                continue;
            }
            differs = true;
            if let Some(entry) = before.or(behind)
                && !lost.contains(&(key, entry.clone()))
            {
                output.budget.text(entry.len(), WHAT)?;
                lost.insert((key, entry));
            }
        }
        if differs {
            first.get_or_insert(new);
            count += 1;
        }
    }
    let Some(first) = first else { return Ok(None) };
    let named = lost.iter().take(NAMED_ENTRIES);
    let named: Vec<String> = named
        .map(|(key, entry)| format!("{} of {key}", quote(entry)))
        .collect();
    let others = match lost.len().checked_sub(NAMED_ENTRIES) {
        Some(more @ 1..) => format!(" and {more} others"),
        _ => String::new(),
    };
    let (names, weights) = match count {
        1 => ("name", "weight"),
        _ => ("names", "weights"),
    };
    Ok(Some(Note::from(format!(
        "entries of the configuration do not match the new {names} of {count} {weights} as they matched the old, such as {}: change {}{others} in it",
        quote(first),
        named.join(", ")
    ))))
}

/// Whether no output has the source's format: what describes the weights becomes texts of a header, if anything.
fn is_of_another_format(source: &Catalog) -> bool {
    !matches!(source.format, "safetensors" | "gguf")
}

/// The catalog of the output, and the number of each tensor in the source.
fn described(
    what: &Convert<'_>,
    names: &RenamedTensors<'_>,
    plan: &Plan,
    budget: &Budget,
) -> Result<(Catalog, Vec<usize>)> {
    let source = what.weights.checkpoint.catalog();
    let is_other = is_of_another_format(source);
    let mut catalog = Catalog::new(if is_other {
        "safetensors"
    } else {
        source.format
    });
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
    for (key, value) in header::described(what, names, budget)? {
        catalog.metadata.push_charged(&key, value, budget)?;
    }
    if !is_other {
        catalog.members.clone_from(&source.members);
    }
    catalog.files.clone_from(&source.files);
    catalog.index_names(budget)?;
    Ok((catalog, stored))
}
