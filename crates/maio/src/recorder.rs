//! Records the template of a service that has none, from the accesses that the runtime reports.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anamnesis_ppc::FileAccess;
use anamnesis_template::{ByteRange, ServiceId, TemplateBuilder};

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

/// Accesses by worker, in the order of their arrival, until the load is complete.
#[derive(Debug)]
pub(crate) struct TemplateRecorder {
    model: ModelFiles,
    workers: WorkerIdentifier,
    builder: Option<TemplateBuilder>,
    files: HashMap<Arc<Path>, Option<(u32, u64)>>,
    path: PathBuf,
    first: Option<u64>,
    last: u64,
    idle: u64,
    nbytes: u64,
    min_load: u64,
}

impl TemplateRecorder {
    /// Records into a template that will be saved to `path`.
    pub(crate) fn new(
        model: ModelFiles,
        workers: WorkerIdentifier,
        path: PathBuf,
        id: Option<ServiceId>,
        config: &MaioConfig,
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
        let (files, min_load) = (HashMap::new(), model.nbytes() / LOAD_FRACTION);
        Self {
            model,
            workers,
            builder: Some(builder),
            files,
            path,
            first: None,
            last: 0,
            idle,
            nbytes: 0,
            min_load,
        }
    }

    /// Returns the number of bytes accessed so far.
    pub(crate) fn nbytes(&self) -> u64 {
        self.nbytes
    }

    /// Adds an access.
    pub(crate) fn access(&mut self, access: &FileAccess) {
        let load = self.nbytes > self.min_load;
        if load && access.time.saturating_sub(self.last) > self.idle {
            self.save(); // the load is complete; later accesses are not part of it
        }
        let Some(builder) = &mut self.builder else {
            return;
        };
        let model = &self.model;
        let add = |builder: &mut TemplateBuilder| {
            let file = model.probe(model.name(&access.path)?)?;
            let nbytes = file.nbytes;
            Some((builder.file(file).ok()?, nbytes))
        };
        let file = match self.files.get(&access.path) {
            Some(file) => *file,
            None => *self
                .files
                .entry(Arc::clone(&access.path))
                .or_insert(add(builder)),
        };
        let Some((file, nbytes)) = file else { return };
        // an event of unknown length has at least the byte that it names; gap filling adds the rest
        let end = access.start.saturating_add(access.len.max(1)).min(nbytes);
        if access.start >= end {
            return;
        }
        let first = *self.first.get_or_insert(access.time);
        self.last = self.last.max(access.time);
        let rank = self.workers.rank(access.pid);
        let range = ByteRange {
            file,
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

    /// Replaces the model's files. Returns `false` if a recorded file has changed, which makes the
    /// recording useless.
    pub(crate) fn update_files(
        &mut self,
        model: ModelFiles,
        stayed: impl Fn(&Path) -> bool,
    ) -> bool {
        let mut recorded = self
            .files
            .iter()
            .filter(|(_, file)| file.is_some())
            .peekable();
        if recorded.peek().is_none() || !recorded.all(|(path, _)| stayed(path)) {
            return false;
        }
        // Files that were ignored so far may be part of the model now.
        self.files.retain(|_, file| file.is_some());
        self.model = model;
        true
    }

    /// Saves the template once, if anything was read. The next registration follows it.
    pub(crate) fn save(&mut self) {
        let Some(builder) = self.builder.take() else {
            return;
        };
        let template = builder.finish();
        let path = self.path.display();
        if template.groups().is_empty() {
            tracing::warn!("no template recorded for {path}: no byte of the model was read");
            return;
        }
        match template.save(&self.path, true) {
            Ok(()) => tracing::info!("recorded {path}: {template}"),
            Err(error) => tracing::warn!("the recorded template could not be saved: {error}"),
        }
    }
}
