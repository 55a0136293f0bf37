//! The files of a checkpoint: listed by an `….index.json`, named as a split GGUF, or selected of a directory.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use crate::base::error::{Error, ErrorKind, Remedy, Result};
use crate::base::limits::Budget;
use crate::base::note::Note;
use crate::read::catalog::metadata::Value;
use crate::read::format::gguf;
use crate::read::format::safetensors::PLAN_ID_KEY;
use crate::read::json::{self, JsonReader};
use crate::read::source::file_system::{NamedPath, OpenedPath};
use crate::read::source::files::Files;

use super::directory::select_files;
use super::distributed;
use super::faults::{OpenFault, OpenFaultKind};
use super::index::{Index, IndexSeed, compare, compare_size};
use super::merge::{ParsedFile, merge};
use super::named_files::{charge_files, file_name, is_index, name_below, split_name};
use super::open::{parse_path, parse_source};
use super::other_files::other_models;
use super::replaced::{self, HeldIndex};
use super::{Checkpoint, OpenOptions};
use super::{pieces, ranks};

pub(super) fn open(files: &Files, path: &Path, options: &OpenOptions) -> Result<Checkpoint> {
    let checkpoint = open_once(files, path, options)?;
    if files.is_local() {
        checkpoint.check_files()?;
    }
    Ok(checkpoint)
}

fn open_once(files: &Files, path: &Path, options: &OpenOptions) -> Result<Checkpoint> {
    let budget = options.budget();
    // before the file is opened: an index is text, which no format recognises
    if is_index(path) && !files.is_directory(path) {
        return open_index(files, options.named(path), options, &budget);
    }
    if distributed::is_metadata(path) && files.is_file(path) {
        return distributed::open(files, options.named(path), options, &budget);
    }
    let opened = match options.named(path) {
        NamedPath::Given(path) => {
            files.open_path(path, options.mapping(), options.cancel.as_ref(), &budget)?
        }
        NamedPath::Below { directory, path } if files.is_directory(path) => {
            files.check_directory(directory, path)?;
            OpenedPath::Directory
        }
        named => OpenedPath::File(files.open_named(named, options.mapping(), &budget)?),
    };
    let file = match opened {
        OpenedPath::Directory => return open_directory(files, path, options, &budget),
        OpenedPath::File(_)
            if path
                .extension()
                .is_some_and(|e| e == distributed::EXTENSION) =>
        {
            return Err(distributed::opened_alone());
        }
        OpenedPath::File(source) => parse_source(source, None, Some(path), options, &budget)?,
    };
    let alone = part_alone(files, path, &file);
    let mut checkpoint = merge_single_or_split(files, path, file, options, &budget)?;
    let alone = alone.map(|text| Note::with_remedy(text, Remedy::OpenWhole));
    checkpoint.catalog.warnings.extend(alone);
    Ok(checkpoint)
}

/// The warning for one of several shards.
pub(super) fn shard_alone(number: u64, of: u64) -> String {
    format!("file {number} of {of} of a checkpoint; the tensors of the others are not listed")
}

/// A warning for a file that holds a part of each tensor, opened without the others.
fn part_alone(files: &Files, path: &Path, file: &ParsedFile) -> Option<String> {
    if file.catalog.metadata.get(pieces::PLACES).is_some() {
        return Some(format!(
            "a part of a checkpoint: {} says at which offsets its tensors are",
            pieces::PLACES
        ));
    }
    if !ranks::may_be_part(path) {
        return None;
    }
    let name = file_name(path);
    let is_shard = file.catalog.format != gguf::FORMAT.name;
    let shard = |(number, of): (u64, u64)| (is_shard && of > 1).then(|| shard_alone(number, of));
    let split = split_name(&name).and_then(|(_, number, of)| shard((number, of)));
    if split.is_some() {
        return split;
    }
    // first: `rank_0_of_2` is no shard
    let Some((rank, of)) = ranks::rank_of(&name) else {
        return ranks::underscored_shard(&name).and_then(shard);
    };
    // a single rank has the whole model
    let several = match of {
        Some(of) => of > 1,
        None => rank > 0 || ranks::next_exists(files, path, &name),
    };
    let of = of.map_or(String::new(), |of| format!(" of {of}"));
    several.then(|| {
        format!(
            "the file of rank {rank}{of}: it holds a part of every tensor that tensor parallelism divides, with the part's shape"
        )
    })
}

