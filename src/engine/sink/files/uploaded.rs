//! Files in a bucket: uploaded in parts while outputs are made, and completed when all of them are.
//!
//! An object appears as a whole or not at all, and a reader finds a checkpoint by its index, or by the only file. When all
//! parts of all files are at the bucket, and not before:
//!
//! 1. With `overwrite`, what the old checkpoint has is removed: first its index, then the single file, unless the new one takes
//!    its place and no companion file changes, then its shards.
//! 2. Several shards are completed.
//! 3. Companion files are written, except those that are there with the same bytes.
//! 4. The index is written, or the only file completed. This is the commit.
//!
//! A run that fails before the commit is undone: parts under way end, uploads are aborted, objects of this run are removed.
//! A process that is killed leaves uploads open, which are not visible; the bucket's lifecycle rule ends them. Killed
//! between 2 and 4, it leaves shards without an index, which an overwrite replaces.

mod content;
mod existing;

use std::path::{Path, PathBuf};

use anamnesis_remote::{ErrorKind as RemoteKind, NewObject, Store, Uploads};

use crate::base::error::{Error, ErrorKind, Result};
use crate::engine::companions::{CompanionContent, CompanionFile};
use crate::read::source::remote::open_bucket;

use super::Sharding;
use super::companion_files::plain_name;
use super::names::{ShardNames, Stem};
use super::output::{NewFiles, OutputPlace, OutputTarget};
use content::ContentReader;

/// Companion files up to this length are written by one request.
// longer ones are uploaded in parts, whose memory is bounded
const SMALL: u64 = 8 << 20;

/// The callback for the time in which a request is waited for, with whether one is under way.
type Wait<'w> = &'w mut dyn FnMut(bool) -> bool;

/// The files of one run in a bucket.
pub(super) struct UploadedOutput {
    store: Store,
    target: OutputTarget,
    stem: Stem,
    /// The URL of the files' directory, without a slash at its end.
    directory: String,
    uploads: Option<Uploads>,
    count: usize,
    /// The path and the text of the index of several shards.
    index: Option<(String, String)>,
    companions: Vec<NewCompanion>,
    /// Paths of the old checkpoint that are removed before the new one appears, in this order.
    removed_first: Vec<String>,
    /// Objects that this run has written by one request and that have replaced none.
    written: Vec<String>,
    /// Uploads of long companion files, and of the index.
    long_companions: Vec<Uploads>,
}

/// A companion file that is written.
struct NewCompanion {
    path: String,
    content: CompanionContent,
    replaces: bool,
}

