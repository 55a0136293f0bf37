//! The state of a file: known bytes, and requests.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use tokio::task::AbortHandle;

use crate::answer::FileVersion;
use crate::blocks::Blocks;
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::runtime;

use super::kept_header::KeptHeader;

pub(super) struct FileState {
    pub(super) version: Option<FileVersion>,
    /// The file cannot be read at all.
    pub(super) failed: Option<Error>,
    pub(super) blocks: Blocks,
    /// Length of the last bytes that are requested while their place is not known.
    pub(super) tail: u64,
    /// Failed requests by their first byte, until a reader needs them.
    pub(super) failures: BTreeMap<u64, (u64, Error)>,
    /// Announced ranges that are not requested yet.
    pub(super) announced: VecDeque<Range<u64>>,
    /// Where a reader that reads forward goes on, and how much is requested then.
    pub(super) next: u64,
    pub(super) step: u64,
    pub(super) tasks: Vec<AbortHandle>,
    /// The bytes that are read for the cache of headers, until the header is parsed.
    pub(super) kept: Option<KeptHeader>,
    /// Whether the file arrives as a whole, and its readers wait until it is compared with its digest.
    pub(super) awaits_digest: bool,
    /// Counts how often everything was given up.
    pub(super) epoch: u64,
}

impl FileState {
    /// Starts a task for this file, which ends when everything is given up.
    pub(super) fn run(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        match runtime() {
            Ok(runtime) => self.tasks.push(runtime.spawn(task).abort_handle()),
            Err(error) => self.failed = Some(error),
        }
    }

    pub(super) fn new(blocks: Blocks) -> Self {
        Self {
            version: None,
            failed: None,
            blocks,
            tail: 0,
            failures: BTreeMap::new(),
            announced: VecDeque::new(),
            next: 0,
            step: 0,
            tasks: Vec::new(),
            kept: None,
            awaits_digest: false,
            epoch: 0,
        }
    }

    /// Whether the file is in memory as a whole.
    pub(super) fn is_whole(&self) -> bool {
        let version = self.version.as_ref();
        version.is_some_and(|version| self.blocks.holds(version.len))
    }

    /// Whether there is no such file.
    pub(super) fn is_absent(&self) -> bool {
        let failed = self.failed.as_ref();
        failed.is_some_and(|error| error.kind() == ErrorKind::NotFound)
    }

    pub(super) fn stop(&mut self) {
        for task in self.tasks.drain(..) {
            task.abort();
        }
        self.announced.clear();
        self.failures.clear();
        self.tail = 0;
        // answers that are under way belong to the epoch before, and are dropped on arrival
        self.epoch += 1;
    }

    /// The error of a failed request for a place. The next reader requests it again.
    pub(super) fn failure_at(&mut self, at: u64) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let found = self.failures.range(..=at).next_back();
        match found
            .filter(|(_, (end, _))| at < *end)
            .map(|(start, _)| *start)
        {
            None => Ok(()),
            Some(start) => Err(self.failures.remove(&start).expect("found above").1),
        }
    }
}