fn open_directory(
    files: &Files,
    path: &Path,
    options: &OpenOptions,
    budget: &Budget,
) -> Result<Checkpoint> {
    let selection = select_files(files, path, options, budget)?;
    options.selected(&selection.files, budget)?;
    let mut checkpoint = match selection.files.as_slice() {
        [one] if is_index(one) => open_index(files, NamedPath::below(path, one), options, budget)?,
        [one] if distributed::is_metadata(one) => {
            distributed::open(files, NamedPath::below(path, one), options, budget)?
        }
        [one] => {
            let file = parse_path(files, path, one, options, budget)?;
            merge_single_or_split(files, one, file, options, budget)?
        }
        paths => merge_all(files, path, paths, options, budget)?,
    };
    let catalog = &checkpoint.catalog;
    checkpoint.other_models =
        other_models(path, &selection.names, &selection.files, catalog, budget)?;
    checkpoint.kept = budget.kept();
    checkpoint.described_by = match selection.files.as_slice() {
        [one] if is_index(one) || distributed::is_metadata(one) => Some(one.clone()),
        _ => None,
    };
    let mut names = selection.names.iter();
    let hidden = names.find(|name| replaced::is_hidden_name(name));
    checkpoint.is_half_replaced = hidden.is_some();
    let interrupted = hidden.map(|name| replaced::interrupted(name));
    let of_selection = selection.warning.into_iter().chain(interrupted);
    let others = checkpoint.other_models.clone();
    checkpoint
        .catalog
        .warnings
        .extend(of_selection.map(Note::from).chain(others));
    Ok(checkpoint)
}

/// Opens shards or pieces without an index as one checkpoint.
fn merge_all(
    files: &Files,
    directory: &Path,
    paths: &[PathBuf],
    options: &OpenOptions,
    budget: &Budget,
) -> Result<Checkpoint> {
    let mut parsed = parse_all(files, directory, paths, options, budget)?.1;
    check_one_plan(&parsed)?;
    pieces::join(&mut parsed, budget)?;
    merge(parsed, options, budget)
}

/// Refuses files that two conversions have made: neither of them is complete, as its index is written last. Their numbers alone would
/// make one model of both.
fn check_one_plan(parsed: &[ParsedFile]) -> Result<()> {
    let plans = parsed
        .iter()
        .map(|file| file.catalog.metadata.text(PLAN_ID_KEY));
    let plans: BTreeSet<_> = plans.flatten().collect();
    match plans.len() {
        0 | 1 => Ok(()),
        count => Err(Error::malformed(format!(
            "the files are of {count} conversions ({PLAN_ID_KEY} differs), none of which is complete: run one of them again, or open a file alone"
        ))),
    }
}

/// The same, of files that a search has found below a directory.
pub(super) fn open_together(
    files: &Files,
    directory: &Path,
    paths: &[PathBuf],
    options: &OpenOptions,
) -> Result<Checkpoint> {
    let budget = options.budget();
    let paths = options.present(files, paths.to_vec(), &budget)?;
    let mut checkpoint = merge_all(files, directory, &paths, options, &budget)?;
    if files.is_local() {
        checkpoint.check_files()?;
    }
    checkpoint.path = paths.into_iter().next();
    checkpoint.files = files.clone();
    Ok(checkpoint)
}

/// Opens the other files of a split GGUF if this file is one of them, and merges the catalogs.
fn merge_single_or_split(
    files: &Files,
    path: &Path,
    file: ParsedFile,
    options: &OpenOptions,
    budget: &Budget,
) -> Result<Checkpoint> {
    let count = file.catalog.metadata.integer("split.count").unwrap_or(1);
    if count <= 1 || file.catalog.format != gguf::FORMAT.name {
        return merge(vec![file], options, budget);
    }
    // one file of a split has its own header and tensors, so that it can be read without the others
    if options.single {
        let mut checkpoint = merge(vec![file], options, budget)?;
        let text = format!(
            "one of the {count} files of a split GGUF; the tensors of the others are not listed"
        );
        let note = Note::with_remedy(text, Remedy::OpenWhole);
        checkpoint.catalog.warnings.push(note);
        return Ok(checkpoint);
    }
    open_split(files, path, file, count, options, budget)
}

/// Parses files below a directory; returns those that could be read, with their paths.
fn parse_all<'p>(
    files: &Files,
    directory: &Path,
    paths: &'p [PathBuf],
    options: &OpenOptions,
    budget: &Budget,
) -> Result<(Vec<&'p Path>, Vec<ParsedFile>)> {
    // where each file is a round trip, all are requested before the first is parsed
    files.begin(&mut paths.iter().cloned());
    let (mut read, mut parsed) = (
        Vec::with_capacity(paths.len()),
        Vec::with_capacity(paths.len()),
    );
    let mut first = None;
    for path in paths {
        match parse_path(files, directory, path, options, budget) {
            Ok(file) => {
                read.push(path.as_path());
                parsed.push(file);
            }
            Err(error) => {
                first.get_or_insert_with(|| error.duplicate());
                options.fault(OpenFault::unreadable(path, error), budget)?;
            }
        }
    }
    match first {
        Some(error) if parsed.is_empty() => Err(error),
        _ => Ok((read, parsed)),
    }
}

