//! Notes about an output: what its container or its place takes from it.

use std::collections::BTreeSet;

use crate::base::error::Result;
use crate::base::note::Note;
use crate::engine::remember::planning::{config, context, reader};
use crate::engine::sink::{Container, GGUF, NPY, NPZ, SAFETENSORS, Sharding};
use crate::models::config::keys;
use crate::plan::Plan;
use crate::quant::scheme::{QuantConfig, Sidecars};

use super::groups::{PartGroup, groups};
use super::{Convert, header};

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

/// The note about schemes that only the configuration tells: beside a file there is none.
fn unrecognised(what: &Convert<'_>) -> Result<Option<Note>> {
    let weights = &what.weights;
    let checkpoint = &*weights.checkpoint;
    let budget = checkpoint.budget();
    let configured = config(weights, &budget)?;
    if configured.is_empty() {
        return Ok(None);
    }
    let read = reader(checkpoint);
    let (sidecars, none) = (Sidecars::default(), QuantConfig::default());
    let check = || weights.options.control.check();
    let found = |config: &QuantConfig| {
        let cx = context(weights, config, &read, &sidecars, &budget);
        groups(&cx, &mut Plan::default(), &check)
    };
    let (with, without) = (found(&configured)?, found(&none)?);
    let of = |groups: &[PartGroup]| -> BTreeSet<(Box<str>, &'static str)> {
        let known = groups.iter().filter_map(|group| {
            let known = group.known.as_ref()?;
            Some((group.name.clone(), known.scheme))
        });
        known.collect()
    };
    let without = of(&without);
    let lost: BTreeSet<&str> = of(&with)
        .difference(&without)
        .map(|(_, scheme)| *scheme)
        .collect();
    let schemes: Vec<&str> = lost.into_iter().collect();
    Ok((!schemes.is_empty()).then(|| {
        Note::from(format!(
            "the file has no configuration beside it, without which weights are not recognised as {}: write a directory",
            schemes.join(", ")
        ))
    }))
}
