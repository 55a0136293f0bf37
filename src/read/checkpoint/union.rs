//! Several checkpoints as one: the tensors of all of them.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use anamnesis_os::files::directory_of;

use crate::base::error::{Error, Remedy, Result};
use crate::base::note::Note;
use crate::read::catalog::{Catalog, quote};
use crate::read::source::files::Files;

use super::named_files::{file_name, split_name};
use super::ranks::underscored_shard;
use super::set_key::SetKey;
use super::shards::shard_alone;
use super::{Checkpoint, OpenOptions};

/// Numbers of shards that a warning names.
const NAMED_SHARDS: usize = 8;

/// A further checkpoint of a union.
#[derive(Clone)]
pub(super) struct JoinedSource {
    path: PathBuf,
    /// Where the path is.
    files: Files,
}

impl OpenOptions {
    /// Opens several paths as one checkpoint: a [`union`](Checkpoint::union) in which each file is read once. The files of a split
    /// GGUF, or a directory and its shards, may be given one by one.
    ///
    /// ```
    /// use anamnesis::{Checkpoint, OpenOptions};
    ///
    /// let files = [1, 2, 3].map(|n| format!("fixtures/gguf/split/m-0000{n}-of-00003.gguf"));
    /// let whole = OpenOptions::new().open_union(&files)?;
    /// assert_eq!(whole.tensors().len(), Checkpoint::open(&files[0])?.tensors().len());
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`open`](Self::open) and of [`Checkpoint::union`].
    pub fn open_union<P: AsRef<Path>>(
        &self,
        paths: impl IntoIterator<Item = P>,
    ) -> Result<Checkpoint> {
        let paths = paths.into_iter();
        self.open_union_found(paths.map(|path| (path, None::<&Path>)))
    }

    /// Like [`open_union`](Self::open_union), with the directory in which each path was [found](Self::found_in), if the caller has not
    /// named it.
    ///
    /// ```
    /// use std::path::Path;
    /// use anamnesis::OpenOptions;
    ///
    /// let directory = Path::new("fixtures/gguf/split");
    /// let listed = (1..=3).map(|n| directory.join(format!("m-0000{n}-of-00003.gguf")));
    /// let whole = OpenOptions::new().open_union_found(listed.map(|path| (path, Some(directory))))?;
    /// assert_eq!(whole.catalog().files().len(), 3);
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`open_union`](Self::open_union).
    pub fn open_union_found<P: AsRef<Path>, D: AsRef<Path>>(
        &self,
        paths: impl IntoIterator<Item = (P, Option<D>)>,
    ) -> Result<Checkpoint> {
        let mut opened: Vec<(Checkpoint, HashSet<PathBuf>)> = Vec::new();
        for (path, directory) in paths {
            let path = path.as_ref();
            let own = identity(path);
            // another file of a set that was opened as a whole
            if opened.iter().any(|(_, files)| files.contains(&own)) {
                continue;
            }
            let next = match directory {
                Some(directory) => self.clone().found_in(directory).open(path)?,
                None => self.open(path)?,
            };
            let files = next.catalog.files().iter();
            let files = files.filter_map(|file| file.path.as_deref());
            let files: HashSet<PathBuf> = files.map(identity).collect();
            // files of this one that were given before: the first of them has its place
            let is_part = |known: &HashSet<PathBuf>| !known.is_empty() && known.is_subset(&files);
            let at = opened.iter().position(|(_, known)| is_part(known));
            opened.retain(|(_, known)| !is_part(known));
            opened.insert(at.unwrap_or(opened.len()), (next, files));
        }
        Checkpoint::union(opened.into_iter().map(|(checkpoint, _)| checkpoint))
    }
}

