//! Records the template of a service that has none, from the accesses that the runtime reports.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anamnesis_ppc::FileAccess;
use anamnesis_template::{ByteRange, ServiceId, Template, TemplateBuilder};

use crate::config::MaioConfig;
use crate::model_files::ModelFiles;
use crate::worker_identity::WorkerIdentifier;

/// Number of earlier accesses that a new one may continue: the threads of a worker interleave their
/// reads.
const LOOKBACK: usize = 64;

/// The fraction of the model, one sixteenth, that must be read for the accesses to be its load. A
/// service may read a configuration long before it loads, and that pause must not end the
/// recording.
const LOAD_FRACTION: u64 = 16;

/// As much must be read for a load to be complete when the processes that read have ended. Otherwise one that compares the
/// headers of a model would end its recording.
const ENDED_FRACTION: u64 = 2;
/// How long nothing is read before the end of the processes that have read ends a recording. A load may consist of processes that
/// read a file each, in turn.
const QUIET_NS: u64 = 2_000_000_000;
/// Number of processes that are remembered. With more, only time ends the recording.
const MAX_PROCESSES: usize = 1 << 10;

/// A file that was read.
#[derive(Clone, Copy, Debug)]
struct RecordedFile {
    number: u32,
    nbytes: u64,
    /// Where the furthest access ended.
    read_to: u64,
}

/// Accesses by worker, in the order of their arrival, until the load is complete.
#[derive(Debug)]
pub(crate) struct TemplateRecorder {
    model: ModelFiles,
    workers: WorkerIdentifier,
    builder: Option<TemplateBuilder>,
    files: HashMap<Arc<Path>, Option<RecordedFile>>,
    path: PathBuf,
    /// Directory of processes, as `/proc`.
    proc: PathBuf,
    /// The processes that have read.
    processes: BTreeSet<u32>,
    /// The first access after the load.
    next: Option<FileAccess>,
    first: Option<u64>,
    last: u64,
    idle: u64,
    nbytes: u64,
    model_nbytes: u64,
}

impl TemplateRecorder {
    /// Records into a template that will be saved to `path`.
    pub(crate) fn new(
        model: ModelFiles,
        workers: WorkerIdentifier,
        path: PathBuf,
        id: Option<ServiceId>,
        config: &MaioConfig,
        proc: PathBuf,
    ) -> Self {
        // Reads of mappings are reported in part: one event for up to a folio of 2 MiB. Filling the
        // gaps restores them.
        let mut builder = TemplateBuilder::new()
            .gap(config.gap)
            .lookback(LOOKBACK)
            .once(true);
        for (key, value) in &config.parameters {
            builder.parameter(key, value);
        }
        if let Some(id) = id {
            builder.service(id);
        }
        let idle = u64::try_from(config.idle.as_nanos()).unwrap_or(u64::MAX);
        let (files, model_nbytes) = (HashMap::new(), model.nbytes());
        Self {
            model,
            workers,
            builder: Some(builder),
            files,
            path,
            proc,
            processes: BTreeSet::new(),
            next: None,
            first: None,
            last: 0,
            idle,
            nbytes: 0,
            model_nbytes,
        }
    }

    /// Returns the number of bytes accessed so far.
    pub(crate) fn nbytes(&self) -> u64 {
        self.nbytes
    }

    /// Returns the model's files.
    pub(crate) fn model(&self) -> &ModelFiles {
        &self.model
    }

