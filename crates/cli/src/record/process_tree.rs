//! An event source that is limited to one process and its descendants.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use anamnesis_ppc::{Capabilities, Event, EventSource, Inode, Result, Waker};

/// Maximum number of processes in the lookup cache.
const MAX_CACHED: usize = 1 << 16;
/// Maximum number of generations that are searched.
const MAX_DEPTH: usize = 64;

/// Passes on the events of the process `root` and its descendants. A process that ended before its parent could be read
/// from `/proc` is included: events are recent, and most short-lived processes in a recording are descendants.
#[derive(Debug)]
pub(super) struct ProcessTree {
    source: Box<dyn EventSource>,
    root: u32,
    /// Whether a process is in the tree, by its id.
    known: HashMap<u32, bool>,
}

impl ProcessTree {
    pub(super) fn new(source: Box<dyn EventSource>, root: u32) -> Self {
        Self {
            source,
            root,
            known: HashMap::new(),
        }
    }

    fn contains(&mut self, pid: u32) -> bool {
        if let Some(&known) = self.known.get(&pid) {
            return known;
        }
        if self.known.len() >= MAX_CACHED {
            // cleared whole: a recording sees few processes, so that this is rare, and the next events fill it again
            self.known.clear();
        }
        let mut ancestor = pid;
        let mut found = true;
        // numbers are reused, so that the chain could lead in a circle
        for _ in 0..MAX_DEPTH {
            if ancestor == self.root {
                break;
            }
            match parent(ancestor) {
                // the init process, or a process that init adopted
                Some(0 | 1) => {
                    found = false;
                    break;
                }
                Some(parent) => ancestor = parent,
                None => break,
            }
        }
        self.known.insert(pid, found);
        found
    }
}

/// The parent of a process: the second field after the name in `/proc/PID/stat`. The name is in parentheses and may
/// contain any character, so fields are counted from the last parenthesis (proc_pid_stat(5)).
fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()
}

impl EventSource for ProcessTree {
    fn name(&self) -> &'static str {
        self.source.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.source.capabilities()
    }

    fn watch(&mut self, files: &[Inode]) -> Result<()> {
        self.source.watch(files)
    }

    fn wait(&mut self, timeout: Duration, into: &mut Vec<Event>) -> io::Result<bool> {
        let mut events = Vec::new();
        let more = self.source.wait(timeout, &mut events)?;
        into.extend(events.into_iter().filter(|event| self.contains(event.pid)));
        Ok(more)
    }

    fn lost(&self) -> u64 {
        self.source.lost()
    }

    fn waker(&self) -> Waker {
        self.source.waker()
    }
}
