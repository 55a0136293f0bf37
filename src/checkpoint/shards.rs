//! The files of a checkpoint: those that an `….index.json` lists, those of a split GGUF, and those that are selected of a
//! directory.

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::Value as Json;

use crate::catalog::metadata::Value;
use crate::catalog::quote;
use crate::error::{Error, ErrorKind, Result};
use crate::format::gguf;
use crate::json::{self, JsonReader, Pairs, StringPairs, Text, Tree};
use crate::limits::Budget;
use crate::source::file_system::OpenedPath;
use crate::source::files::Files;

use super::directory::select_files;
use super::distributed;
use super::merge::{ParsedFile, merge};
use super::named_files::{charge_files, file_name, is_index, plain_name, require, split_name};
use super::open::{parse_path, parse_source};
use super::{Checkpoint, OpenOptions};

pub(super) fn open(files: &Files, path: &Path, options: &OpenOptions) -> Result<Checkpoint> {
    let budget = options.budget();
    // before the file is opened: an index is text, which no format recognises
    if is_index(path) && !files.is_directory(path) {
        return open_index(files, path, options, &budget);
    }
    if distributed::is_metadata(path) && files.is_file(path) {
        return distributed::open(files, path, options, &budget);
    }
    let file = match files.open_path(path, options.mapping(), &budget)? {
        OpenedPath::Directory => return open_directory(files, path, options, &budget),
        OpenedPath::File(_)
            if path
                .extension()
                .is_some_and(|e| e == distributed::EXTENSION) =>
        {
            return Err(distributed::opened_alone());
        }
        OpenedPath::File(source) => parse_source(source, Some(path), options, &budget)?,
    };
    merge_single_or_split(files, path, file, options, &budget)
}

fn open_directory(
    files: &Files,
    path: &Path,
    options: &OpenOptions,
    budget: &Budget,
) -> Result<Checkpoint> {
    let selection = select_files(files, path, budget)?;
    let mut checkpoint = match selection.files.as_slice() {
        [one] if is_index(one) => open_index(files, one, options, budget)?,
        [one] if distributed::is_metadata(one) => distributed::open(files, one, options, budget)?,
        [one] => {
            let file = parse_path(files, one, options, budget)?;
            merge_single_or_split(files, one, file, options, budget)?
        }
        paths => merge(parse_all(files, paths, options, budget)?, options, budget)?,
    };
    checkpoint.catalog.warnings.extend(selection.warning);
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
        checkpoint.catalog.warnings.push(text);
        return Ok(checkpoint);
    }
    open_split(files, path, file, count, options, budget)
}

fn parse_all(
    files: &Files,
    paths: &[PathBuf],
    options: &OpenOptions,
    budget: &Budget,
) -> Result<Vec<ParsedFile>> {
    // where each file is a round trip, all are requested before the first is parsed
    files.begin(&mut paths.iter().cloned());
    paths
        .iter()
        .map(|path| parse_path(files, path, options, budget))
        .collect()
}

/// `….index.json`: the file that contains each tensor.
struct Index {
    metadata: serde_json::Map<String, Json>,
    weight_map: StringPairs,
}

/// Reads an index. Other keys than `metadata` and `weight_map` are ignored.
struct IndexSeed<'r, 'b>(&'r JsonReader<'b>);

