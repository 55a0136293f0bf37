//! Files beside a checkpoint that may describe how its tensors are stored.

use std::cell::OnceCell;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use crate::base::error::Result;
use crate::base::limits::{Budget, text_cost};
use crate::quant::scheme::{Sidecars, is_configuration, is_known_method};
use crate::quant::settings::is_rotation;
use crate::read::catalog::quote;
use crate::read::checkpoint::Checkpoint;

use super::described_tensors::{may_be_quantised, may_describe, names_tensors};
use super::recipes;

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

/// Words in names of files of matrices, orders and codebooks, which are of weights where these are quantised.
static FACTORS: &[&str] = &[
    "rot",
    "perm",
    "codebook",
    "codebooks",
    "lut",
    "matrices",
    "smooth",
];

/// Words that are all of the name of a file of the scales of a model beside it.
static OF_SCALES: &[&str] = &[
    "scale", "scales", "weight", "weights", "fp8", "f8", "model", "quant", "inv", "map",
];

/// Files that are looked at.
const MAX_FILES: usize = 8;

/// The files beside a checkpoint that may describe its tensors. At a URL they are the names of the list by which it was opened.
pub(crate) fn sidecars(checkpoint: &Checkpoint, budget: &Budget) -> Result<Sidecars> {
    let mut found = Sidecars::default();
    let is_model = matches!(checkpoint.catalog().format, "safetensors" | "pth");
    let (files, Some(path)) = (checkpoint.files(), checkpoint.path()) else {
        return Ok(found);
    };
    if !is_model {
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
        // llm-awq's `awq_config.json`
        let of_method = || {
            let mut words = stem.split(|c: char| !c.is_ascii_alphanumeric());
            words.any(|word| !word.is_empty() && is_known_method(word))
        };
        (((lower.contains("quant") || stem == "qconfig" || of_method()) && ends(ENDINGS))
            || (factors && (ends(ENDINGS) || ends(TENSORS))))
            && !is_configuration(name)
            && !LOGS.contains(&&*lower)
    };
    let is_opened = |name: &str| {
        let stem = name.rsplit_once('.').map(|(stem, _)| stem);
        stem == opened
    };
    // `model_map.pt` beside `model.pt`, and `scales.pt`
    let is_map = |name: &str| {
        let rest = opened.and_then(|stem| name.strip_prefix(stem));
        let is_named = rest.is_some_and(|rest| {
            ["_map.", "_scale.", "_scales."]
                .iter()
                .any(|word| rest.starts_with(word))
        });
        is_named || (is_of_scales(name) && !is_opened(name))
    };
    // SpinQuant's `R.bin`, `perm.npy`
    let is_factor = |name: &str| {
        let Some((stem, end)) = name.rsplit_once('.') else {
            return false;
        };
        let lower = stem.to_ascii_lowercase();
        let mut words = lower.split(|c: char| !c.is_ascii_alphanumeric());
        let ends = ENDINGS.iter().chain(TENSORS);
        (stem == "R" || words.any(|word| FACTORS.contains(&word)))
            && ends.into_iter().any(|known| &known[1..] == end)
            && !is_opened(name)
    };
    // most directories have no such file: then no tensor is looked at
    let quantised = OnceCell::new();
    let is_described = |name: &str| {
        may_describe(name) && *quantised.get_or_init(|| may_be_quantised(checkpoint.catalog()))
    };
    let mut descriptions: Vec<String> = Vec::new();
    let wanted = |name: &OsStr| {
        name.to_str().is_some_and(|name| {
            !name.starts_with('.')
                && (speaks(name)
                    || is_map(name)
                    || is_factor(name)
                    || is_described(name)
                    || recipes::is_recipe(name))
        })
    };
    let mut recipes: Vec<String> = Vec::new();
    let mut each = |name: OsString| {
        let name = name.to_string_lossy().into_owned();
        if recipes::is_recipe(&name) {
            budget.memory(text_cost(name.len()), WHAT)?;
            return budget.push(&mut recipes, name, WHAT);
        }
        if is_map(&name) {
            budget.memory(text_cost(name.len()), WHAT)?;
            found.map.get_or_insert(name.clone());
        }
        let is_own = opened.is_some_and(|stem| name.starts_with(stem));
        if is_map(&name) && (is_own || !speaks(&name)) {
            return Ok(());
        }
        if !speaks(&name) && !is_factor(&name) {
            budget.memory(text_cost(name.len()), WHAT)?;
            budget.push(&mut descriptions, name, WHAT)?;
        } else if !speaks(&name) {
            if found.factors.len() < MAX_FILES {
                budget.memory(text_cost(name.len()), WHAT)?;
                found.factors.push(name);
            }
        } else if found.files.len() < MAX_FILES {
            budget.memory(text_cost(name.len()), WHAT)?;
            found.files.push(name);
        }
        Ok(())
    };
    let listed = if files.is_local() {
        files.list(directory, &wanted, &mut each)
    } else if let Some(names) = files.known_names(directory) {
        let names = names.into_iter().map(OsString::from);
        names.filter(|name| wanted(name)).try_for_each(each)
    } else {
        // a web server has no list, and one of a bucket is a request
        Ok(())
    };
    // weights are recognised without the directory too
    if listed.is_err() {
        return Ok(Sidecars::default());
    }
    descriptions.sort();
    for name in descriptions.into_iter().take(MAX_FILES) {
        if names_tensors(files, &directory.join(&name), checkpoint.catalog(), budget)? {
            found.factors.push(name);
        }
    }
    recipes.sort();
    for name in recipes.into_iter().take(MAX_FILES) {
        let said = recipes::statements(files, &directory.join(&name), budget)?;
        if let Some(word) = said.rotation {
            found.rotation = Some(format!("{} of {name}", quote(&word)));
            break;
        }
        if let Some(order) = said.act_order {
            let of = format!("`actorder`: {order} of {}", quote(&name));
            found.act_order.get_or_insert(of);
        }
    }
    found.files.sort();
    found.factors.sort();
    Ok(found)
}

/// Whether a file's name says that it has scales, and nothing else.
fn is_of_scales(name: &str) -> bool {
    let Some((stem, end)) = name.rsplit_once('.') else {
        return false;
    };
    let lower = stem.to_ascii_lowercase();
    let mut words = lower.split(|c: char| !c.is_ascii_alphanumeric());
    TENSORS.iter().any(|known| &known[1..] == end)
        && words.clone().any(|word| word.starts_with("scale"))
        && words.all(|word| OF_SCALES.contains(&word))
}
