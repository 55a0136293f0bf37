//! The objects that are in the directory already: which are refused, which stay, and which are removed.

use std::collections::BTreeSet;
use std::ffi::OsStr;

use anamnesis_remote::RemoteFile;

use crate::base::error::Result;
use crate::engine::companions::CompanionContent;

use super::super::companion_files::{index_files, plain_name};
use super::super::output::NewFiles;
use super::content::{COPIED, ContentReader};
use super::{NewCompanion, UploadedOutput};

/// The longest index that is read for the names of old shards.
const LONGEST_INDEX: u64 = 64 << 20;

impl UploadedOutput {
    /// The names of the objects in the directory. A prefix without objects has none.
    pub(super) fn names(&self) -> Result<BTreeSet<String>> {
        match self.store.list(&self.directory) {
            Ok(names) => Ok(names.into_iter().collect()),
            Err(e) => Err(self.error(&self.directory, e)),
        }
    }

    /// Checks what is in the directory, and decides what is removed. Returns whether the only file replaces one.
    pub(super) fn prepare_directory(&mut self, new: &NewFiles<'_>) -> Result<bool> {
        let names = self.names()?;
        let (index, single) = (self.stem.index(), self.stem.single());
        for name in [&index, &single] {
            if names.contains(name) {
                self.check_free(&self.path(name))?;
            }
        }
        let is_shard = |name: &&String| self.stem.parse(OsStr::new(name)).is_some();
        // readers that open every `model*.safetensors` would find both sets
        for shard in names.iter().filter(is_shard) {
            self.check_free(&self.path(shard))?;
        }
        let mut companions = Vec::new();
        for file in new.companions {
            let path = self.path(plain_name(&file.name)?);
            let exists = names.contains(&file.name);
            if exists && self.equals(&path, &file.content)? {
                continue;
            }
            if exists {
                self.check_free(&path)?;
            }
            companions.push(NewCompanion {
                path,
                content: file.content.clone(),
                replaces: exists,
            });
        }
        let mut old = BTreeSet::new();
        if names.contains(&index) {
            self.removed_first.push(self.path(&index));
            old = self.named_by(&self.path(&index))?;
        }
        old.extend(names.iter().filter(is_shard).cloned());
        // readers must not find the old tensors with a companion file of the new ones
        let changes = companions.iter().any(|companion| companion.replaces);
        let replaces = names.contains(&single) && new.cut.count() == 1 && !changes;
        old.remove(&single);
        if names.contains(&single) && !replaces {
            self.removed_first.push(self.path(&single));
        }
        let old = old.iter().filter(|name| names.contains(*name));
        self.removed_first
            .extend(old.map(|name| format!("{}/{name}", self.directory)));
        self.companions = companions;
        Ok(replaces)
    }

    /// The files that the old index names. One that cannot be read names none: readers cannot follow it either.
    fn named_by(&self, index: &str) -> Result<BTreeSet<String>> {
        let file = self.store.file(index).map_err(|e| self.error(index, e))?;
        let len = file.len().map_err(|e| self.error(index, e))?;
        let Some(mut text) = Some(len)
            .filter(|len| *len <= LONGEST_INDEX)
            .and_then(|len| crate::base::limits::zeroed(usize::try_from(len).ok()?))
        else {
            return Ok(BTreeSet::new());
        };
        read_exact(&file, 0, &mut text).map_err(|e| self.error(index, e))?;
        Ok(index_files(&text))
    }

    /// Whether an object has these bytes.
    pub(super) fn equals(&self, path: &str, content: &CompanionContent) -> Result<bool> {
        let failed = |e| self.error(path, e);
        let file = self.store.file(path).map_err(failed)?;
        let len = file.len().map_err(failed)?;
        let mut reader = ContentReader::open(content)?;
        if reader.len != len {
            return Ok(false);
        }
        let mut theirs = vec![0; COPIED.min(usize::try_from(len).unwrap_or(COPIED))];
        let mut start = 0;
        while start < len {
            let ours = reader.next()?;
            let theirs = &mut theirs[..ours.len()];
            read_exact(&file, start, theirs).map_err(failed)?;
            if ours != theirs {
                return Ok(false);
            }
            start += ours.len() as u64;
        }
        Ok(true)
    }
}

fn read_exact(file: &RemoteFile, start: u64, buf: &mut [u8]) -> anamnesis_remote::Result<()> {
    let mut filled = 0;
    while filled < buf.len() {
        let n = file.read_at(start + filled as u64, &mut buf[filled..])?;
        if n == 0 {
            // the length comes from the same answer
            buf[filled..].fill(0);
            return Ok(());
        }
        filled += n;
    }
    Ok(())
}