impl<'de> DeserializeSeed<'de> for IndexSeed<'_, '_> {
    type Value = Index;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Index, D::Error> {
        d.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for IndexSeed<'_, '_> {
    type Value = Index;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with the key `weight_map`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Index, A::Error> {
        let (mut metadata, mut weight_map) = (None, None);
        while let Some(Text(key)) = map.next_key()? {
            let twice = match &*key {
                "metadata" => match map.next_value_seed(Tree(self.0))? {
                    Json::Object(object) => metadata.replace(object).is_some(),
                    _ => return Err(A::Error::custom("`metadata` is not an object")),
                },
                "weight_map" => {
                    let pairs = map.next_value_seed(Pairs(self.0))?;
                    weight_map.replace(pairs).is_some()
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    false
                }
            };
            if twice {
                return Err(A::Error::custom(format!("duplicate field `{key}`")));
            }
        }
        Ok(Index {
            metadata: metadata.unwrap_or_default(),
            weight_map: weight_map.ok_or_else(|| A::Error::missing_field("weight_map"))?,
        })
    }
}

fn open_index(
    files: &Files,
    path: &Path,
    options: &OpenOptions,
    budget: &Budget,
) -> Result<Checkpoint> {
    read_index(files, path, options, budget).map_err(|e| e.in_file(path).in_format("index"))
}

fn read_index(
    files: &Files,
    path: &Path,
    options: &OpenOptions,
    budget: &Budget,
) -> Result<Checkpoint> {
    let index = {
        let (text, _charge) = files.read_whole(path, budget, "the index")?;
        let reader = JsonReader::new(budget, "the index");
        let malformed = |what: String| {
            Error::malformed(format!("not an index of a sharded checkpoint: {what}"))
        };
        let text = std::str::from_utf8(&text).map_err(|e| malformed(e.to_string()))?;
        reader.parse(text, IndexSeed(&reader), |e| malformed(e.to_string()))?
    };
    let directory = path.parent().unwrap_or(Path::new(""));
    let mut names = BTreeSet::new();
    for (_, file) in &index.weight_map {
        // a set: the index names its file for each tensor, a thousand times per file
        if names.insert(plain_name(file)?) {
            charge_files(budget, 1, directory, file.len())?;
        }
    }
    let paths: Vec<PathBuf> = names.iter().map(|name| directory.join(name)).collect();
    // all missing files are reported at once, before any is parsed
    require(files, &paths)?;
    if paths.is_empty() {
        return Err(Error::malformed("the index lists no files"));
    }
    let mut checkpoint = merge(parse_all(files, &paths, options, budget)?, options, budget)?;
    let catalog = &mut checkpoint.catalog;
    for (tensor, file) in &index.weight_map {
        let held = catalog
            .get(tensor)
            .map(|t| paths[t.bytes.file as usize].as_path());
        // a tensor in another file than in the index: readers that follow the index and readers that search all files
        // would differ
        if held != Some(directory.join(&**file).as_path()) {
            return Err(Error::malformed(format!(
                "the index places {} in {}, which does not contain it",
                quote(tensor),
                quote(file)
            )));
        }
    }
    let unlisted = catalog.tensors.len() - index.weight_map.len();
    if unlisted > 0 {
        catalog.warnings.push(format!(
            "{unlisted} tensors of the files are not in the index"
        ));
    }
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
    checkpoint.charged = budget.in_use();
    Ok(checkpoint)
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
            return Err(Error::new(ErrorKind::MissingPart(format!(
                "this is file {} of {count} of a split GGUF, but its name has no such number, so that the other files \
                 cannot be found; rename it to NAME-{:05}-of-{count:05}.gguf, or open it alone with `OpenOptions::single`",
                no + 1,
                no + 1
            ))));
        }
    };
    let directory = path.parent().unwrap_or(Path::new(""));
    charge_files(budget, count, directory, name.len())?;
    let paths: Vec<PathBuf> = (1..=count)
        .map(|n| directory.join(format!("{prefix}-{n:05}-of-{count:05}.gguf")))
        .collect();
    require(files, &paths)?;
    files.begin(&mut paths.iter().filter(|other| *other != path).cloned());
    let mut parsed = Vec::with_capacity(paths.len());
    // the file that was opened first is not parsed again
    let mut first = Some(first);
    for (n, file) in (0u64..).zip(&paths) {
        let part = match first.take_if(|_| n == no) {
            Some(first) => first,
            None => parse_path(files, file, options, budget)?,
        };
        let meta = &part.catalog.metadata;
        // the names only find the files; their metadata must confirm that they belong together
        if (meta.integer("split.no"), meta.integer("split.count")) != (Some(n), Some(count)) {
            return Err(Error::malformed(format!(
                "the name of this file is that of file {} of {count}, but its metadata differ",
                n + 1
            ))
            .in_format(gguf::FORMAT.name)
            .in_file(file));
        }
        parsed.push(part);
    }
    let checkpoint = merge(parsed, options, budget)?;
    let catalog = &checkpoint.catalog;
    // the only check that no tensor is missing: a split has no index
    let announced = catalog.metadata.integer("split.tensors.count");
    if announced.is_some_and(|n| n != catalog.tensors.len() as u64) {
        return Err(Error::malformed(format!(
            "split.tensors.count is {}, but the files contain {} tensors",
            announced.unwrap_or_default(),
            catalog.tensors.len()
        ))
        .in_format(gguf::FORMAT.name));
    }
    Ok(checkpoint)
}