impl UploadedOutput {
    pub(super) fn open(url: &str, target: OutputTarget) -> Result<Self> {
        let store =
            open_bucket(url, target.urls.remote.clone()).map_err(|e| e.in_file(&target.path))?;
        let what = "the stem of the files is not part of a file name";
        let stem = Stem::new(&target.stem, target.extension)
            .ok_or_else(|| Error::invalid_argument(what))?;
        let path = store.path().trim_end_matches('/');
        let directory = match target.sharding {
            Sharding::Shards(_) => path,
            Sharding::SingleFile => path.rsplit_once('/').map_or(path, |(folder, _)| folder),
        };
        Ok(Self {
            directory: directory.to_owned(),
            store,
            target,
            stem,
            uploads: None,
            count: 0,
            index: None,
            companions: Vec::new(),
            removed_first: Vec::new(),
            written: Vec::new(),
            long_companions: Vec::new(),
        })
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.directory)
    }

    fn error(&self, path: &str, error: anamnesis_remote::Error) -> Error {
        let error = match error.kind() {
            RemoteKind::Cancelled => Error::new(ErrorKind::Cancelled),
            RemoteKind::Unsupported => Error::unsupported(error.to_string()),
            RemoteKind::Invalid => Error::invalid_argument(error.to_string()),
            RemoteKind::Exists => std::io::Error::from(std::io::ErrorKind::AlreadyExists).into(),
            _ => std::io::Error::from(error).into(),
        };
        error.in_file(Path::new(path))
    }

    /// Refuses an object that exists and must not be replaced.
    fn check_free(&self, path: &str) -> Result<()> {
        if self.target.overwrite {
            return Ok(());
        }
        let error = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
        Err(Error::from(error).in_file(Path::new(path)))
    }

    fn remove_old(&mut self, wait: Wait<'_>) -> Result<()> {
        for path in std::mem::take(&mut self.removed_first) {
            let removed = self.store.remove(&path, &mut || wait(true));
            removed.map_err(|e| self.error(&path, e))?;
        }
        Ok(())
    }

    fn put(&mut self, path: &str, bytes: Vec<u8>, replaces: bool, wait: Wait<'_>) -> Result<()> {
        if !replaces {
            // before its outcome is known: it may be there without an answer
            self.written.push(path.to_owned());
        }
        let replace = replaces || self.target.overwrite;
        // for the comparison below, which only a refused creation needs
        let copy = (!replace).then(|| bytes.clone());
        match self.store.put(path, bytes, replace, &mut || wait(true)) {
            // a repetition after an answer that was lost finds the object of the first attempt
            Err(e) if e.kind() == RemoteKind::Exists => {
                let own = copy.map(CompanionContent::Bytes);
                let is_own = own.map_or(Ok(false), |own| self.equals(path, &own))?;
                if !is_own {
                    self.written.retain(|written| written != path);
                    return Err(self.error(path, e));
                }
                Ok(())
            }
            outcome => outcome.map_err(|e| self.error(path, e)),
        }
    }

    fn put_companions(&mut self, wait: Wait<'_>) -> Result<()> {
        for companion in std::mem::take(&mut self.companions) {
            let NewCompanion {
                path,
                content,
                replaces,
            } = companion;
            let mut reader = ContentReader::open(&content)?;
            if reader.len > SMALL {
                self.upload_long(&path, &mut reader, replaces, wait)?;
            } else {
                let mut bytes = Vec::new();
                while bytes.len() as u64 != reader.len {
                    bytes.extend_from_slice(reader.next()?);
                }
                self.put(&path, bytes, replaces, wait)?;
            }
        }
        Ok(())
    }

    fn upload_long(
        &mut self,
        path: &str,
        reader: &mut ContentReader<'_>,
        replaces: bool,
        wait: Wait<'_>,
    ) -> Result<()> {
        let object = NewObject {
            path: path.to_owned(),
            head: Vec::new(),
            len: reader.len,
            replaces,
        };
        // an upload of its own, since it is completed before the tensors or after them
        let uploads = self.store.uploads(vec![object]);
        self.long_companions
            .push(uploads.map_err(|e| self.error(path, e))?);
        let uploads = &self.long_companions[self.long_companions.len() - 1];
        let mut start = 0;
        while start < reader.len {
            let bytes = reader.next()?;
            let written = uploads.write(0, start, bytes, wait);
            written.map_err(|e| self.error(path, e))?;
            start += bytes.len() as u64;
        }
        let sent = uploads.flush(wait);
        let completed = sent.and_then(|()| uploads.complete(0..1, wait));
        completed.map_err(|e| self.error(path, e))
    }

    /// Writes the index in parts too: a request that is cut off could still write an object, when the shards have been removed. An
    /// upload that is aborted cannot.
    fn write_index(&mut self, path: &str, text: String, wait: Wait<'_>) -> Result<()> {
        let found = self.store.length(path, &mut || wait(true));
        if found.map_err(|e| self.error(path, e))?.is_some() {
            // an index of another run, since the directory was looked at
            self.check_free(path)?;
        }
        let content = CompanionContent::Bytes(text.into_bytes());
        // the old index was removed before, so this one replaces nothing
        self.upload_long(path, &mut ContentReader::open(&content)?, false, wait)
    }

    fn complete(&self, wait: Wait<'_>) -> Result<()> {
        let uploads = self.uploads.as_ref().expect("created");
        let completed = uploads.complete(0..self.count, wait);
        completed.map_err(|e| self.error(&self.directory, e))
    }

    /// Written objects stay.
    fn keep(&mut self) {
        self.written.clear();
        let all = self.uploads.iter().chain(&self.long_companions);
        all.for_each(Uploads::keep);
    }
}

