//! Which files of a directory are its checkpoint.

use std::path::{Path, PathBuf};

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::limits::Budget;
use crate::base::quote::quote;
use crate::base::template::{WEIGHT_ENDINGS, weight_ending};
use crate::read::source::files::Files;

use super::OpenOptions;
use super::distributed;
use super::faults::{OpenFault, OpenFaultKind};
use super::model_names::{ModelNames, NumberedSet, models_among};
use super::named_files::{charge_files, piece_number, require, split_name};
use super::other_files::{FileNames, NOT_UTF8, is_index_name, names_in};
use super::ranks::{is_deepspeed, rank_of, underscored_shard};

/// The files of a directory that are opened.
pub(super) struct FileSelection {
    pub(super) files: Vec<PathBuf>,
    pub(super) warning: Option<String>,
    /// All names in the directory.
    pub(super) names: Vec<String>,
}

/// The chosen files, and a warning about them.
pub(super) type Chosen = (Vec<PathBuf>, Option<String>);

/// Selects the files of a directory: its index, else the only file or the complete set of shards of the first extension
/// in the list.
pub(super) fn select_files(
    files: &Files,
    directory: &Path,
    options: &OpenOptions,
    budget: &Budget,
) -> Result<FileSelection> {
    let FileNames { mut names, odd } = names_in(files, directory, budget)?;
    /// Names in a warning.
    const SHOWN: usize = 4;
    // lists of names that are searched refer to them
    const REFERENCES: u64 = 4 * size_of::<&String>() as u64;
    budget.memory(REFERENCES * names.len() as u64, "the directory")?;
    names.retain(|name| !options.passes_over(name));
    let chosen = choose(files, directory, &names, options, budget);
    let (selected, warning) = chosen.map_err(|error| match odd.first() {
        Some(odd) if matches!(error.kind(), ErrorKind::UnknownFormat { .. }) => {
            Error::unsupported(format!("{}: {NOT_UTF8}", quote(odd)))
        }
        _ => error,
    })?;
    let not_read = (!odd.is_empty()).then(|| {
        format!(
            "not read: {} ({NOT_UTF8})",
            odd[..odd.len().min(SHOWN)].join(", ")
        )
    });
    let warning = [warning, not_read]
        .into_iter()
        .flatten()
        .reduce(|a, b| format!("{a}; {b}"));
    Ok(FileSelection {
        files: selected,
        warning,
        names,
    })
}

/// Chooses among the names in a directory.
pub(super) fn choose(
    files: &Files,
    directory: &Path,
    names: &[String],
    options: &OpenOptions,
    budget: &Budget,
) -> Result<Chosen> {
    let all = |with: &str| {
        names
            .iter()
            .filter(|n| n.to_ascii_lowercase().ends_with(with))
            .collect::<Vec<_>>()
    };
    let one = |name: &String, warning| Ok((vec![directory.join(name)], warning));
    let indexes: Vec<&String> = names.iter().filter(|name| is_index_name(name)).collect();
    // the names that transformers writes
    for preferred in [
        "model.safetensors.index.json",
        "pytorch_model.bin.index.json",
    ] {
        if let Some(name) = indexes.iter().find(|n| **n == preferred) {
            return one(name, None);
        }
    }
    if names
        .iter()
        .any(|name| is_deepspeed(name) || name == "latest" || name.starts_with("global_step"))
    {
        let found = names
            .iter()
            .find(|name| matches!(weight_ending(name), Some("safetensors" | "bin")));
        if found.is_none() {
            return Err(deepspeed());
        }
    }
    match indexes.as_slice() {
        [] => {}
        [only] => return one(only, None),
        several => return Err(ambiguous(directory, several, options, budget)),
    }
    for extension in WEIGHT_ENDINGS {
        let found = all(&format!(".{extension}"));
        // the names that transformers reads, where several files have the extension
        let main = found
            .iter()
            .find(|n| n.as_str() == "model.safetensors" || n.as_str() == "pytorch_model.bin")
            .or_else(|| without_variants(&found));
        match (found.as_slice(), main) {
            ([], _) => {}
            // the files that `.metadata` names, which is found by its name alone
            (_, None) if extension == distributed::EXTENSION => {
                let metadata = directory.join(distributed::METADATA);
                require(files, std::slice::from_ref(&metadata))?;
                return Ok((vec![metadata], None));
            }
            // one shard of several is not a checkpoint
            ([only], _) if split_name(only).is_none_or(|(_, _, of)| of == 1) => {
                let warning =
                    composite(names).map(|what| format!("{only} was read; beside it is {what}"));
                return one(only, warning);
            }
            // pieces of tensors, whose places are in the headers
            (several, None) if several.iter().all(|name| piece_number(name).is_some()) => {
                let pieces = several.iter().map(|name| directory.join(name));
                return Ok((pieces.collect(), None));
            }
            (_, Some(main)) => return one(main, None),
            // the first extension with files decides; files of other extensions are usually the same model in another
            // format
            (several, None) => {
                let selected = shard_set(files, directory, several, options, budget);
                return selected.map_err(|error| match composite(names) {
                    Some(what) if !options.surveys() => {
                        Error::unsupported(format!("{what}; {}", error.kind()))
                    }
                    _ => error,
                });
            }
        }
    }
    Err(Error::new(ErrorKind::UnknownFormat {
        looks_like: composite(names)
            .unwrap_or("a directory without tensor files")
            .into(),
    }))
}

