//! Daemon side of the list transfer: keeps the lists that a host sent, and resolves the ranges that later answers
//! name.
//!
//! The mechanism is described in [`sent_lists`](super::sent_lists). The host process is untrusted: every number is
//! checked.

use std::path::Path;
use std::sync::Arc;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::message::{NewList, WireList};
use super::sent_lists::SLOTS;
use crate::file_history::FileHistory;
use crate::{FileRange, Namespace, PrefetchRequest, RangeList};

/// Limit on the entries of all slots together.
const MAX_ENTRIES: usize = 1 << 20;
/// Limit on paths; spellings of one path count separately.
const MAX_PATHS: usize = 1 << 21;

/// The lists and paths that one host sent.
#[derive(Debug)]
pub(super) struct ReceivedLists {
    files: FileHistory,
    paths: Vec<Arc<Path>>,
    lists: Vec<Arc<[FileRange]>>,
    /// Limit on the entries of one list.
    max_entries: usize,
}

impl ReceivedLists {
    pub(super) fn new(namespace: Arc<Namespace>, max_entries: usize) -> Self {
        let none: Arc<[FileRange]> = Vec::new().into();
        Self {
            files: FileHistory::new(namespace),
            paths: Vec::new(),
            lists: vec![none; usize::from(SLOTS)],
            max_entries,
        }
    }

    /// Replaces the files that paths are looked up in.
    pub(super) fn update_namespace(&mut self, namespace: Arc<Namespace>) {
        self.files.update(namespace);
    }

    /// Resolves an answer, after replacing the slot's list if the answer carries entries.
    pub(super) fn resolve(&mut self, list: WireList) -> Result<PrefetchRequest, String> {
        let slot = usize::from(list.slot);
        if slot >= self.lists.len() {
            return Err("the host process named an invalid list slot".into());
        }
        if let Some(new) = list.new {
            // first of all, so that the old list does not count towards the limit
            self.lists[slot] = Vec::new().into();
            self.lists[slot] = self.receive(new)?;
        }
        let all = &self.lists[slot];
        let range = |at: u32| usize::try_from(at).ok().filter(|&at| at <= all.len());
        match (range(list.start), range(list.end)) {
            (Some(start), Some(end)) if start <= end => Ok(PrefetchRequest {
                ranges: RangeList::slice(all, start..end),
                queue: list.queue,
            }),
            _ => Err("the host process named a range beyond the list that it sent".into()),
        }
    }

    fn receive(&mut self, new: NewList) -> Result<Arc<[FileRange]>, String> {
        let held: usize = self.lists.iter().map(|list| list.len()).sum();
        // before any entry is resolved: each becomes a path and three numbers in the daemon's memory
        if new.entries.len() > self.max_entries || held + new.entries.len() > MAX_ENTRIES {
            return Err(format!(
                "lists of {} entries; at most {} are allowed",
                new.entries.len(),
                self.max_entries
            ));
        }
        if self.paths.len() + new.paths.len() > MAX_PATHS {
            return Err("the host process sent more paths than are allowed".into());
        }
        for path in &new.paths {
            let path = Path::new(OsStr::from_bytes(path));
            let (path, _) = self.files.get(path).ok_or_else(|| {
                // the text is the policy's, and goes to the log
                let path = path.to_string_lossy().chars().take(200).collect::<String>();
                format!(
                    "returned an invalid list: {path:?}: no file of the namespace has this name"
                )
            })?;
            self.paths.push(Arc::clone(path));
        }
        let io = |entry: &super::message::WireRange| {
            let path = usize::try_from(entry.path)
                .ok()
                .and_then(|path| self.paths.get(path));
            let path = path.ok_or("the host process named a path number that it did not send")?;
            // the greatest number stands for no device
            let device = (entry.device != u32::MAX).then_some(entry.device);
            Ok(FileRange {
                path: Arc::clone(path),
                start: entry.start,
                len: entry.len,
                device,
            })
        };
        new.entries.iter().map(io).collect()
    }
}
