//! A source that replays an event log.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufReader};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::log::{self, LogLine};
use super::poll::{drain, monotonic_ns, wait_readable};
use crate::error::{Error, Result};
use crate::event::{Capabilities, Event, EventSource, Inode, Waker};
use crate::namespace::Namespace;

/// Maximum number of events returned by one wait.
const MAX_BATCH: usize = 4096;
/// Maximum number of `file` lines that are used.
const MAX_FILES: usize = 1 << 20;

/// The speed of a [`ReplaySource`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ReplaySpeed {
    /// This many times as fast as recorded. Event times are moved to the present.
    Times(f64),
    /// As fast as events are consumed. Event times are the times of the log.
    AtOnce,
}

/// A source that replays an [`EventLog`](super::EventLog).
///
/// Events of files that the log names and the namespace contains are reported with the inodes of the namespace; other
/// events keep the inode in the log. Events that were lost during the recording count as lost.
#[derive(Debug)]
pub struct ReplaySource {
    path: PathBuf,
    from: BufReader<File>,
    line: u64,
    speed: ReplaySpeed,
    /// Inodes of the namespace, by path.
    inodes: HashMap<PathBuf, Inode>,
    /// Inodes of the namespace, by inode in the log.
    translated: HashMap<Inode, Inode>,
    watched: HashSet<Inode>,
    /// Time of the first event in the log, and when it was replayed.
    epoch: Option<(u64, u64)>,
    /// The next watched event, read ahead.
    next: Option<Event>,
    ended: bool,
    lost: u64,
    waker: Waker,
    wake_fd: Arc<OwnedFd>,
}

impl ReplaySource {
    /// Opens a log.
    ///
    /// # Errors
    ///
    /// The file cannot be read or is not an event log, or the speed is not a positive number.
    pub fn open(path: &Path, namespace: &Namespace, speed: ReplaySpeed) -> Result<Self> {
        if let ReplaySpeed::Times(times) = speed
            && !(times.is_finite() && times > 0.0)
        {
            return Err(Error::invalid(format!(
                "the replay speed must be a positive number, not {times}"
            )));
        }
        let in_file = |error: io::Error| Error::from(error).in_file(path);
        let mut from = BufReader::new(File::open(path).map_err(in_file)?);
        log::read_version(&mut from).map_err(in_file)?;
        let inodes = namespace
            .entries()
            .iter()
            .map(|entry| (entry.path.to_path_buf(), entry.inode))
            .collect();
        let (waker, wake_fd) = Waker::new()?;
        Ok(Self {
            path: path.to_owned(),
            from,
            line: 1,
            speed,
            inodes,
            translated: HashMap::new(),
            watched: HashSet::new(),
            epoch: None,
            next: None,
            ended: false,
            lost: 0,
            waker,
            wake_fd,
        })
    }

    /// Reads up to the next watched event and returns it without consuming it.
    fn peek(&mut self) -> io::Result<Option<Event>> {
        while self.next.is_none() && !self.ended {
            self.line += 1;
            let in_line = |e: io::Error| {
                io::Error::new(
                    e.kind(),
                    format!("{}:{}: {e}", self.path.display(), self.line),
                )
            };
            match log::read_line(&mut self.from).map_err(in_line) {
                Err(error) => {
                    // the next line would begin in the middle of this one
                    self.ended = true;
                    return Err(error);
                }
                Ok(None) => self.ended = true,
                Ok(Some(LogLine::Lost(lost))) => self.lost = self.lost.saturating_add(lost),
                Ok(Some(LogLine::File(recorded, name))) => {
                    if let Some(&inode) = self.inodes.get(&name)
                        // the log is read from a file, whose lines must not fill the memory
                        && self.translated.len() < MAX_FILES
                    {
                        self.translated.insert(recorded, inode);
                    }
                }
                Ok(Some(LogLine::Event(event))) => {
                    let translated = self.translated.get(&event.inode);
                    let inode = translated.copied().unwrap_or(event.inode);
                    self.next = self
                        .watched
                        .contains(&inode)
                        .then_some(Event { inode, ..event });
                }
            }
        }
        Ok(self.next)
    }

    /// When an event is due, in nanoseconds of `CLOCK_MONOTONIC`.
    fn due(&mut self, event: &Event, times: f64) -> u64 {
        // the clock starts with the first event that is replayed, and not when the log is opened
        let (first, began) = *self
            .epoch
            .get_or_insert_with(|| (event.time, monotonic_ns()));
        let recorded = Duration::from_nanos(event.time.saturating_sub(first));
        let scaled =
            Duration::try_from_secs_f64(recorded.as_secs_f64() / times).unwrap_or(Duration::MAX);
        began.saturating_add(u64::try_from(scaled.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl EventSource for ReplaySource {
    fn name(&self) -> &'static str {
        "replay"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            read_misses: true,
            map_misses: true,
            reads: true,
            first_touches: true,
            limitations: "present accesses: it replays a log, with the limitations of the recorded source",
        }
    }

    fn watch(&mut self, files: &[Inode]) -> Result<()> {
        self.watched = files.iter().copied().collect();
        // the event that was read ahead is subject to the new set of files, too
        self.next = self.next.filter(|next| self.watched.contains(&next.inode));
        Ok(())
    }

    fn wait(&mut self, timeout: Duration, into: &mut Vec<Event>) -> io::Result<bool> {
        if self.watched.is_empty() {
            // the replay begins when files are watched, or their events would be skipped
            wait_readable(&[&self.wake_fd], timeout)?;
            drain(&self.wake_fd);
            return Ok(true);
        }
        let (before, mut left) = (into.len(), timeout);
        loop {
            let Some(mut event) = self.peek()? else {
                return Ok(into.len() > before);
            };
            let mut early = Duration::ZERO;
            if let ReplaySpeed::Times(times) = self.speed {
                event.time = self.due(&event, times);
                early = Duration::from_nanos(event.time.saturating_sub(monotonic_ns()));
            }
            if early.is_zero() {
                self.next = None;
                into.push(event);
                // the consumer handles these before it receives more
                if into.len() - before == MAX_BATCH {
                    return Ok(true);
                }
                continue;
            }
            // events that are due are returned before the next event is waited for
            if into.len() > before || left.is_zero() {
                return Ok(true);
            }
            let nap = early.min(left);
            wait_readable(&[&self.wake_fd], nap)?;
            if drain(&self.wake_fd) {
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