fn open_index(
    files: &Files,
    path: NamedPath<'_>,
    options: &OpenOptions,
    budget: &Budget,
) -> Result<Checkpoint> {
    let opened = || {
        let (index, held) = read_index(files, path, budget)?;
        let opened = open_files_of(index, files, path, options, budget);
        // first: an index of another moment contradicts the files
        let index = held.named(path.path())?;
        let mut checkpoint = opened?;
        checkpoint.index = index;
        Ok(checkpoint)
    };
    opened().map_err(|e: Error| e.in_file(path.path()).in_format("index"))
}

pub(super) fn read_index(
    files: &Files,
    path: NamedPath<'_>,
    budget: &Budget,
) -> Result<(Index, HeldIndex)> {
    let (text, _charge, file) = files.read_held(path, budget, "the index")?;
    let reader = JsonReader::new(budget, "the index");
    let malformed =
        |what: String| Error::malformed(format!("not an index of a sharded checkpoint: {what}"));
    let text = std::str::from_utf8(&text).map_err(|e| malformed(e.to_string()))?;
    let index = reader.parse(text, IndexSeed(&reader), |e| malformed(e.to_string()))?;
    Ok((index, HeldIndex::new(file)))
}

/// Opens the files that an index at `path` names.
fn open_files_of(
    index: Index,
    files: &Files,
    path: NamedPath<'_>,
    options: &OpenOptions,
    budget: &Budget,
) -> Result<Checkpoint> {
    // the other files of a directory are among its other models
    let names_others = matches!(path, NamedPath::Given(_));
    let directory = path.path().parent().unwrap_or(Path::new(""));
    let mut names = BTreeSet::new();
    for (_, file) in &index.weight_map {
        // a set: the index names its file for each tensor, a thousand times per file
        if names.insert(name_below(file)?) {
            charge_files(budget, 1, directory, file.len())?;
        }
    }
    let paths: Vec<PathBuf> = names.iter().map(|name| directory.join(&**name)).collect();
    if paths.is_empty() {
        return Err(Error::malformed("the index lists no files"));
    }
    // all missing files are reported at once, before any is parsed
    let present = options.present(files, paths, budget)?;
    if present.is_empty() {
        return Err(Error::new(ErrorKind::MissingPart(
            "all files of the index".to_owned(),
        )));
    }
    let (read, parsed) = parse_all(files, directory, &present, options, budget)?;
    let mut checkpoint = merge(parsed, options, budget)?;
    let unnamed = match names_others {
        true => unnamed_files(files, directory, &names, budget)?,
        false => None,
    };
    checkpoint.catalog.warnings.extend(unnamed.map(Note::from));
    compare(&index, directory, &read, &mut checkpoint, options, budget)?;
    // the index states the size of all files together
    if read.len() == names.len() {
        compare_size(&index, &checkpoint, options, budget)?;
    }
    let catalog = &mut checkpoint.catalog;
    // the files' own metadata take precedence over `total_size` and its like
    let known = catalog.metadata.len();
    let _keys = budget.temporary(64 * known as u64, "the keys of the metadata")?;
    let known: HashSet<&str> = catalog.metadata.iter().map(|(key, _)| key).collect();
    let mut added = index.metadata;
    added.retain(|key, _| !known.contains(&**key));
    for (key, value) in added {
        let value = from_json(value, budget)?;
        catalog.metadata.push_charged(&key, value, budget)?;
    }
    // additions since the merge are in use too
    checkpoint.kept = budget.kept();
    Ok(checkpoint)
}

/// A warning of files beside an index that it does not name, as heads for several tokens at once are stored.
fn unnamed_files(
    files: &Files,
    directory: &Path,
    names: &BTreeSet<Cow<'_, str>>,
    budget: &Budget,
) -> Result<Option<String>> {
    const SHOWN: usize = 8;
    if !files.is_local() {
        return Ok(None);
    }
    let extension = names
        .first()
        .and_then(|name| name.rsplit_once('.'))
        .map(|(_, e)| e);
    let is_unnamed = |name: &OsStr| {
        name.to_str().is_some_and(|name| {
            let same = name.rsplit_once('.').map(|(_, e)| e) == extension;
            same && !names.contains(name)
        })
    };
    let mut unnamed = Vec::new();
    let directory = if directory.as_os_str().is_empty() {
        Path::new(".")
    } else {
        directory
    };
    // the files that the index names are read in any case
    let listed = files.list(directory, &is_unnamed, &mut |name| {
        let name = name.to_string_lossy().into_owned();
        if unnamed.len() < SHOWN {
            budget.text(name.len(), "the directory")?;
            unnamed.push(name);
        }
        Ok(())
    });
    unnamed.sort();
    Ok((listed.is_ok() && !unnamed.is_empty()).then(|| {
        format!(
            "not read, as the index does not name them: {}",
            unnamed.join(", ")
        )
    }))
}

