//! Notes about an output: what its container or its place takes from it.

use std::collections::{BTreeSet, HashMap};

use crate::base::error::Result;
use crate::base::note::Note;
use crate::engine::remember::planning::{config, context, reader};
use crate::engine::sink::{Container, GGUF, NPY, NPZ, SAFETENSORS, Sharding};
use crate::models::config::keys;
use crate::plan::Plan;
use crate::quant::scheme::{QuantConfig, Sidecars};
use crate::read::catalog::{Catalog, quote};

use super::weight_parts::{KnownWeight, PartGroup, groups};
use super::{Convert, header, united};

/// Keys that a note names.
const NAMED_KEYS: usize = 5;

pub(super) fn of(
    what: &Convert<'_>,
    container: &'static Container,
    sharding: &Sharding,
) -> Result<Vec<Note>> {
    let mut notes = Vec::new();
    let catalog = what.weights.checkpoint.catalog();
    let architecture = keys::MODEL_TYPE.key(true);
    if *container == GGUF
        && !header::values(what, container)?
            .iter()
            .any(|(key, _)| key == architecture)
    {
        notes.push(Note::from(format!(
            "llama.cpp opens no file without the key {architecture}, which the output does not have"
        )));
    }
    notes.extend(differing_keys(catalog));
    notes.extend(other_companions(what, sharding));
    let has_none = *container == NPZ || *container == NPY;
    if has_none && !catalog.metadata.is_empty() {
        let count = catalog.metadata.len();
        notes.push(Note::from(format!(
            "arrays of NumPy have no metadata: {count} keys are left out"
        )));
    }
    if what.is_stored && *container == SAFETENSORS && *sharding == Sharding::SingleFile {
        notes.extend(unrecognised(what)?);
    }
    Ok(notes)
}

/// The note about keys that a further shard or source has with another value.
fn differing_keys(catalog: &Catalog) -> Option<Note> {
    let keys: BTreeSet<&str> = catalog
        .differing_values
        .iter()
        .map(|(key, _)| &**key)
        .filter(|key| !united::is_united(key))
        .collect();
    let mut named: Vec<String> = keys.iter().take(NAMED_KEYS).map(|key| quote(key)).collect();
    if let Some(more @ 1..) = keys.len().checked_sub(NAMED_KEYS) {
        named.push(format!("{more} others"));
    }
    (!named.is_empty()).then(|| {
        Note::from(format!(
            "files have other values for keys of the metadata, and the first file's are kept: {}",
            named.join(", ")
        ))
    })
}

/// The note about companion files of further sources, which an output directory does not have.
fn other_companions(what: &Convert<'_>, sharding: &Sharding) -> Option<Note> {
    let checkpoint = &what.weights.checkpoint;
    let own = checkpoint.path();
    let mut others = checkpoint.joined().map(|(path, _)| path);
    let other = others.find(|path| Some(*path) != own)?;
    let is_directory = matches!(sharding, Sharding::Shards(_));
    is_directory.then(|| {
        Note::from(format!(
            "the first source has the configuration and the companion files of the output: none of {} is copied",
            other.display()
        ))
    })
}

/// The notes about schemes, and settings of them, that only the configuration tells: beside a file there is none.
fn unrecognised(what: &Convert<'_>) -> Result<Vec<Note>> {
    let weights = &what.weights;
    let checkpoint = &*weights.checkpoint;
    let budget = checkpoint.budget();
    let configured = config(weights, &budget)?;
    if configured.is_empty() {
        return Ok(Vec::new());
    }
    let read = reader(checkpoint);
    let (sidecars, none) = (Sidecars::default(), QuantConfig::default());
    let check = || weights.options.control.check();
    let found = |config: &QuantConfig| {
        let cx = context(weights, config, &read, &sidecars, &budget);
        groups(&cx, &mut Plan::default(), &check)
    };
    let (with, without) = (found(&configured)?, found(&none)?);
    let known = |group: &PartGroup| Some((group.name.clone(), group.known.clone()?));
    let mut without: HashMap<Box<str>, KnownWeight> = without.iter().filter_map(known).collect();
    let (mut lost, mut changed) = (BTreeSet::new(), BTreeSet::new());
    for (name, weight) in with.iter().filter_map(known) {
        check()?;
        match without.remove(&name) {
            Some(same) if weight.is_read_as(&same) => continue,
            Some(other) if weight.scheme == other.scheme => changed.insert(weight.scheme),
            _ => lost.insert(weight.scheme),
        };
    }
    changed.extend(without.values().map(|weight| weight.scheme));
    let named = |schemes: BTreeSet<&str>, how: &str| {
        let schemes: Vec<&str> = schemes.into_iter().collect();
        let text = schemes.join(", ");
        (!schemes.is_empty()).then(|| {
            Note::from(format!(
                "the file has no configuration beside it, without which {how} {text}: write a directory"
            ))
        })
    };
    let lost = named(lost, "weights are not recognised as");
    let changed = named(changed, "readers get other values from weights of");
    Ok(lost.into_iter().chain(changed).collect())
}