impl OutputPlace for UploadedOutput {
    fn create(&mut self, new: &NewFiles<'_>) -> Result<Vec<PathBuf>> {
        self.count = new.cut.count();
        let (mut replaces, paths) = match self.target.sharding {
            Sharding::SingleFile => {
                let path = self.store.path().to_owned();
                let found = self.store.length(&path, &mut || true);
                let found = found.map_err(|e| self.error(&path, e))?.is_some();
                if found {
                    self.check_free(&path)?;
                }
                (found, vec![path])
            }
            Sharding::Shards(_) => {
                let replaces = self.prepare_directory(new)?;
                let names = ShardNames {
                    generation: 1,
                    count: self.count as u64,
                };
                let name = |number| match self.count {
                    1 => self.stem.single(),
                    _ => self.stem.shard(names, number),
                };
                let paths = (1..=names.count).map(|number| self.path(&name(number)));
                (replaces, paths.collect())
            }
        };
        // shards replace nothing: the old checkpoint's were removed
        replaces &= self.count == 1;
        if new.cut.has_index() {
            let names: Vec<String> = paths.iter().map(|path| file_name(path)).collect();
            let text = new.cut.index(new.outputs, &names);
            self.index = Some((self.path(&self.stem.index()), text));
        }
        let objects = paths.iter().enumerate().map(|(file, path)| NewObject {
            path: path.clone(),
            head: new.cut.files[file].head.clone(),
            len: new.cut.file_bytes(file),
            replaces,
        });
        let uploads = self.store.uploads(objects.collect());
        let path = &self.target.path.to_string_lossy();
        self.uploads = Some(uploads.map_err(|e| self.error(path, e))?);
        Ok(paths.into_iter().map(PathBuf::from).collect())
    }

    fn write(&self, file: usize, start: u64, bytes: &[u8], wait: Wait<'_>) -> Result<()> {
        let uploads = self.uploads.as_ref().expect("created");
        let written = uploads.write(file, start, bytes, wait);
        written.map_err(|e| self.error(&self.directory, e))
    }

    fn publish(&mut self, wait: Wait<'_>) -> Result<()> {
        let uploads = self.uploads.as_ref().expect("created");
        let sent = uploads.flush(wait);
        sent.map_err(|e| self.error(&self.directory, e))?;
        // after the last byte has arrived, so that a failed upload leaves the old checkpoint
        self.remove_old(wait)?;
        match self.index.take() {
            Some((path, text)) => {
                self.complete(wait)?;
                self.put_companions(wait)?;
                self.write_index(&path, text, wait)?;
            }
            None => {
                self.put_companions(wait)?;
                self.complete(wait)?;
            }
        }
        self.keep();
        Ok(())
    }

    fn write_companions(&mut self, files: &[CompanionFile]) -> Result<()> {
        let names = self.names()?;
        for file in files {
            let path = self.path(plain_name(&file.name)?);
            let replaces = names.contains(&file.name);
            if replaces && self.equals(&path, &file.content)? {
                continue;
            }
            if replaces {
                self.check_free(&path)?;
            }
            let content = file.content.clone();
            self.companions.push(NewCompanion {
                path,
                content,
                replaces,
            });
        }
        self.put_companions(&mut |_| true)?;
        self.keep();
        Ok(())
    }

    fn is_ordered(&self) -> bool {
        true
    }

    fn discard(&mut self) -> Option<String> {
        let mut notes = Vec::new();
        let mut not_removed = Vec::new();
        // the index is the last of them, and is removed before its shards
        for path in std::mem::take(&mut self.written).into_iter().rev() {
            if self.store.remove(&path, &mut || true).is_err() {
                not_removed.push(path);
            }
        }
        if !not_removed.is_empty() {
            let paths = not_removed.join(", ");
            notes.push(format!("these objects could not be removed: {paths}"));
        }
        for uploads in self.long_companions.iter().chain(&self.uploads) {
            let left = uploads.abort();
            if !left.is_empty() {
                notes.push(left.to_string());
            }
        }
        (!notes.is_empty()).then(|| notes.join("; "))
    }
}

impl Drop for UploadedOutput {
    fn drop(&mut self) {
        // a destructor cannot report what remains
        self.discard();
    }
}

impl std::fmt::Debug for UploadedOutput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UploadedOutput")
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

/// The name at the end of a URL.
fn file_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or_default().to_owned()
}