fn from_json(value: Json, budget: &Budget) -> Result<Value> {
    Ok(match value {
        Json::Null => Value::Null,
        Json::Bool(b) => Value::Bool(b),
        Json::String(s) => Value::text(s),
        Json::Number(n) => n
            .as_u64()
            .map(Value::U64)
            .or_else(|| n.as_i64().map(Value::I64))
            .unwrap_or_else(|| Value::F64(n.as_f64().unwrap_or(f64::NAN))),
        other => Value::text(json::compact(&other, budget, "the metadata of the index")?),
    })
}

/// Opens the other files of a split GGUF. Their names follow `{prefix}-{no:05}-of-{count:05}.gguf`
/// (llama.cpp, `llama_split_path`).
fn open_split(
    files: &Files,
    path: &Path,
    first: ParsedFile,
    count: u64,
    options: &OpenOptions,
    budget: &Budget,
) -> Result<Checkpoint> {
    let name = file_name(path);
    let no = first.catalog.metadata.integer("split.no").unwrap_or(0);
    let prefix = match split_name(&name) {
        // names count from 1, `split.no` from 0. Without this check a renamed file would be combined with files of
        // another model
        Some((prefix, n, of)) if of == count && n == no + 1 => prefix,
        _ => {
            let what = format!(
                "this is file {} of {count} of a split GGUF, but its name has no such number, so that the other files \
                 cannot be found; it should be called NAME-{:05}-of-{count:05}.gguf",
                no + 1,
                no + 1
            );
            let error = Error::new(ErrorKind::MissingPart(what));
            return Err(error.with_remedy(Remedy::RenameOrOpenAlone));
        }
    };
    let directory = path.parent().unwrap_or(Path::new(""));
    charge_files(budget, count, directory, name.len())?;
    let paths: Vec<PathBuf> = (1..=count)
        .map(|n| directory.join(format!("{prefix}-{n:05}-of-{count:05}.gguf")))
        .collect();
    let all = paths.len();
    let present = options.present(files, paths, budget)?;
    files.begin(&mut present.iter().filter(|other| *other != path).cloned());
    let mut parsed = Vec::with_capacity(present.len());
    // the file that was opened first is not parsed again
    let mut first = Some(first);
    for file in &present {
        // the names were made above, and some of the files may be absent
        let (_, number, _) = split_name(&file_name(file)).expect("a name with a number");
        let n = number - 1;
        let part = match first.take_if(|_| n == no) {
            Some(first) => first,
            None => match parse_path(files, directory, file, options, budget) {
                Ok(part) => part,
                Err(error) => {
                    options.fault(OpenFault::unreadable(file, error), budget)?;
                    continue;
                }
            },
        };
        let meta = &part.catalog.metadata;
        // the names only find the files; their metadata must confirm that they belong together
        if (meta.integer("split.no"), meta.integer("split.count")) != (Some(n), Some(count)) {
            let error = Error::malformed(format!(
                "the name of this file is that of file {} of {count}, but its metadata differ",
                n + 1
            ));
            let fault = OpenFault {
                kind: OpenFaultKind::SplitMetadata,
                file: Some(file.clone()),
                tensor: None,
                error: error.in_format(gguf::FORMAT.name).in_file(file),
            };
            options.fault(fault, budget)?;
            continue;
        }
        parsed.push(part);
    }
    let complete = parsed.len() == all;
    let checkpoint = merge(parsed, options, budget)?;
    let catalog = &checkpoint.catalog;
    // the only check that no tensor is missing: a split has no index
    let announced = catalog.metadata.integer("split.tensors.count");
    if complete && announced.is_some_and(|n| n != catalog.tensors.len() as u64) {
        let error = Error::malformed(format!(
            "split.tensors.count is {}, but the files contain {} tensors",
            announced.unwrap_or_default(),
            catalog.tensors.len()
        ));
        let fault = OpenFault {
            kind: OpenFaultKind::SplitMetadata,
            file: None,
            tensor: None,
            error: error.in_format(gguf::FORMAT.name),
        };
        options.fault(fault, budget)?;
    }
    Ok(checkpoint)
}
