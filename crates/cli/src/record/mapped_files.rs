//! An event source that notices mapped files, whose accesses it does not report.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anamnesis_ppc::source::CaptureMode;
use anamnesis_ppc::{Capabilities, Event, EventKind, EventSource, Inode, Result, Waker};

/// Passes on the events of a source and counts the bytes of files that are mapped: an open with a length is a mapping.
#[derive(Debug)]
pub(super) struct MappedFiles {
    source: Box<dyn EventSource>,
    mapped: Arc<AtomicU64>,
}

impl MappedFiles {
    /// The second value is the number of bytes so far.
    pub(super) fn new(source: Box<dyn EventSource>) -> (Self, Arc<AtomicU64>) {
        let mapped = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&mapped);
        (Self { source, mapped }, count)
    }
}

impl EventSource for MappedFiles {
    fn name(&self) -> &'static str {
        self.source.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.source.capabilities()
    }

    fn watch(&mut self, files: &[Inode]) -> Result<()> {
        self.source.watch(files)
    }

    fn set_mode(&mut self, mode: CaptureMode) -> Result<()> {
        self.source.set_mode(mode)
    }

    fn wait(&mut self, timeout: Duration, into: &mut Vec<Event>) -> io::Result<bool> {
        // `into` may hold events of earlier calls
        let before = into.len();
        let more = self.source.wait(timeout, into)?;
        let opens = into[before..]
            .iter()
            .filter(|event| event.kind == EventKind::Open);
        let mapped = opens.map(|event| event.len).fold(0, u64::saturating_add);
        // relaxed: the number publishes no other data
        self.mapped.fetch_add(mapped, Ordering::Relaxed);
        Ok(more)
    }

    fn lost(&self) -> u64 {
        self.source.lost()
    }

    fn waker(&self) -> Waker {
        self.source.waker()
    }
}
