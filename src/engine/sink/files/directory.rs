//! A directory whose files are made one by one, by several processes or machines: what each has to make, which files are
//! there and complete, and the index.
//!
//! Files get their names as they are completed, each by one rename. The index gets its name last, when all of them are there:
//! a reader finds a checkpoint or none. Where an overwrite would change a checkpoint, that is removed first: its companion
//! files, then its index or only file, then its shards.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use anamnesis_os::whole_file;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::limits::{Budget, Limits};
use crate::engine::companions::Companions;
use crate::plan::{PLAN_ID_KEY, PlanId, TensorSpec};
use crate::read::catalog::quote;
use crate::read::json::{JsonReader, Tree};
use crate::read::source::files::url;
use crate::read::source::fill;
use crate::read::source::regular::open_regular;

use super::companion_files::{self, Companion, remove_if_there};
use super::cut::{FileCut, by_bytes};
use super::file::{self, Shard};
use super::local::{LocalOutput, lock_when_free};
use super::names::{PartNames, ShardNames, Stem};
use super::{FileSink, check_replaceable, directory_of};

/// Bytes of a header that are compared at a time.
const COMPARED: usize = 64 << 10;

/// One file of an [`OutputDirectory`]: what another process, which has opened the same source with the same options, needs to
/// make it with [`Remember::make_file`](crate::Remember::make_file). It is plain data, and serialises.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputFile {
    /// Its name in the directory: `model-00001-of-00008.safetensors`.
    pub name: String,
    /// The names of its outputs, in the order of the plan.
    pub outputs: Vec<Box<str>>,
    /// Bytes of its outputs.
    pub nbytes: u64,
    /// Whether it is the first file, which has all of the metadata.
    pub is_first: bool,
    /// The id of the whole plan, which the file's header names.
    pub plan_id: PlanId,
    /// The id of a plan of this file's outputs alone: a process that has opened another source, or has other options, makes
    /// another plan of them and is refused.
    pub outputs_id: PlanId,
}

/// The origin of a file with the name of an output file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileOrigin {
    Missing,
    /// The file itself: of this header and length.
    Complete,
    /// Another file whose header names the plan; it is damaged, or of another size of shards.
    SamePlan,
    /// A file whose header names another plan.
    OtherPlan,
    /// A file whose header names no plan, or cannot be read.
    Unknown,
}

/// The files of a plan in a directory, before they are made. Made by
/// [`Remember::output_directory`](crate::Remember::output_directory).
#[derive(Debug)]
pub struct OutputDirectory {
    sink: LocalOutput,
    companion_files: Companions,
    stem: Stem,
    parts: PartNames,
    outputs: Vec<TensorSpec>,
    cut: FileCut,
    files: Vec<OutputFile>,
}

impl FileSink {
    /// The directory that a run of this plan would write. `outputs_id` is called with the range of each file's outputs.
    pub(crate) fn into_directory(
        self,
        outputs: Vec<TensorSpec>,
        plan_id: PlanId,
        outputs_id: impl Fn(std::ops::Range<usize>) -> PlanId,
    ) -> Result<OutputDirectory> {
        let sharding = &self.target.sharding;
        let cut = FileCut::new(
            &outputs,
            by_bytes(&outputs, sharding)?,
            &self.form,
            &self.metadata,
            Some(plan_id),
        )?;
        // a bucket has no renames, by which workers publish their files
        if url(&self.target.path).is_some() {
            let what = "files that several workers make are written to a local directory; a run of one process writes to a URL";
            return Err(Error::unsupported(what).in_file(&self.target.path));
        }
        let sink = LocalOutput::new(&self.system, self.target);
        let (stem, parts) = (sink.stem()?, sink.parts()?);
        let (generation, count) = (1, cut.count() as u64);
        let name = |number: u64| match count {
            1 => stem.single(),
            _ => stem.shard(ShardNames { generation, count }, number),
        };
        let mut first = 0;
        let files = cut.files.iter().zip(1..).map(|(form, number)| {
            // layouts have the outputs in order, file by file
            let range = first..first + form.outputs.len();
            first = range.end;
            let names = outputs[range.clone()].iter();
            OutputFile {
                name: name(number),
                outputs: names.map(|output| output.name.clone()).collect(),
                nbytes: form.tensor_bytes,
                is_first: number == 1,
                plan_id,
                outputs_id: outputs_id(range),
            }
        });
        let files = files.collect();
        Ok(OutputDirectory {
            sink,
            companion_files: self.companion_files,
            stem,
            parts,
            outputs,
            cut,
            files,
        })
    }
}

