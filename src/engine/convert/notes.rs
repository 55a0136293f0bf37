//! Notes about an output: what its container or its place takes from it.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::path::Path;

use crate::base::error::Result;
use crate::base::note::Note;
use crate::engine::companions::Companions;
use crate::engine::remember::planning::{config, context, reader};
use crate::engine::sink::{Container, GGUF, NPY, NPZ, SAFETENSORS, Sharding};
use crate::models::config::keys;
use crate::plan::Plan;
use crate::quant::scheme::{QuantConfig, Sidecars};
use crate::read::catalog::{Catalog, quote};
use crate::read::format::gguf::SPLIT_KEYS;
use crate::read::source::files::Files;

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
        notes.push(without_architecture("the output"));
    }
    notes.extend(differing_keys(catalog));
    notes.extend(other_companions(what, sharding));
    let has_none = *container == NPZ || *container == NPY;
    if has_none && !catalog.metadata.is_empty() {
        let keys = match catalog.metadata.len() {
            1 => "1 key is".to_owned(),
            count => format!("{count} keys are"),
        };
        notes.push(Note::from(format!(
            "arrays of NumPy have no metadata: {keys} left out"
        )));
    }
    if what.is_stored && *container == SAFETENSORS && *sharding == Sharding::SingleFile {
        notes.extend(unrecognised(what)?);
    }
    Ok(notes)
}

/// The note about a GGUF without the key that llama.cpp needs first.
pub(in crate::engine) fn without_architecture(file: &str) -> Note {
    Note::from(format!(
        "llama.cpp opens no file without the key {}, which {file} does not have",
        keys::MODEL_TYPE.key(true)
    ))
}

/// The note about keys that a further shard or source has with another value.
fn differing_keys(catalog: &Catalog) -> Option<Note> {
    let keys: BTreeSet<&str> = catalog
        .differing_values
        .iter()
        .map(|(key, _)| &**key)
        // the numbers of a split are written anew
        .filter(|key| !united::is_united(key) && !SPLIT_KEYS.contains(key))
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
    if !matches!(sharding, Sharding::Shards(_)) {
        return None;
    }
    let first = own.map(|path| checkpoint.files().folder_of(path));
    let mut others = checkpoint.joined();
    let (other, _) = others.find(|(path, files)| {
        let folder = files.folder_of(path);
        Some(folder) != first && has_companions(files, folder)
    })?;
    Some(Note::from(format!(
        "the first source has the configuration and the companion files of the output: none of {} is copied",
        other.display()
    )))
}

/// Whether a directory has a file that an output directory of its model would have.
fn has_companions(files: &Files, folder: &Path) -> bool {
    if !files.is_local() {
        return true;
    }
    let is_known = |name: &OsStr| name.to_str().is_some_and(Companions::is_known_name);
    // the directory of a bare name has none itself
    let (folder, mut found) = (Path::new(".").join(folder), false);
    let listed = files.list(&folder, &is_known, &mut |_| {
        found = true;
        Ok(())
    });
    // one that cannot be listed may have some
    found || listed.is_err()
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
        groups(&cx, &mut Plan::default(), &check).map(|weights| weights.groups)
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