/// A path by which one file has one name: a local one without links.
fn identity(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

impl Checkpoint {
    /// One checkpoint of the tensors of several, which are of one format. Metadata, and the configuration beside the files, are
    /// the first one's; keys that only others have are added.
    ///
    /// ```
    /// use anamnesis::Checkpoint;
    ///
    /// let parts = ["fixtures/safetensors/sharded", "fixtures/model/scribe.safetensors"];
    /// let parts = parts.map(Checkpoint::open).into_iter().collect::<Result<Vec<_>, _>>()?;
    /// let count: usize = parts.iter().map(|part| part.tensors().len()).sum();
    /// match Checkpoint::union(parts) {
    ///     Ok(whole) => assert_eq!(whole.tensors().len(), count),
    ///     // both have a tensor of one name
    ///     Err(error) => println!("{error}"),
    /// }
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    ///
    /// # Errors
    /// No checkpoint; different formats; a tensor name that two of them have.
    pub fn union(checkpoints: impl IntoIterator<Item = Self>) -> Result<Self> {
        let mut all = checkpoints.into_iter();
        let mut whole = all
            .next()
            .ok_or_else(|| Error::invalid_argument("a union of no checkpoints"))?;
        for mut next in all {
            let formats = (whole.catalog.format, next.catalog.format);
            if formats.0 != formats.1 {
                let what = format!("a union of the formats {} and {}", formats.0, formats.1);
                return Err(Error::unsupported(what));
            }
            let budget = whole.budget();
            budget.keep_too(next.kept, "the merged catalog")?;
            let twice = next.catalog.tensors.iter();
            let mut twice = twice.filter(|info| whole.catalog.get(&info.name).is_some());
            if let Some(info) = twice.next() {
                let what = format!(
                    "this source and another one both have a tensor {}; leave one of the sources out",
                    quote(&info.name)
                );
                // each of them may be whole
                let error = Error::invalid_argument(what);
                return Err(match next.path() {
                    Some(path) => error.in_file(path),
                    None => error,
                });
            }
            let first = |before: usize, added: usize| {
                let fits = u32::try_from(before.saturating_add(added)).is_ok();
                let before = u32::try_from(before).ok().filter(|_| fits);
                before.ok_or_else(|| Error::unsupported("2³² files or storages"))
            };
            let files = first(whole.sources.len(), next.sources.len())?;
            let members = first(whole.catalog.members.len(), next.catalog.members.len())?;
            next.catalog.move_behind(files, members);
            if let Some(path) = next.path.take() {
                let files = next.files.clone();
                whole.joined.push(JoinedSource { path, files });
            }
            whole.joined.append(&mut next.joined);
            whole.sources.append(&mut next.sources);
            whole.states.append(&mut next.states);
            let (into, from) = (&mut whole.catalog, next.catalog);
            budget.reserve(&mut into.tensors, from.tensors.len(), "the merged catalog")?;
            into.tensors.extend(from.tensors);
            into.files.extend(from.files);
            into.members.extend(from.members);
            into.refused.extend(from.refused);
            into.extra_fields.extend(from.extra_fields);
            for (key, value) in from.metadata {
                match into.metadata.get(&key) {
                    None => into.metadata.push_charged(&key, value, &budget)?,
                    Some(known) if *known == value => {}
                    Some(_) => {
                        let values = &mut into.differing_values;
                        budget.push(values, (key, value), "the merged catalog")?;
                    }
                }
            }
            into.differing_values.extend(from.differing_values);
            into.warnings.extend(from.warnings);
            into.index_names(&budget)?;
            whole.kept = budget.kept();
        }
        join_warnings(&mut whole.catalog);
        Ok(whole)
    }

    /// The paths of the further checkpoints of a [`union`](Self::union), and the places where they are.
    pub(crate) fn joined(&self) -> impl Iterator<Item = (&Path, &Files)> {
        let joined = self.joined.iter();
        joined.map(|source| (&*source.path, &source.files))
    }
}

/// Says of shards that were opened one by one which are there, once, and nothing where all are. Other warnings that several files
/// have are said once.
fn join_warnings(catalog: &mut Catalog) {
    let mut sets: BTreeMap<(PathBuf, SetKey), (u64, BTreeSet<u64>)> = BTreeMap::new();
    for path in catalog.files.iter().filter_map(|file| file.path.as_deref()) {
        let name = file_name(path);
        let split = split_name(&name).map(|(_, number, of)| (number, of));
        if let (Some(key), Some((number, of))) = (
            SetKey::of(&name),
            split.or_else(|| underscored_shard(&name)),
        ) {
            let set = sets.entry((directory_of(path).to_owned(), key));
            let (_, numbers) = set.or_insert_with(|| (of, BTreeSet::new()));
            numbers.insert(number);
        }
    }
    for (of, numbers) in sets.into_values().filter(|(_, numbers)| numbers.len() > 1) {
        let before = catalog.warnings.len();
        for &number in &numbers {
            let alone = shard_alone(number, of);
            let mut warnings = catalog.warnings.iter();
            if let Some(at) = warnings.position(|warning| *warning == *alone) {
                catalog.warnings.remove(at);
            }
        }
        let count = numbers.len();
        let in_range = numbers.range(1..=of.max(1)).count() as u64;
        let is_whole = in_range == of;
        if catalog.warnings.len() < before && !is_whole {
            let named = numbers.iter().take(NAMED_SHARDS);
            let named: Vec<String> = named.map(u64::to_string).collect();
            let more = match count > NAMED_SHARDS {
                true => " …",
                false => "",
            };
            let text = format!(
                "{count} files of {of} of a checkpoint ({}{more}); the tensors of the others are not listed",
                named.join(", ")
            );
            let note = Note::with_remedy(text, Remedy::OpenWhole);
            catalog.warnings.push(note);
        }
    }
    let mut kept: Vec<Note> = Vec::new();
    for warning in std::mem::take(&mut catalog.warnings) {
        if !kept.contains(&warning) {
            kept.push(warning);
        }
    }
    catalog.warnings = kept;
}
