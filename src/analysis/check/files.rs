//! The files of a model: which there are, and the digests of those where there is something to compare them with.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::error::Result;
use crate::base::limits::{Budget, text_cost};
use crate::read::checkpoint::{Checkpoint, DirectoryListing, UnreadFile};
use crate::read::digest::{FileDigests, Sha256Digest};
use crate::read::source::Source;
use crate::read::source::file_system::{MapMode, NamedPath};
use crate::read::source::files::Files;

use super::checked_model::CheckedModel;
use super::evidence::Evidence;
use super::expected::{ExpectedDigest, ExpectedDigests};
use super::file_digest::FileDigest;
use super::hashing::{FileToHash, hash_files, like};
use super::opened::{OpenedModels, UNREADABLE};
use super::opening::{root_of, unreadable};
use super::places::below;
use super::report::{CheckedFile, Finding};
use super::tensor_digests::digest_tensors;
use super::{Check, check_rules};

/// The check of a model's files.
pub(super) struct FileCheck<'r> {
    pub(super) check: &'r Check<'r>,
    pub(super) checkpoints: &'r [&'r Checkpoint],
    /// The models that were opened of a path.
    pub(super) opened: Option<&'r OpenedModels>,
    pub(super) path: Option<&'r Path>,
    pub(super) root: &'r Path,
    pub(super) files: &'r Files,
}

/// The outcome of the check of files.
pub(super) struct FileOutcome {
    pub(super) files: Vec<CheckedFile>,
    /// The digests of the tensors of each checkpoint; empty if none were computed.
    pub(super) tensors: Vec<Vec<Option<Sha256Digest>>>,
    pub(super) evidence: Vec<Evidence>,
    /// Files of the directory that were not looked at.
    pub(super) unread: Vec<UnreadFile>,
    /// The number of files that were looked at.
    pub(super) checked: u64,
}

/// A file that belongs to the model or is next to it.
struct ModelFile<'r> {
    path: PathBuf,
    /// The checkpoint that it was opened as a file of, and its number there.
    opened: Option<(&'r Checkpoint, usize)>,
}

const WHAT: &str = "the files of the model";