impl OutputDirectory {
    /// The files in order: the same that one run writes.
    pub fn files(&self) -> &[OutputFile] {
        &self.files
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.sink.target
    }

    /// Creates the directory, and returns the numbers of the files that have to be made: all but those that are complete. Called
    /// by one process, before any file is made.
    ///
    /// A file of an unfinished run of another plan is to be made anew. Without [`overwrite`](crate::Remember::overwrite)
    /// everything else that a run of one process refuses is refused: a checkpoint (an index is there) of another plan, other
    /// numbered shards, files that this library has not written, companion files with other bytes. With it, these are
    /// removed now, so that no reader finds the files of two plans.
    ///
    /// # Errors
    /// I/O, too little space for the files that have to be made, or what is there must not be replaced.
    pub fn prepare(&mut self) -> Result<Vec<usize>> {
        let _lock = lock_when_free(|| self.sink.create_and_lock_directory())?;
        for created in std::mem::take(&mut self.sink.created_directories) {
            // now: the workers sync their files' directory and not those above it
            self.sink.sync_directory(directory_of(&created))?;
        }
        self.sink.settle_set_aside(&self.parts, &self.stem)?;
        self.remove_abandoned();
        let origins = (0..self.files.len()).map(|file| self.origin(file));
        let origins = origins.collect::<Result<Vec<_>>>()?;
        let has_index = self.path().join(self.stem.index()).exists();
        // without an index several files belong to an unfinished run; a single file is a checkpoint
        let is_committed = has_index || self.files.len() == 1;
        let mut replaces = false;
        // files of another plan: numbers alone would make one model of them and of the new ones
        let mut others = BTreeSet::new();
        for (file, origin) in self.files.iter().zip(&origins) {
            let is_kept = match origin {
                FileOrigin::OtherPlan => is_committed,
                // may be a user's own file
                FileOrigin::Unknown => true,
                FileOrigin::Missing | FileOrigin::Complete | FileOrigin::SamePlan => false,
            };
            let path = self.path().join(&file.name);
            check_replaceable(&path, self.sink.overwrite || !is_kept)?;
            replaces |= is_kept;
            if matches!(origin, FileOrigin::OtherPlan | FileOrigin::Unknown) {
                others.insert(path);
            }
        }
        let mut foreign = self.foreign_files()?;
        foreign
            .iter()
            .try_for_each(|path| self.sink.check_free(path))?;
        // a conflict is found before the files are made, not after
        let mut companions = self.companions()?;
        replaces |= !foreign.is_empty() || companions.iter().any(Companion::replaces);
        if replaces || !others.is_empty() {
            foreign.append(&mut others);
            self.remove_checkpoint(&mut companions, &foreign)?;
        }
        drop(companions);
        let to_make = (0..self.files.len()).filter(|&file| origins[file] != FileOrigin::Complete);
        let to_make: Vec<usize> = to_make.collect();
        let needed = to_make.iter().map(|&file| self.cut.file_bytes(file));
        let needed = needed.fold(0, u64::saturating_add);
        file::check_space(self.path(), needed, self.path())?;
        Ok(to_make)
    }

