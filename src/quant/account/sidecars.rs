//! Files beside a checkpoint that may describe how its tensors are stored.

use std::ffi::OsStr;
use std::path::Path;

use crate::base::error::Result;
use crate::base::limits::{Budget, text_cost};
use crate::quant::scheme::{Sidecars, is_configuration};
use crate::quant::settings::is_rotation;
use crate::read::checkpoint::Checkpoint;

const WHAT: &str = "the directory";

/// Names of files that speak of quantisation and describe no stored bytes.
static LOGS: &[&str] = &["quant_log.csv", "quant_log.json"];

/// Endings of files of settings and of small tensors.
static ENDINGS: &[&str] = &[".json", ".yaml", ".yml", ".npz", ".npy", ".pkl"];

/// Endings of files of tensors. A file of scales is no model, unlike one whose name speaks of quantisation.
static TENSORS: &[&str] = &[".safetensors", ".pt", ".pth", ".bin"];

/// Words in names of files of scales that no weight is decoded with.
static ACTIVATIONS: &[&str] = &[
    "act",
    "acts",
    "activation",
    "activations",
    "kv",
    "cache",
    "input",
    "output",
];

/// Files that are looked at.
const MAX_FILES: usize = 8;

/// The files beside a local checkpoint that may describe its tensors.
pub(crate) fn sidecars(checkpoint: &Checkpoint, budget: &Budget) -> Result<Sidecars> {
    let mut found = Sidecars::default();
    let is_model = matches!(checkpoint.catalog().format, "safetensors" | "pth");
    let (files, Some(path)) = (checkpoint.files(), checkpoint.path()) else {
        return Ok(found);
    };
    if !files.is_local() || !is_model {
        return Ok(found);
    }
    let (directory, opened) = if files.is_directory(path) {
        // a directory of one tensor file is that file
        let only = match checkpoint.catalog().files() {
            [only] => only.path.as_deref().and_then(Path::file_stem),
            _ => None,
        };
        (path, only.and_then(OsStr::to_str))
    } else {
        let parent = path.parent().unwrap_or(Path::new(""));
        (parent, path.file_stem().and_then(OsStr::to_str))
    };
    let directory = if directory.as_os_str().is_empty() {
        Path::new(".")
    } else {
        directory
    };
    let speaks = |name: &str| {
        let lower = name.to_ascii_lowercase();
        let (stem, _) = lower.rsplit_once('.').unwrap_or((&lower, ""));
        // scales of activations and caches are no scales of weights
        let of_activations = stem
            .split(|c: char| !c.is_ascii_alphanumeric())
            .any(|word| ACTIVATIONS.contains(&word));
        let scales = (stem.ends_with("scale") || stem.ends_with("scales")) && !of_activations;
        let factors = scales || is_rotation(stem);
        let ends = |ends: &[&str]| ends.iter().any(|end| lower.ends_with(end));
        ((lower.contains("quant") && ends(ENDINGS))
            || (factors && (ends(ENDINGS) || ends(TENSORS))))
            && !is_configuration(name)
            && !LOGS.contains(&&*lower)
    };
    // `model_map.pt` beside `model.pt`
    let is_map = |name: &str| {
        let rest = opened.and_then(|stem| name.strip_prefix(stem));
        rest.is_some_and(|rest| {
            ["_map.", "_scale.", "_scales."]
                .iter()
                .any(|word| rest.starts_with(word))
        })
    };
    let wanted = |name: &OsStr| {
        name.to_str()
            .is_some_and(|name| !name.starts_with('.') && (speaks(name) || is_map(name)))
    };
    let listed = files.list(directory, &wanted, &mut |name| {
        let name = name.to_string_lossy().into_owned();
        if is_map(&name) {
            found.map.get_or_insert(name);
        } else if found.files.len() < MAX_FILES {
            budget.memory(text_cost(name.len()), WHAT)?;
            found.files.push(name);
        }
        Ok(())
    });
    // weights are recognised without the directory too
    if listed.is_err() {
        return Ok(Sidecars::default());
    }
    found.files.sort();
    Ok(found)
}