impl<'r> FileCheck<'r> {
    /// Lists the files, computes digests, and compares them.
    pub(super) fn run(
        &self,
        budget: &Budget,
        add: &mut dyn FnMut(Finding) -> Result<()>,
    ) -> Result<FileOutcome> {
        let mut model_files = self.opened_files(budget)?;
        let own;
        let listing = match (self.opened, self.directory()) {
            (Some(opened), _) => opened.listing(),
            (None, Some(directory)) => {
                own = DirectoryListing::of(self.files, directory, budget)?;
                Some(&own)
            }
            (None, None) => None,
        };
        self.list_others(listing, &mut model_files, budget)?;
        let mut expected = self.expected(&model_files, listing, budget)?;
        std::mem::take(&mut expected.findings)
            .into_iter()
            .try_for_each(&mut *add)?;
        self.list_below(&mut model_files, &expected, budget)?;
        let mut listed = Vec::new();
        let (mut to_hash, mut rows) = (Vec::new(), Vec::new());
        for file in &model_files {
            let shown = below(self.root, &file.path);
            let digests = expected.files.get(&shown).map_or(&[][..], Vec::as_slice);
            let needed = !digests.is_empty() || (self.check.file_digests && !self.check.headers);
            // files next to the model are listed where they are compared
            if file.opened.is_none() && !needed && self.is_next_to_it(file) {
                continue;
            }
            budget.memory(
                size_of::<CheckedFile>() as u64 + 4 * text_cost(shown.len()),
                WHAT,
            )?;
            let mut nbytes = self.length(file);
            match needed.then(|| self.source(file, budget)).flatten() {
                Some(Ok(source)) => {
                    nbytes = source.len().unwrap_or(nbytes);
                    rows.push(listed.len());
                    let has = |is: fn(&FileDigest) -> bool| digests.iter().any(|(d, _)| is(d));
                    to_hash.push(FileToHash {
                        path: file.path.clone(),
                        source,
                        nbytes,
                        // further hashes of all bytes, only where they are compared
                        git: has(|digest| matches!(digest, FileDigest::Git(_))),
                        sha512: has(|digest| matches!(digest, FileDigest::Sha512(_))),
                    });
                }
                Some(Err(error)) => {
                    let found = unreadable(&error, Some(&file.path), self.root, self.files);
                    add(found.ok_or(error)?)?;
                }
                None => {}
            }
            let first = digests.first();
            listed.push(CheckedFile {
                path: shown,
                nbytes,
                sha256: None,
                expected: first.map(|(digest, _)| digest.to_string()),
                source: first.map(|(_, origin)| origin.clone()),
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
            for digest in expected.files.get(&file.path).into_iter().flatten() {
                wrong(&file.path, digest, &hashed).map_or(Ok(()), &mut *add)?;
            }
        }
        let compute = self.check.tensor_digests;
        let is_wanted = compute || !expected.tensors.is_empty();
        let tensors = match is_wanted && !self.check.headers {
            true => digest_tensors(self.check, self.checkpoints, &expected.tensors, add)?,
            false => Vec::new(),
        };
        let (checked, unread) = self.unread(&expected.evidence, &listed, listing, budget)?;
        Ok(FileOutcome {
            files: listed,
            tensors: if compute { tensors } else { Vec::new() },
            evidence: expected.evidence,
            unread,
            checked,
        })
    }

    fn expected(
        &self,
        files: &[ModelFile<'_>],
        listing: Option<&DirectoryListing>,
        budget: &Budget,
    ) -> Result<ExpectedDigests> {
        let paths = files.iter().map(|file| file.path.clone());
        budget.memory(
            files
                .iter()
                .map(|file| text_cost(file.path.as_os_str().len()))
                .sum(),
            WHAT,
        )?;
        let model = CheckedModel {
            files: self.files,
            root: self.root,
            paths: &paths.collect::<Vec<_>>(),
            whole: self.directory().is_some(),
            listing,
        };
        match &self.check.list {
            // a reader or bytes have nothing next to them
            None if self.path.is_none() => Ok(ExpectedDigests::default()),
            // digests read all bytes, which `headers` excludes
            _ if self.check.headers => {
                ExpectedDigests::unused(&model, "headers alone were read", budget)
            }
            Some(list) => ExpectedDigests::of_list(&model, list, budget),
            None => ExpectedDigests::beside(&model, budget),
        }
    }

    /// The directory that is checked, if it is one.
    fn directory(&self) -> Option<&'r Path> {
        self.path.filter(|path| self.files.is_directory(path))
    }

    /// Whether a file is no part of what was named: one beside a model, or in its directory.
    fn is_next_to_it(&self, file: &ModelFile<'_>) -> bool {
        self.path != Some(&file.path)
    }

    /// The files that were opened; without a checkpoint, the path itself if it is a file.
    fn opened_files(&self, budget: &Budget) -> Result<Vec<ModelFile<'r>>> {
        let mut files = Vec::new();
        let mut push = |path: &Path, opened| {
            budget.memory(text_cost(path.as_os_str().len()), WHAT)?;
            let path = path.to_owned();
            budget.push(&mut files, ModelFile { path, opened }, WHAT)
        };
        for checkpoint in self.checkpoints {
            for (number, info) in checkpoint.catalog().files().iter().enumerate() {
                let path = info.path.as_deref().unwrap_or(Path::new(""));
                push(path, Some((*checkpoint, number)))?;
            }
        }
        match self.path.filter(|_| self.checkpoints.is_empty()) {
            Some(path) if self.files.is_file(path) => push(path, None)?,
            _ => {}
        }
        Ok(files)
    }

    /// Adds the other files of a local directory that was opened: those that a list or the hub's cache may know.
    fn list_others(
        &self,
        listing: Option<&DirectoryListing>,
        files: &mut Vec<ModelFile<'r>>,
        budget: &Budget,
    ) -> Result<()> {
        let directory = self.directory().filter(|_| self.files.is_local());
        let (Some(directory), Some(listing)) = (directory, listing) else {
            return Ok(());
        };
        let known: HashSet<PathBuf> = files.iter().map(|file| file.path.clone()).collect();
        for name in listing.files() {
            let path = directory.join(name);
            // `.git`, `.cache` and editors' files are no part of the model; pipes and devices are not read
            if name.starts_with('.') || known.contains(&path) || !self.files.is_file(&path) {
                continue;
            }
            budget.memory(2 * text_cost(path.as_os_str().len()), WHAT)?;
            budget.push(files, ModelFile { path, opened: None }, WHAT)?;
        }
        Ok(())
    }

    /// Adds listed files of deeper directories.
    fn list_below(
        &self,
        files: &mut Vec<ModelFile<'r>>,
        expected: &ExpectedDigests,
        budget: &Budget,
    ) -> Result<()> {
        let known: HashSet<String> = files.iter().map(|f| below(self.root, &f.path)).collect();
        let names = expected.files.keys().filter(|name| !known.contains(*name));
        let mut names: Vec<&String> = names.collect();
        // the order of a map is random
        names.sort();
        for name in names {
            let path = self.root.join(name);
            budget.memory(3 * text_cost(path.as_os_str().len()), WHAT)?;
            budget.push(files, ModelFile { path, opened: None }, WHAT)?;
        }
        Ok(())
    }

    /// The bytes of a file that is read; `None` of a stream, whose bytes are gone.
    fn source(&self, file: &ModelFile<'_>, budget: &Budget) -> Option<Result<Arc<dyn Source>>> {
        if let Some((checkpoint, number)) = file.opened {
            let source = checkpoint.sources().get(number).cloned();
            return source.filter(|source| source.len().is_some()).map(Ok);
        }
        let mapping = MapMode {
            // read once from the first byte to the last: a map would evict other pages and end the process if the file
            // shrinks
            mmap: false,
            private: false,
        };
        Some(
            self.files
                .open_named(NamedPath::below(self.root, &file.path), mapping, budget),
        )
    }

    fn length(&self, file: &ModelFile<'_>) -> u64 {
        match file.opened {
            Some((checkpoint, number)) => checkpoint.catalog().files()[number].nbytes,
            None if self.files.is_local() => {
                std::fs::metadata(&file.path).map_or(0, |meta| meta.len())
            }
            // the length of a URL would cost a request; only files that are compared are opened
            None => 0,
        }
    }

    /// The number of files that were looked at, and the others of the directory.
    fn unread(
        &self,
        evidence: &[Evidence],
        listed: &[CheckedFile],
        listing: Option<&DirectoryListing>,
        budget: &Budget,
    ) -> Result<(u64, Vec<UnreadFile>)> {
        let (Some(directory), Some(listing)) = (self.directory(), listing) else {
            let unreadable = self.opened.map(OpenedModels::unreadable);
            let unread: Vec<UnreadFile> = unreadable
                .into_iter()
                .flatten()
                .map(|path| UnreadFile::new(below(self.root, path), UNREADABLE))
                .collect();
            let is_read = |file: &ModelFile<'_>| {
                unreadable.is_none_or(|unreadable| !unreadable.contains(&file.path))
            };
            let opened = self.opened_files(budget)?;
            let read = opened.iter().filter(|file| is_read(file)).count();
            return Ok((read as u64, unread));
        };
        let used = evidence.iter().filter(|found| found.compared > 0);
        let used: HashSet<&str> = used.map(|found| &*found.path).collect();
        let names: HashSet<&str> = listed.iter().map(|file| &*file.path).collect();
        let is_opened = |name: &str| self.opened.is_some_and(|opened| opened.has_read(name));
        // the bytes of a file whose header cannot be read may have a digest, and are no model's
        let is_unreadable = |name: &str| {
            self.opened
                .is_some_and(|opened| opened.why_unread(name).is_some())
        };
        let is_read = |name: &str| {
            !is_unreadable(name) && (names.contains(name) || is_opened(name) || used.contains(name))
        };
        let mut unread = listing.unread(self.files, directory, &is_read, budget)?;
        for file in &mut unread {
            if let Some(why) = self.opened.and_then(|opened| opened.why_unread(&file.path)) {
                file.why = why;
            }
            let is_within = |name: &&str| name.starts_with(&file.path);
            if file.path.ends_with('/') && names.iter().any(is_within) {
                file.why = "a folder, of which the files alone that a list names were compared";
            }
        }
        // files of deeper directories that a list names
        let deeper = names.iter().filter(|name| name.contains('/')).count();
        let read = listing.files().iter().filter(|name| is_read(name)).count();
        let count = (read + deeper) as u64;
        Ok((count, unread))
    }
}

/// The finding for a file that has another digest.
fn wrong(file: &str, (digest, origin): &ExpectedDigest, hashed: &FileDigests) -> Option<Finding> {
    if digest.is_of(hashed) {
        return None;
    }
    let text = format!("{}, expected {digest} ({origin})", like(hashed, digest));
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