    /// Writes the companion files and, last, the index. Called by one process, after all files have been made. The directory then
    /// equals the one that one run writes, byte for byte. Returns the files of tensors.
    ///
    /// # Errors
    /// [`ErrorKind::MissingPart`] names the first file that is missing, incomplete or of another plan; nothing is written then.
    /// I/O, and as [`prepare`](Self::prepare).
    pub fn complete(&self) -> Result<Vec<PathBuf>> {
        let _lock = lock_when_free(|| self.sink.lock_directory())?;
        for (number, file) in self.files.iter().enumerate() {
            let what = match self.origin(number)? {
                FileOrigin::Complete => continue,
                FileOrigin::Missing => "is missing",
                FileOrigin::SamePlan => "is incomplete, or of another size of shards",
                FileOrigin::OtherPlan => "is of another plan",
                FileOrigin::Unknown => "has not been made by this library",
            };
            let what = format!("the file {} {what}", quote(&file.name));
            return Err(Error::new(ErrorKind::MissingPart(what)).in_file(self.path()));
        }
        self.foreign_files()?
            .iter()
            .try_for_each(|path| self.sink.check_free(path))?;
        let mut companions = self.companions()?;
        let mut index = match self.index_text() {
            Some((path, text)) => {
                let nbytes = text.len() as u64;
                let system = &self.sink.system;
                let index = Shard::create(system, &self.parts, &path, text.as_bytes(), nbytes)?;
                let is_there = index.equals(&path);
                let is_there = is_there.map_err(|e| Error::from(e).in_file(&path))?;
                (!is_there).then_some(index)
            }
            None => None,
        };
        // all contents before the first name, so that no name leads to bytes that a loss of power takes
        companions.iter().try_for_each(Companion::sync)?;
        index.iter().try_for_each(Shard::sync)?;
        companions.iter_mut().try_for_each(Companion::publish)?;
        self.sink.sync_directory(self.path())?;
        if let Some(index) = &mut index {
            // a new index must not replace one that another program has written meanwhile
            if self.sink.overwrite {
                index.publish_over()?;
            } else {
                index.publish_new()?;
            }
            self.sink.sync_directory(self.path())?;
        }
        self.remove_abandoned();
        let names = self.files.iter();
        Ok(names.map(|file| self.path().join(&file.name)).collect())
    }

    /// The number of files that are not complete.
    ///
    /// # Errors
    /// I/O.
    pub fn missing(&self) -> Result<usize> {
        let origins = (0..self.files.len()).map(|file| self.origin(file));
        let origins = origins.collect::<Result<Vec<_>>>()?;
        let is_missing = |origin: &&FileOrigin| **origin != FileOrigin::Complete;
        Ok(origins.iter().filter(is_missing).count())
    }

    /// Removes what killed processes left in the directory. The files that have been made stay.
    pub fn remove_abandoned(&self) {
        self.sink.remove_abandoned(&self.parts, &self.stem);
        for file in &self.files {
            let parts = PartNames::new(self.path(), file.name.as_ref());
            for part in parts.abandoned().into_iter().flatten() {
                // a file that cannot be removed keeps no run from writing
                let _ = remove_if_there(&*self.sink.system, &part.path);
            }
        }
    }

    fn origin(&self, file: usize) -> Result<FileOrigin> {
        let OutputFile { name, plan_id, .. } = &self.files[file];
        let (header, nbytes) = (&self.cut.files[file].head, self.cut.file_bytes(file));
        found_file(&self.path().join(name), header, nbytes, *plan_id)
    }

    /// The path and the text of the index of several files.
    fn index_text(&self) -> Option<(PathBuf, String)> {
        let names: Vec<String> = self.files.iter().map(|file| file.name.clone()).collect();
        let path = self.path().join(self.stem.index());
        (names.len() > 1).then(|| (path, self.cut.index(&self.outputs, &names)))
    }

    /// Files of tensors, and indexes, that do not belong to this plan.
    fn foreign_files(&self) -> Result<BTreeSet<PathBuf>> {
        let directory = self.path();
        let (index, single) = (self.stem.index(), self.stem.single());
        let mut found = companion_files::files_of_index(directory, &self.stem);
        let numbered = self.stem.shards(directory, |_| true);
        found.extend(numbered.map_err(|e| Error::from(e).in_file(directory))?);
        found.insert(directory.join(single));
        let own = self.index_text();
        let has_own_index = own.is_some_and(|(path, text)| {
            // a foreign index may be longer
            let found = whole_file::read(&path, text.len() as u64);
            found.is_ok_and(|found| found == text.as_bytes())
        });
        if !has_own_index {
            found.insert(directory.join(index));
        }
        for file in &self.files {
            found.remove(&directory.join(&file.name));
        }
        // an index names files that need not exist
        found.retain(|path| path.symlink_metadata().is_ok());
        Ok(found)
    }

