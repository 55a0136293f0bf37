//! Two sources combined into one: misses with low latency, accesses in batches.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::accesses;
use crate::error::Result;
use crate::event::{Capabilities, CaptureMode, Event, EventSource, Inode, Waker};
use crate::namespace::Namespace;

/// How long accesses may wait while there are no misses. The combined source sleeps on the descriptors of the misses only.
const MAX_BATCH_DELAY: Duration = Duration::from_millis(10);

/// A source whose events wake the reader, combined with one whose events are collected along with them.
#[derive(Debug)]
pub struct CombinedSource {
    waking: Box<dyn EventSource>,
    batched: Option<Box<dyn EventSource>>,
    /// `None`: the batched source stays open.
    adaptive: Option<AdaptiveMode>,
}

/// The arguments for opening the batched source when it is needed.
#[derive(Debug)]
struct AdaptiveMode {
    /// The directory of the files.
    root: PathBuf,
    mode: CaptureMode,
    files: Vec<Inode>,
    /// Events that batched sources lost which are closed.
    lost: u64,
}

impl CombinedSource {
    /// Waits for events of `waking` and also returns the events of `batched`.
    pub fn new(waking: Box<dyn EventSource>, batched: Box<dyn EventSource>) -> Self {
        Self {
            waking,
            batched: Some(batched),
            adaptive: None,
        }
    }

    /// Opens and closes the batched source as [`set_mode`](EventSource::set_mode) requires, for files below `root`.
    pub(super) fn adaptive(
        root: PathBuf,
        waking: Box<dyn EventSource>,
        batched: Option<(CaptureMode, Box<dyn EventSource>)>,
    ) -> Self {
        let (mode, batched) = batched.unzip();
        let adaptive = AdaptiveMode {
            root,
            mode: mode.unwrap_or(CaptureMode::Misses),
            files: Vec::new(),
            lost: 0,
        };
        Self {
            waking,
            batched,
            adaptive: Some(adaptive),
        }
    }
}

impl EventSource for CombinedSource {
    fn name(&self) -> &'static str {
        match self.batched {
            Some(_) => "misses and accesses",
            None => self.waking.name(),
        }
    }

    fn capabilities(&self) -> Capabilities {
        let a = self.waking.capabilities();
        let Some(b) = self.batched.as_ref().map(|batched| batched.capabilities()) else {
            return a;
        };
        Capabilities {
            read_misses: a.read_misses || b.read_misses,
            map_misses: a.map_misses || b.map_misses,
            reads: a.reads || b.reads,
            first_touches: a.first_touches || b.first_touches,
            // the limitations of the source of all accesses: the misses add nothing that it lacks
            limitations: b.limitations,
        }
    }

    fn watch(&mut self, files: &[Inode]) -> Result<()> {
        self.waking.watch(files)?;
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.files = files.to_vec();
        }
        match &mut self.batched {
            Some(batched) => batched.watch(files),
            None => Ok(()),
        }
    }

    fn set_mode(&mut self, mode: CaptureMode) -> Result<()> {
        let Some(adaptive) = self.adaptive.as_mut().filter(|now| now.mode != mode) else {
            return Ok(());
        };
        let namespace = Namespace::scan(&adaptive.root)?;
        let batched = accesses(mode, &namespace, &*self.waking)?;
        let mut batched = batched.map(|selected| selected.source);
        if let Some(batched) = &mut batched {
            batched.watch(&adaptive.files)?;
        }
        // only now: a source that fails to open or to watch leaves the former one in place
        adaptive.mode = mode;
        // its count goes with it
        adaptive.lost += self.batched.as_ref().map_or(0, |closed| closed.lost());
        self.batched = batched;
        Ok(())
    }

    fn wait(&mut self, timeout: Duration, into: &mut Vec<Event>) -> io::Result<bool> {
        let Some(batched) = &mut self.batched else {
            return self.waking.wait(timeout, into);
        };
        let from = into.len();
        let more_waking = self.waking.wait(timeout.min(MAX_BATCH_DELAY), into)?;
        // without waiting: these events have no descriptor that is slept on
        let more_batched = batched.wait(Duration::ZERO, into)?;
        // each source is in order by itself, and policies follow a reader by the order of its accesses
        into[from..].sort_by_key(|event| event.time);
        Ok(more_waking || more_batched)
    }

    fn lost(&self) -> u64 {
        let batched = self.batched.as_ref().map_or(0, |batched| batched.lost());
        let closed = self.adaptive.as_ref().map_or(0, |adaptive| adaptive.lost);
        self.waking.lost() + batched + closed
    }

    fn waker(&self) -> Waker {
        self.waking.waker()
    }
}
