//! In the daemon: lists that a host sent, and what it may refer to later. Nothing of it is believed.

use std::path::Path;
use std::sync::Arc;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::message::{List, New};
use super::sent::SLOTS;
use crate::known::Known;
use crate::{Io, Ios, Namespace, Prefetch};

/// Entries of all lists that are kept.
const ENTRIES: usize = 1 << 20;
/// Paths, each of which may be sent under more than one name.
const PATHS: usize = 1 << 21;

/// What was sent.
#[derive(Debug)]
pub(super) struct Kept {
    files: Known,
    paths: Vec<Arc<Path>>,
    lists: Vec<Arc<[Io]>>,
    limit: usize,
}

impl Kept {
    pub(super) fn new(namespace: Arc<Namespace>, limit: usize) -> Self {
        let none: Arc<[Io]> = Vec::new().into();
        Self {
            files: Known::new(namespace),
            paths: Vec::new(),
            lists: vec![none; usize::from(SLOTS)],
            limit,
        }
    }

    /// The directory has these files now.
    pub(super) fn renew(&mut self, namespace: Arc<Namespace>) {
        self.files.renew(namespace);
    }

    /// The list that is meant.
    pub(super) fn take(&mut self, list: List) -> Result<Prefetch, String> {
        let slot = usize::from(list.slot);
        if slot >= self.lists.len() {
            return Err("the host process names a list that cannot be".into());
        }
        if let Some(new) = list.new {
            self.lists[slot] = Vec::new().into();
            self.lists[slot] = self.keep(new)?;
        }
        let all = &self.lists[slot];
        let range = |at: u32| usize::try_from(at).ok().filter(|&at| at <= all.len());
        match (range(list.start), range(list.end)) {
            (Some(start), Some(end)) if start <= end => Ok(Prefetch {
                ios: Ios::of(all, start..end),
                lane: list.lane,
            }),
            _ => Err("the host process names a part of a list that it did not send".into()),
        }
    }

    fn keep(&mut self, new: New) -> Result<Arc<[Io]>, String> {
        let held: usize = self.lists.iter().map(|list| list.len()).sum();
        if new.entries.len() > self.limit || held + new.entries.len() > ENTRIES {
            return Err(format!(
                "lists of {} entries, allowed are {}",
                new.entries.len(),
                self.limit
            ));
        }
        if self.paths.len() + new.paths.len() > PATHS {
            return Err("more names of files than a namespace has".into());
        }
        for path in &new.paths {
            let path = Path::new(OsStr::from_bytes(path));
            let (path, _) = self.files.get(path).ok_or_else(|| {
                let path = path.to_string_lossy().chars().take(200).collect::<String>();
                format!("answered what cannot be meant: {path:?}: no file of the namespace has this name")
            })?;
            self.paths.push(Arc::clone(path));
        }
        let io = |entry: &super::message::Entry| {
            let path = usize::try_from(entry.path)
                .ok()
                .and_then(|path| self.paths.get(path));
            let path = path.ok_or("the host process names a file that it did not send")?;
            let device = (entry.device != u32::MAX).then_some(entry.device);
            Ok(Io {
                path: Arc::clone(path),
                start: entry.start,
                len: entry.len,
                device,
            })
        };
        new.entries.iter().map(io).collect()
    }
}
