//! Two sources as one: misses at once, accesses when it is convenient.

use std::io;
use std::time::Duration;

use crate::error::Result;
use crate::event::{Event, EventSource, Inode, Sight, Waker};

/// How long accesses may wait when there are no misses.
const SOON: Duration = Duration::from_millis(10);

/// One source that wakes at once, and one whose events are taken along.
#[derive(Debug)]
pub struct Both {
    first: Box<dyn EventSource>,
    second: Box<dyn EventSource>,
    name: &'static str,
}

impl Both {
    /// Waits for `first` and takes along what `second` has; `name` is that of the pair.
    pub fn new(
        name: &'static str,
        first: Box<dyn EventSource>,
        second: Box<dyn EventSource>,
    ) -> Self {
        Self {
            first,
            second,
            name,
        }
    }
}

impl EventSource for Both {
    fn name(&self) -> &'static str {
        self.name
    }

    fn sight(&self) -> Sight {
        let (a, b) = (self.first.sight(), self.second.sight());
        Sight {
            read_misses: a.read_misses || b.read_misses,
            map_misses: a.map_misses || b.map_misses,
            reads: a.reads || b.reads,
            maps: a.maps || b.maps,
            blind: b.blind,
        }
    }

    fn watch(&mut self, files: &[Inode]) -> Result<()> {
        self.first.watch(files)?;
        self.second.watch(files)
    }

    fn wait(&mut self, timeout: Duration, into: &mut Vec<Event>) -> io::Result<bool> {
        let from = into.len();
        let first = self.first.wait(timeout.min(SOON), into)?;
        let second = self.second.wait(Duration::ZERO, into)?;
        into[from..].sort_by_key(|event| event.time);
        Ok(first || second)
    }

    fn lost(&self) -> u64 {
        self.first.lost() + self.second.lost()
    }

    fn waker(&self) -> Waker {
        self.first.waker()
    }
}
