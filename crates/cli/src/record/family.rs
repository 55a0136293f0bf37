//! Events of a process and of those that it started.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use anamnesis_ppc::{Event, EventSource, Inode, Result, Sight, Waker};

/// Processes that are remembered.
const PROCESSES: usize = 1 << 16;
/// Parents of parents that are looked at.
const DEPTH: usize = 64;

/// A source that leaves out what others do. A process that is gone before it could be looked at counts: what is told was
/// just done, and mostly by those that are listened to.
#[derive(Debug)]
pub(super) struct Family {
    source: Box<dyn EventSource>,
    head: u32,
    known: HashMap<u32, bool>,
}

impl Family {
    pub(super) fn new(source: Box<dyn EventSource>, head: u32) -> Self {
        Self {
            source,
            head,
            known: HashMap::new(),
        }
    }

    fn has(&mut self, pid: u32) -> bool {
        if let Some(&known) = self.known.get(&pid) {
            return known;
        }
        if self.known.len() >= PROCESSES {
            self.known.clear();
        }
        let mut at = pid;
        let mut found = true;
        for _ in 0..DEPTH {
            if at == self.head {
                break;
            }
            match parent(at) {
                // adopted, or the machine's first process
                Some(0 | 1) => {
                    found = false;
                    break;
                }
                Some(parent) => at = parent,
                None => break,
            }
        }
        self.known.insert(pid, found);
        found
    }
}

/// The parent of a process: the second field behind its name, which is in brackets and may hold anything.
fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()
}

impl EventSource for Family {
    fn name(&self) -> &'static str {
        self.source.name()
    }

    fn sight(&self) -> Sight {
        self.source.sight()
    }

    fn watch(&mut self, files: &[Inode]) -> Result<()> {
        self.source.watch(files)
    }

    fn wait(&mut self, timeout: Duration, into: &mut Vec<Event>) -> io::Result<bool> {
        let mut events = Vec::new();
        let more = self.source.wait(timeout, &mut events)?;
        into.extend(events.into_iter().filter(|event| self.has(event.pid)));
        Ok(more)
    }

    fn lost(&self) -> u64 {
        self.source.lost()
    }

    fn waker(&self) -> Waker {
        self.source.waker()
    }
}
