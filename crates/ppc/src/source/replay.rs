//! A log of events, told again.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufReader};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::log::{self, Line};
use super::{drained, monotonic, readable};
use crate::error::{Error, Result};
use crate::event::{Event, EventSource, Inode, Sight, Waker};
use crate::namespace::Namespace;

/// Events that one wait tells at the most.
const BATCH: usize = 4096;
/// Files that a log may name.
const FILES: usize = 1 << 20;

/// How fast a log is told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Speed {
    /// So many times as fast as it happened; event times are of now.
    Times(f64),
    /// As fast as it is taken; event times are those of the log.
    AtOnce,
}

/// A source that tells what a [`Log`](super::Log) holds.
///
/// Files that the log names and the namespace has by that name are told under the numbers that they have now; all others
/// under the log's. What was lost when the log was written is lost again.
#[derive(Debug)]
pub struct Replay {
    path: PathBuf,
    from: BufReader<File>,
    line: u64,
    speed: Speed,
    names: HashMap<PathBuf, Inode>,
    now: HashMap<Inode, Inode>,
    files: HashSet<Inode>,
    /// Time of the first event in the log, and when it was told.
    begun: Option<(u64, u64)>,
    next: Option<Event>,
    ended: bool,
    lost: u64,
    waker: Waker,
    wake: Arc<OwnedFd>,
}

impl Replay {
    /// Opens a log.
    ///
    /// # Errors
    ///
    /// It is none, or cannot be read; a speed that is no positive number.
    pub fn open(path: &Path, namespace: &Namespace, speed: Speed) -> Result<Self> {
        if let Speed::Times(times) = speed
            && !(times.is_finite() && times > 0.0)
        {
            return Err(Error::invalid(format!(
                "a log cannot be told {times} times as fast"
            )));
        }
        let in_file = |error: io::Error| Error::from(error).in_file(path);
        let mut from = BufReader::new(File::open(path).map_err(in_file)?);
        log::begin(&mut from).map_err(in_file)?;
        let names = namespace
            .entries()
            .iter()
            .map(|entry| (entry.path.to_path_buf(), entry.inode))
            .collect();
        let (waker, wake) = Waker::new()?;
        let (now, files) = (HashMap::new(), HashSet::new());
        let path = path.to_owned();
        Ok(Self {
            path,
            from,
            line: 1,
            speed,
            names,
            now,
            files,
            begun: None,
            next: None,
            ended: false,
            lost: 0,
            waker,
            wake,
        })
    }

    /// The next event that is watched, read ahead.
    fn peek(&mut self) -> io::Result<Option<Event>> {
        while self.next.is_none() && !self.ended {
            self.line += 1;
            let wrong = |e: io::Error| {
                io::Error::new(
                    e.kind(),
                    format!("{}:{}: {e}", self.path.display(), self.line),
                )
            };
            match log::next(&mut self.from).map_err(wrong) {
                Err(error) => {
                    self.ended = true;
                    return Err(error);
                }
                Ok(None) => self.ended = true,
                Ok(Some(Line::Lost(lost))) => self.lost = self.lost.saturating_add(lost),
                Ok(Some(Line::File(old, name))) => {
                    if let Some(&inode) = self.names.get(&name)
                        && self.now.len() < FILES
                    {
                        self.now.insert(old, inode);
                    }
                }
                Ok(Some(Line::Event(event))) => {
                    let inode = self.now.get(&event.inode).copied().unwrap_or(event.inode);
                    self.next = self
                        .files
                        .contains(&inode)
                        .then_some(Event { inode, ..event });
                }
            }
        }
        Ok(self.next)
    }

    /// When an event is due, in nanoseconds of `CLOCK_MONOTONIC`.
    fn due(&mut self, event: &Event, times: f64) -> u64 {
        let (first, begun) = *self.begun.get_or_insert_with(|| (event.time, monotonic()));
        let since = Duration::from_nanos(event.time.saturating_sub(first));
        let since =
            Duration::try_from_secs_f64(since.as_secs_f64() / times).unwrap_or(Duration::MAX);
        begun.saturating_add(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl EventSource for Replay {
    fn name(&self) -> &'static str {
        "replay"
    }

    fn sight(&self) -> Sight {
        let blind = "what happens now: it tells a log, as far as its source saw";
        Sight {
            read_misses: true,
            map_misses: true,
            reads: true,
            maps: true,
            blind,
        }
    }

    fn watch(&mut self, files: &[Inode]) -> Result<()> {
        self.files = files.iter().copied().collect();
        self.next = self.next.filter(|next| self.files.contains(&next.inode));
        Ok(())
    }

    fn wait(&mut self, timeout: Duration, into: &mut Vec<Event>) -> io::Result<bool> {
        if self.files.is_empty() {
            // a log is not lost to those who do not watch yet
            readable(&[&self.wake], timeout)?;
            drained(&self.wake);
            return Ok(true);
        }
        let (before, mut left) = (into.len(), timeout);
        loop {
            let Some(mut event) = self.peek()? else {
                return Ok(into.len() > before);
            };
            let mut early = Duration::ZERO;
            if let Speed::Times(times) = self.speed {
                event.time = self.due(&event, times);
                early = Duration::from_nanos(event.time.saturating_sub(monotonic()));
            }
            if early.is_zero() {
                self.next = None;
                into.push(event);
                if into.len() - before == BATCH {
                    return Ok(true);
                }
                continue;
            }
            if into.len() > before || left.is_zero() {
                return Ok(true);
            }
            let nap = early.min(left);
            readable(&[&self.wake], nap)?;
            if drained(&self.wake) {
                return Ok(true);
            }
            left -= nap;
        }
    }

    fn lost(&self) -> u64 {
        self.lost
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }
}
