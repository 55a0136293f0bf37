//! Recording the template of a service that has none.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anamnesis_ppc::Access;
use anamnesis_template::{Builder, ByteRange, ServiceId};

use crate::config::Config;
use crate::model::Model;
use crate::workers::Workers;

/// Accesses of a worker's threads that may continue each other.
const LOOKBACK: usize = 64;

/// What of a model must be read to be its load; a service may look at a configuration, then take a while to begin.
const PART: u64 = 16;

/// Accesses as they come, by worker, until the service has its model.
#[derive(Debug)]
pub(crate) struct Record {
    model: Model,
    workers: Workers,
    builder: Option<Builder>,
    files: HashMap<Arc<Path>, Option<(u32, u64)>>,
    path: PathBuf,
    first: Option<u64>,
    last: u64,
    idle: u64,
    nbytes: u64,
    least: u64,
}

impl Record {
    /// For a service that is kept at `path`.
    pub(crate) fn new(
        model: Model,
        workers: Workers,
        path: PathBuf,
        id: Option<ServiceId>,
        config: &Config,
    ) -> Self {
        // what was read by mapping is told in part: gaps between are filled
        let mut builder = Builder::new().gap(config.gap).lookback(LOOKBACK).once(true);
        for (key, value) in &config.parameters {
            builder.parameter(key, value);
        }
        if let Some(id) = id {
            builder.service(id);
        }
        let idle = u64::try_from(config.idle.as_nanos()).unwrap_or(u64::MAX);
        let (files, least) = (HashMap::new(), model.nbytes() / PART);
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
            least,
        }
    }

    /// Bytes that were accessed.
    pub(crate) fn nbytes(&self) -> u64 {
        self.nbytes
    }

    /// A process asked for bytes.
    pub(crate) fn access(&mut self, access: &Access) {
        let load = self.nbytes > self.least;
        if load && access.time.saturating_sub(self.last) > self.idle {
            self.save(); // what comes now is not the load
        }
        let Some(builder) = &mut self.builder else {
            return;
        };
        let model = &self.model;
        let add = |builder: &mut Builder| {
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
            .access(rank, range, Some(access.time.saturating_sub(first) / 1000))
            .is_ok()
        {
            self.nbytes = self.nbytes.saturating_add(range.len);
        }
    }

    /// The model has these files now. `false` if what was recorded is of others: then it is worth nothing.
    pub(crate) fn renew(&mut self, model: Model, stayed: impl Fn(&Path) -> bool) -> bool {
        let mut recorded = self
            .files
            .iter()
            .filter(|(_, file)| file.is_some())
            .peekable();
        if recorded.peek().is_none() || !recorded.all(|(path, _)| stayed(path)) {
            return false;
        }
        // one that was no part of it may be one now
        self.files.retain(|_, file| file.is_some());
        self.model = model;
        true
    }

    /// Writes the template, if anything was read and it was not written yet. The next registration follows it.
    pub(crate) fn save(&mut self) {
        let Some(builder) = self.builder.take() else {
            return;
        };
        let template = builder.finish();
        let path = self.path.display();
        if template.groups().is_empty() {
            tracing::warn!("no template for {path}: nothing of the model was read");
            return;
        }
        match template.save(&self.path, true) {
            Ok(()) => tracing::info!("recorded {path}: {template}"),
            Err(error) => tracing::warn!("recorded, but not kept: {error}"),
        }
    }
}