    /// Adds an access, unless it begins another load: this one is then [complete](Self::is_complete).
    pub(crate) fn access(&mut self, access: &FileAccess) {
        if self.next.is_some() {
            return;
        }
        if self.is_load() && (self.is_idle(access.time) || self.begins_again(access)) {
            self.next = Some(access.clone());
            return;
        }
        let Some(builder) = &mut self.builder else {
            return;
        };
        let model = &self.model;
        let add = |builder: &mut TemplateBuilder| {
            let file = model.probe(model.name(&access.path)?)?;
            let nbytes = file.nbytes;
            let number = builder.file(file).ok()?;
            Some(RecordedFile {
                number,
                nbytes,
                read_to: 0,
            })
        };
        let file = match self.files.get_mut(&access.path) {
            Some(file) => file,
            None => self
                .files
                .entry(Arc::clone(&access.path))
                .or_insert(add(builder)),
        };
        // not a file of the model, or one that cannot be read
        let Some(file) = file else { return };
        // an event of unknown length has at least the byte that it names; gap filling adds the rest
        let end = access.start.saturating_add(access.len.max(1));
        let end = end.min(file.nbytes);
        // the file was shorter when it was looked at
        if access.start >= end {
            return;
        }
        file.read_to = file.read_to.max(end);
        if self.processes.len() < MAX_PROCESSES {
            self.processes.insert(access.pid);
        }
        let first = *self.first.get_or_insert(access.time);
        // events of several CPUs may arrive out of order
        self.last = self.last.max(access.time);
        let rank = self.workers.rank(access.pid);
        let range = ByteRange {
            file: file.number,
            start: access.start,
            len: end - access.start,
        };
        if builder
            // nanoseconds to the microseconds of a template, from the first access on
            .access(rank, range, Some(access.time.saturating_sub(first) / 1000))
            .is_ok()
        {
            self.nbytes = self.nbytes.saturating_add(range.len);
        }
    }

    /// Replaces the model's files. Returns them if a recorded file has changed, which makes the recording useless.
    pub(crate) fn update_files(
        &mut self,
        model: ModelFiles,
        stayed: impl Fn(&Path) -> bool,
    ) -> Option<ModelFiles> {
        let mut recorded = self
            .files
            .iter()
            .filter(|(_, file)| file.is_some())
            .peekable();
        if recorded.peek().is_none() || !recorded.all(|(path, _)| stayed(path)) {
            return Some(model);
        }
        // Files that were ignored so far may be part of the model now.
        self.files.retain(|_, file| file.is_some());
        self.model = model;
        None
    }

    /// Whether the model was loaded, as of `now` in nanoseconds of `CLOCK_MONOTONIC`: nothing was read for the configured time,
    /// the processes that have read it have ended, or another load has begun.
    pub(crate) fn is_complete(&self, now: u64) -> bool {
        let quiet = now.saturating_sub(self.last) > QUIET_NS;
        self.next.is_some()
            || (self.is_load() && (self.is_idle(now) || (quiet && self.readers_ended())))
    }

    /// Whether a process has read nothing that was recorded.
    pub(crate) fn is_new_process(&self, pid: u32) -> bool {
        !self.processes.contains(&pid)
    }

    /// Takes the access with which another load began.
    pub(crate) fn take_next(&mut self) -> Option<FileAccess> {
        self.next.take()
    }

    fn is_load(&self) -> bool {
        self.builder.is_some() && self.nbytes > self.model_nbytes / LOAD_FRACTION
    }

    fn is_idle(&self, now: u64) -> bool {
        now.saturating_sub(self.last) > self.idle
    }

    /// Whether another process reads again what processes that have ended have read.
    fn begins_again(&self, access: &FileAccess) -> bool {
        let file = self.files.get(&access.path);
        let read_before = matches!(file, Some(Some(file)) if access.start < file.read_to);
        read_before && self.is_new_process(access.pid) && self.readers_ended()
    }

    /// Whether most of the model was read, and all processes that have read have ended. `false` where processes are not visible,
    /// which is not so for the first.
    fn readers_ended(&self) -> bool {
        self.nbytes > self.model_nbytes / ENDED_FRACTION
            && self.processes.len() < MAX_PROCESSES
            && self.proc.join("1").exists()
            && !self
                .processes
                .iter()
                // 0: a process of another namespace, of which nothing is known
                .any(|&pid| pid == 0 || self.proc.join(pid.to_string()).exists())
    }

    /// Saves the template and returns it, once, if anything was read.
    pub(crate) fn save(&mut self) -> Option<Template> {
        let template = self.builder.take()?.finish();
        let path = self.path.display();
        if template.groups().is_empty() {
            tracing::warn!("no template recorded for {path}: no byte of the model was read");
            return None;
        }
        match template.save(&self.path, true) {
            Ok(_) => tracing::info!("recorded {path}: {template}"),
            Err(error) => tracing::warn!("the recorded template could not be saved: {error}"),
        }
        Some(template)
    }
}