    /// The companion files, written without their names.
    fn companions(&self) -> Result<Vec<Companion>> {
        let files = &self.companion_files.files;
        let created = self.sink.create_companions(&self.parts, files);
        // after they were copied, and before an error of one that is not there any more
        self.companion_files.check_source()?;
        created
    }

    /// Removes the checkpoint in the directory: first the companion files of other bytes, without which no client opens it,
    /// then what names shards, then the shards that this plan has no file for.
    fn remove_checkpoint(
        &self,
        companions: &mut [Companion],
        foreign: &BTreeSet<PathBuf>,
    ) -> Result<()> {
        let system = &*self.sink.system;
        companions.iter_mut().try_for_each(|companion| {
            companion.make_room(|path| remove_if_there(system, path).map(drop))
        })?;
        self.sink.sync_directory(self.path())?;
        let index = self.path().join(self.stem.index());
        remove_if_there(system, &index)?;
        self.sink.sync_directory(self.path())?;
        for path in foreign {
            remove_if_there(system, path)?;
        }
        self.sink.sync_directory(self.path())
    }
}

/// The thing that has the name of a file which has this header and this length when it is complete.
pub(crate) fn found_file(
    path: &Path,
    header: &[u8],
    nbytes: u64,
    plan_id: PlanId,
) -> Result<FileOrigin> {
    match path.symlink_metadata() {
        Ok(_) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(FileOrigin::Missing),
        Err(e) => return Err(Error::from(e).in_file(path)),
    }
    // neither a directory nor a device is a file of a plan
    let Ok((mut file, len)) = open_regular(path) else {
        return Ok(FileOrigin::Unknown);
    };
    // files get their names when they are complete, so header and length suffice
    let equal = len == nbytes && begins_with(&mut file, header).map_err(|e| e.in_file(path))?;
    if equal {
        return Ok(FileOrigin::Complete);
    }
    Ok(match plan_of(path) {
        Some(found) if found == plan_id.to_string() => FileOrigin::SamePlan,
        Some(_) => FileOrigin::OtherPlan,
        None => FileOrigin::Unknown,
    })
}

fn begins_with(file: &mut impl Read, header: &[u8]) -> Result<bool> {
    let mut found = vec![0; COMPARED.min(header.len())];
    for expected in header.chunks(COMPARED) {
        let found = &mut found[..expected.len()];
        let read = fill(found, |buf| file.read(buf))?;
        if found[..read] != *expected {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The id of the plan that a header names. A header that cannot be read names none.
fn plan_of(path: &Path) -> Option<String> {
    // the file may be any program's
    let budget = Budget::new(Limits::default());
    let (mut file, len) = open_regular(path).ok()?;
    let mut start = [0; 8];
    let read = fill(&mut start, |buf| file.read(buf)).ok()?;
    let announced = u64::from_le_bytes(start);
    // no header: no memory is reserved for its length
    if read < start.len() || announced > len.saturating_sub(8) {
        return None;
    }
    let _charge = budget.temporary(announced, "the header").ok()?;
    let mut text = crate::base::limits::zeroed(usize::try_from(announced).ok()?)?;
    fill(&mut text, |buf| file.read(buf)).ok()?;
    let reader = JsonReader::new(&budget, "the header");
    let malformed = |e: serde_json::Error| Error::malformed(e.to_string());
    let text = std::str::from_utf8(&text).ok()?;
    let Value::Object(header) = reader.parse(text, Tree(&reader), malformed).ok()? else {
        return None;
    };
    let metadata = header.get("__metadata__")?;
    metadata.get(PLAN_ID_KEY)?.as_str().map(str::to_owned)
}