/// A model whose parts are checkpoints in folders, by the file that lists them.
fn composite(names: &[String]) -> Option<&'static str> {
    let has = |list: &str| {
        names
            .binary_search_by(|name| name.as_str().cmp(list))
            .is_ok()
    };
    if has("model_index.json") {
        return Some(
            "a pipeline of diffusers (model_index.json), whose components are checkpoints of their own; open the folder of one, or \
             dequantise all of them with the command `remember`",
        );
    }
    let is_modules = has("modules.json") && !has("config.json");
    is_modules.then_some(
        "a model of sentence-transformers (modules.json), whose modules are in folders; open the folder of its first module",
    )
}

/// The file of which all others are variants, as diffusers names files of other precisions: `model.fp16.safetensors` is a
/// variant of `model.safetensors`.
fn without_variants<'n>(names: &'n [&'n String]) -> Option<&'n &'n String> {
    let shortest = names.iter().min_by_key(|name| name.len())?;
    let (stem, extension) = shortest.rsplit_once('.')?;
    let is_variant = |name: &str| {
        let variant = name.strip_prefix(stem).and_then(|rest| {
            rest.strip_prefix('.')?
                .strip_suffix(extension)?
                .strip_suffix('.')
        });
        variant.is_some_and(|variant| !variant.is_empty() && !variant.contains('.'))
    };
    let others = names.iter().filter(|name| name != &shortest);
    let all = others.clone().all(|name| is_variant(name)) && others.count() > 0;
    (all && rank_of(shortest).is_none()).then_some(shortest)
}

/// Several files are one checkpoint if they are the numbered shards of one.
pub(super) fn shard_set(
    files: &Files,
    directory: &Path,
    names: &[&String],
    options: &OpenOptions,
    budget: &Budget,
) -> Result<Chosen> {
    // Mistral's repositories have the same weights under its own names too; the numbered files are for transformers
    let (own, names): (Vec<&String>, Vec<&String>) = names
        .iter()
        .partition(|name| name.starts_with("consolidated"));
    let names = if names.is_empty() {
        &own[..]
    } else {
        &names[..]
    };
    let splits: Vec<_> = names.iter().filter_map(|n| split_name(n)).collect();
    let [(prefix, _, of), ..] = splits[..] else {
        return Err(ambiguous(directory, names, options, budget));
    };
    // two numbered sets, or a set and another file: no name states which of them is the checkpoint
    if splits.len() != names.len() || splits.iter().any(|s| (s.0, s.2) != (prefix, of)) {
        return Err(ambiguous(directory, names, options, budget));
    }
    let extension = names[0].rsplit_once('.').map_or("", |(_, e)| e);
    if extension == "gguf" {
        // `open_split` finds the other files from any of them
        return Ok((vec![directory.join(names[0])], None));
    }
    let set = NumberedSet::of(names.iter().map(|name| name.as_str()));
    // a file name must not make this build a list of 2⁶⁴ paths
    let set = match set {
        Some(set) if set.count() <= 1_000_000 => set,
        set => {
            let missing = set.and_then(|set| set.missing());
            return Err(match missing {
                Some(missing) => missing.error(directory),
                None => ambiguous(directory, names, options, budget),
            });
        }
    };
    charge_files(budget, set.count(), directory, names[0].len())?;
    let paths: Vec<PathBuf> = set.names().map(|name| directory.join(name)).collect();
    Ok((options.present(files, paths, budget)?, None))
}

/// The error for a directory of DeepSpeed, whose files have parts of flat buffers.
pub(super) fn deepspeed() -> Error {
    Error::unsupported(
        "a checkpoint of DeepSpeed (ZeRO), in which each rank has a part of the weights in one flat buffer; join them with its \
         `zero_to_fp32.py`",
    )
}

/// The error for a directory with several checkpoints, which a survey names one by one.
fn ambiguous(directory: &Path, names: &[&String], options: &OpenOptions, budget: &Budget) -> Error {
    const SHOWN: usize = 4;
    let ranks = names.iter().filter(|name| rank_of(name).is_some()).count();
    if ranks > 1 {
        let models = models_among(names.iter().map(|name| name.as_str()), budget);
        let lacking = match &models {
            Ok(models) => models.iter().find_map(ModelNames::missing),
            Err(_) => None,
        };
        let lacking = lacking.map_or(String::new(), |missing| {
            format!("; of a set that lacks {}", missing.text())
        });
        return Error::unsupported(format!(
            "the directory has {ranks} files of ranks ({}, {}, …{lacking}), each of which holds a part of every tensor that tensor \
             parallelism divides; join them with the program that wrote them",
            names[0],
            names[names.len() - 1]
        ));
    }
    let shards = names
        .iter()
        .filter(|name| underscored_shard(name).is_some());
    if shards.count() == names.len() {
        return Error::unsupported(format!(
            "the directory has {} files of one checkpoint, numbered in a form that is not known ({}, {}, …); rename them to \
             `model-00001-of-0000N`, or open one of them for its own tensors",
            names.len(),
            names[0],
            names[names.len() - 1]
        ));
    }
    let models = match models_among(names.iter().map(|name| name.as_str()), budget) {
        Ok(models) => models,
        Err(error) => return error,
    };
    for model in models.iter().filter(|_| options.surveys()) {
        let fault = OpenFault {
            kind: OpenFaultKind::OneOfSeveral,
            file: Some(directory.join(model.first())),
            tensor: None,
            error: Error::unsupported("one of several checkpoints of a directory"),
        };
        if let Err(error) = options.fault(fault, budget) {
            return error;
        }
    }
    let shown: Vec<String> = models.iter().take(SHOWN).map(ModelNames::shown).collect();
    let more = if models.len() > SHOWN { ", …" } else { "" };
    let remedy = match models.iter().any(ModelNames::opens_by_directory) {
        true => "open one of them, a set in a directory of its own",
        false => "open one of them",
    };
    Error::unsupported(format!(
        "the directory contains {} checkpoints; {remedy} ({}{more})",
        models.len(),
        shown.join(", ")
    ))
}
