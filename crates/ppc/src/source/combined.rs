//! Two sources combined into one: misses with low latency, accesses in batches.

use std::io;
use std::time::Duration;

use crate::error::Result;
use crate::event::{Capabilities, Event, EventSource, Inode, Waker};

/// How long accesses may wait while there are no misses. The combined source sleeps on the descriptors of the misses only.
const MAX_BATCH_DELAY: Duration = Duration::from_millis(10);

/// A source whose events wake the reader, combined with one whose events are collected along with them.
#[derive(Debug)]
pub struct CombinedSource {
    waking: Box<dyn EventSource>,
    batched: Box<dyn EventSource>,
    name: &'static str,
}

impl CombinedSource {
    /// Waits for events of `waking` and also returns those of `batched`. `name` is the name of the combination.
    pub fn new(
        name: &'static str,
        waking: Box<dyn EventSource>,
        batched: Box<dyn EventSource>,
    ) -> Self {
        Self {
            waking,
            batched,
            name,
        }
    }
}

impl EventSource for CombinedSource {
    fn name(&self) -> &'static str {
        self.name
    }

    fn capabilities(&self) -> Capabilities {
        let (a, b) = (self.waking.capabilities(), self.batched.capabilities());
        Capabilities {
            read_misses: a.read_misses || b.read_misses,
            map_misses: a.map_misses || b.map_misses,
            reads: a.reads || b.reads,
            first_touches: a.first_touches || b.first_touches,
            // of the source of all accesses: what it lacks, the misses do not add
            limitations: b.limitations,
        }
    }

    fn watch(&mut self, files: &[Inode]) -> Result<()> {
        self.waking.watch(files)?;
        self.batched.watch(files)
    }

    fn wait(&mut self, timeout: Duration, into: &mut Vec<Event>) -> io::Result<bool> {
        let from = into.len();
        let more_waking = self.waking.wait(timeout.min(MAX_BATCH_DELAY), into)?;
        // without waiting: these events have no descriptor that is slept on
        let more_batched = self.batched.wait(Duration::ZERO, into)?;
        // each source is in order by itself, and policies follow a reader by the order of its accesses
        into[from..].sort_by_key(|event| event.time);
        Ok(more_waking || more_batched)
    }

    fn lost(&self) -> u64 {
        self.waking.lost() + self.batched.lost()
    }

    fn waker(&self) -> Waker {
        self.waking.waker()
    }
}
