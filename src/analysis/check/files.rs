//! The files of a model: which there are, and the digests of those where there is something to compare them with.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::error::Result;
use crate::base::limits::{Budget, text_cost};
use crate::read::checkpoint::Checkpoint;
use crate::read::digest::Sha256Digest;
use crate::read::source::file_system::MapMode;
use crate::read::source::files::Files;

use super::expected::{CheckedModel, ExpectedDigests, FileDigest};
use super::hashing::{FileToHash, HashedFile, hash_files};
use super::opening::{root_of, unreadable};
use super::places::below;
use super::report::{CheckedFile, Finding};
use super::tensor_digests::digest_tensors;
use super::{Check, check_rules};

/// The check of a model's files.
pub(super) struct FileCheck<'r> {
    pub(super) check: &'r Check<'r>,
    pub(super) checkpoints: &'r [&'r Checkpoint],
    pub(super) path: Option<&'r Path>,
    pub(super) root: &'r Path,
    pub(super) files: &'r Files,
}

const WHAT: &str = "the files of the model";

impl FileCheck<'_> {
    /// Lists the files, computes digests, and compares them. The digests of tensors are empty if none were computed.
    pub(super) fn run(
        &self,
        budget: &Budget,
        add: &mut dyn FnMut(Finding) -> Result<()>,
    ) -> Result<(Vec<CheckedFile>, Vec<Option<Sha256Digest>>)> {
        let mut paths = self.opened(budget)?;
        let opened = paths.len();
        budget.memory(
            size_of::<(&Checkpoint, usize)>() as u64 * opened as u64,
            WHAT,
        )?;
        let places: Vec<_> = self.opened_files().collect();
        self.list_others(&mut paths, budget)?;
        let whole = self.path.is_some_and(|path| self.files.is_directory(path));
        let model = CheckedModel {
            files: self.files,
            root: self.root,
            paths: &paths,
            whole,
        };
        let mut expected = match &self.check.list {
            // digests read all bytes, which `headers` excludes
            _ if self.check.headers => ExpectedDigests::default(),
            Some(list) => ExpectedDigests::of_list(&model, list, budget)?,
            None => ExpectedDigests::beside(&model, budget)?,
        };
        for name in std::mem::take(&mut expected.missing) {
            let text = format!("is in {}, and not there", self.list_origin());
            add(Finding::new(&check_rules::HASH_MISSING_FILE, text).of_file(name))?;
        }
        let mut listed = Vec::new();
        let (mut to_hash, mut rows) = (Vec::new(), Vec::new());
        for (number, path) in paths.iter().enumerate() {
            let shown = below(self.root, path);
            let digest = expected.files.get(&shown);
            let needed = digest.is_some() || (self.check.file_digests && !self.check.headers);
            // files next to the model are listed where they are compared
            if number >= opened && !needed {
                continue;
            }
            budget.memory(
                size_of::<CheckedFile>() as u64 + 4 * text_cost(shown.len()),
                WHAT,
            )?;
            let place = places.get(number).copied().filter(|_| number < opened);
            let source = self.source(place, path, budget, needed);
            let mut nbytes = self.length(place, path);
            if needed {
                match source {
                    Some(Ok(source)) => {
                        nbytes = source.len().unwrap_or(nbytes);
                        rows.push(listed.len());
                        to_hash.push(FileToHash {
                            path: path.clone(),
                            source,
                            nbytes,
                            // a second hash of all bytes, only where it is compared
                            git: matches!(digest, Some((FileDigest::Git(_), _))),
                        });
                    }
                    Some(Err(error)) => {
                        let found = unreadable(&error, Some(path), self.root, self.files);
                        add(found.ok_or(error)?)?;
                    }
                    None => {}
                }
            }
            listed.push(CheckedFile {
                path: shown,
                nbytes,
                sha256: None,
                expected: digest.map(|(digest, _)| digest.to_string()),
                source: digest.map(|(_, origin)| origin.clone()),
            });
        }
        let hashed = hash_files(
            &to_hash,
            self.check.options.threads,
            &self.check.options.control,
        )?;
        for (row, hashed) in rows.into_iter().zip(hashed) {
            let file = &mut listed[row];
            let hashed = match hashed {
                Ok(hashed) => hashed,
                Err(error) => {
                    let path = self.root.join(&file.path);
                    let found = unreadable(&error, Some(&path), self.root, self.files);
                    add(found.ok_or(error)?)?;
                    continue;
                }
            };
            file.sha256 = Some(hashed.sha256);
            let digest = expected.files.get(&file.path);
            digest
                .and_then(|digest| wrong(&file.path, digest, &hashed))
                .map_or(Ok(()), &mut *add)?;
        }
        let digests = match self.checkpoints {
            // names of tensors belong to one checkpoint
            [checkpoint] if !self.check.headers => {
                if self.check.tensor_digests || !expected.tensors.is_empty() {
                    let origin = self.list_origin();
                    digest_tensors(self.check, checkpoint, &expected.tensors, &origin, add)?
                } else {
                    Vec::new()
                }
            }
            _ => Vec::new(),
        };
        let compute = self.check.tensor_digests;
        Ok((listed, if compute { digests } else { Vec::new() }))
    }

    fn list_origin(&self) -> String {
        match &self.check.list {
            Some(list) if !list.origin.is_empty() => list.origin.clone(),
            Some(_) => "the list of digests".to_owned(),
            None => "SHA256SUMS".to_owned(),
        }
    }

    /// The paths of the files that were opened; without a checkpoint, the path itself if it is a file.
    fn opened(&self, budget: &Budget) -> Result<Vec<PathBuf>> {
        let mut paths = Vec::new();
        let mut push = |path: &Path| {
            budget.memory(text_cost(path.as_os_str().len()), WHAT)?;
            budget.push(&mut paths, path.to_owned(), WHAT)
        };
        for (checkpoint, file) in self.opened_files() {
            let info = &checkpoint.catalog().files()[file];
            push(info.path.as_deref().unwrap_or(Path::new("")))?;
        }
        match self.path.filter(|_| self.checkpoints.is_empty()) {
            Some(path) if self.files.is_file(path) => push(path)?,
            _ => {}
        }
        Ok(paths)
    }

    /// The files of all checkpoints, each with its number.
    fn opened_files(&self) -> impl Iterator<Item = (&Checkpoint, usize)> {
        let of = |checkpoint: &&'_ Checkpoint| checkpoint.catalog().files().len();
        let each = self.checkpoints.iter();
        each.flat_map(move |checkpoint| (0..of(checkpoint)).map(move |file| (*checkpoint, file)))
    }

    /// Adds the other files of a local directory that was opened: those that a list or the hub's cache may know.
    fn list_others(&self, paths: &mut Vec<PathBuf>, budget: &Budget) -> Result<()> {
        let Some(path) = self.path.filter(|_| self.files.is_local()) else {
            return Ok(());
        };
        if !self.files.is_directory(path) {
            return Ok(());
        }
        let mut names = Vec::new();
        // `.git`, `.cache` and editors' files are no part of the model
        let visible = |name: &OsStr| !name.as_encoded_bytes().starts_with(b".");
        self.files.list(path, &visible, &mut |name| {
            budget.memory(3 * text_cost(name.len()), WHAT)?;
            budget.push(&mut names, name, WHAT)
        })?;
        // the order of a listing is unspecified
        names.sort();
        let known: std::collections::HashSet<PathBuf> = paths.iter().cloned().collect();
        for name in names {
            let other = path.join(name);
            // pipes and devices are not read
            if !known.contains(&other) && self.files.is_file(&other) {
                budget.push(paths, other, WHAT)?;
            }
        }
        Ok(())
    }

    /// The bytes of a file that is read.
    fn source(
        &self,
        place: Option<(&Checkpoint, usize)>,
        path: &Path,
        budget: &Budget,
        needed: bool,
    ) -> Option<Result<Arc<dyn crate::read::source::Source>>> {
        if !needed {
            return None;
        }
        if let Some((checkpoint, file)) = place {
            let source = checkpoint.sources().get(file).cloned();
            // the length of a stream is not known, and its bytes are gone
            return source.filter(|source| source.len().is_some()).map(Ok);
        }
        let mapping = MapMode {
            // read once from the first byte to the last: a map would evict other pages and end the process if the file
            // shrinks
            mmap: false,
            private: false,
        };
        Some(self.files.open_named(path, mapping, budget))
    }

    fn length(&self, place: Option<(&Checkpoint, usize)>, path: &Path) -> u64 {
        match place {
            Some((checkpoint, file)) => checkpoint.catalog().files()[file].nbytes,
            None if self.files.is_local() => std::fs::metadata(path).map_or(0, |meta| meta.len()),
            // the length of a URL would cost a request; only files that are compared are opened
            None => 0,
        }
    }
}

/// The finding for a file that has another digest.
fn wrong(
    file: &str,
    (digest, origin): &(FileDigest, String),
    hashed: &HashedFile,
) -> Option<Finding> {
    if hashed.has(digest) {
        return None;
    }
    let text = format!("{}, expected {digest} ({origin})", hashed.like(digest));
    Some(Finding::new(&check_rules::HASH, text).of_file(file))
}

/// The name of a checkpoint's file as findings have it.
pub(super) fn shown(
    checkpoint: &Checkpoint,
    file: usize,
    path: Option<&Path>,
    files: &Files,
) -> Option<String> {
    let info = checkpoint.catalog().files().get(file)?;
    let root = path.map(|path| root_of(path, files)).unwrap_or_default();
    info.path.as_deref().map(|path| below(&root, path))
}
