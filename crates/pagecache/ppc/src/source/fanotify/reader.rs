//! The thread that reads fanotify events and answers those that a reading process waits for.
//!
//! Readers must not wait for the consumer of the events, which may be slow; this thread only queues events. The thread
//! holds the only strong reference to the group. However it ends, the group is closed, and the kernel lets all waiting
//! reads proceed.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::io::Errno;

use super::decode::FanotifyEvents;
use super::sys;
use crate::event::{Event, EventKind, Inode, Waker, page_aligned};
use crate::source::poll::{drain, monotonic_ns, wait_readable};

/// Maximum number of queued events; further ones are counted as lost.
const MAX_QUEUED: usize = 1 << 16;
/// Bytes read at once. Small, because the kernel opens a descriptor for each event in them.
const READ_LEN: usize = 4096;
/// `FAN_PRE_ACCESS`, since Linux 6.14.
pub(crate) const PRE_ACCESS: u64 = 0x0010_0000;

/// The thread; it is stopped when this value is dropped.
#[derive(Debug)]
pub(crate) struct ReaderThread {
    group: Weak<OwnedFd>,
    state: Arc<Mutex<ReaderState>>,
    stop: Waker,
    thread: Option<JoinHandle<()>>,
}

/// The state that the thread shares with the source.
#[derive(Debug, Default)]
pub(crate) struct ReaderState {
    /// Events that were not consumed yet.
    pub(crate) events: Vec<Event>,
    /// The watched files; events of others are discarded.
    pub(crate) files: HashSet<Inode>,
    pub(crate) lost: u64,
}

impl ReaderThread {
    /// Starts the thread. It uses `waker` when there are events, and when it ends.
    pub(crate) fn spawn(group: OwnedFd, waker: Waker) -> io::Result<Self> {
        let (group, state, (stop, stopped)) = (
            Arc::new(group),
            Arc::<Mutex<ReaderState>>::default(),
            Waker::new()?,
        );
        let (weak, shared) = (Arc::downgrade(&group), Arc::clone(&state));
        let thread = std::thread::Builder::new()
            .name("ppc-fanotify".into())
            .spawn(move || {
                if let Err(error) = run(&group, &shared, &waker, &stopped) {
                    tracing::warn!(%error, "lost the fanotify connection");
                }
                drop(group);
                waker.wake();
            })?;
        Ok(Self {
            group: weak,
            state,
            stop,
            thread: Some(thread),
        })
    }

    /// The group, to be held only briefly; `None` after the thread has ended.
    pub(crate) fn group(&self) -> Option<Arc<OwnedFd>> {
        self.group.upgrade()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, ReaderState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ReaderThread {
    fn drop(&mut self) {
        self.stop.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(
    group: &OwnedFd,
    state: &Mutex<ReaderState>,
    waker: &Waker,
    stopped: &OwnedFd,
) -> io::Result<()> {
    let mut buffer = vec![0; READ_LEN];
    loop {
        // an hour stands for no timeout: `stopped` ends the wait
        wait_readable(&[group, stopped], Duration::from_secs(3600))?;
        if drain(stopped) {
            return Ok(());
        }
        let (mut events, mut lost) = (Vec::new(), 0);
        match rustix::io::read(group, &mut buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => answer_all(group, &buffer[..len], &mut events, &mut lost)?,
            Err(Errno::AGAIN | Errno::INTR) => continue,
            // the kernel could not open the file for this process, and has answered the event itself
            Err(
                Errno::MFILE
                | Errno::NFILE
                | Errno::NOMEM
                | Errno::NOENT
                | Errno::ACCESS
                | Errno::STALE,
            ) => lost = 1,
            Err(e) => return Err(e.into()),
        }
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        events.retain(|event| state.files.contains(&event.inode));
        let fitting = events
            .len()
            .min(MAX_QUEUED - state.events.len().min(MAX_QUEUED));
        state.lost += lost + u64::try_from(events.len() - fitting).unwrap_or(0);
        state.events.extend(events.drain(..fitting));
        let any = !state.events.is_empty();
        drop(state);
        if any {
            waker.wake();
        }
    }
}

/// Answers the events in `bytes` and appends them to `events`.
fn answer_all(
    group: &OwnedFd,
    bytes: &[u8],
    events: &mut Vec<Event>,
    lost: &mut u64,
) -> io::Result<()> {
    for event in FanotifyEvents(bytes) {
        let Some(fd) = sys::event_fd(event.fd) else {
            // an overflow of the kernel's queue has no file
            *lost += u64::from(event.mask & libc::FAN_Q_OVERFLOW != 0);
            continue;
        };
        // first of all: the reader waits for it
        if event.mask & PRE_ACCESS != 0 {
            allow(group, event.fd)?;
        }
        let Ok(stat) = rustix::fs::fstat(fd) else {
            continue;
        };
        // this process's own prefetches; dropped after the answer, without which it would wait for itself
        if event.pid == std::process::id() {
            continue;
        }
        let (kind, (start, len)) = if event.mask & PRE_ACCESS == 0 {
            (EventKind::Open, (0, 0))
        } else {
            let range = event.range.map(|(start, len)| page_aligned(start, len));
            (EventKind::Touch, range.unwrap_or_default())
        };
        events.push(Event {
            kind,
            inode: Inode::of(&stat),
            start,
            len,
            pid: event.pid,
            // the kernel states the process only
            tid: event.pid,
            // fanotify's events carry no time
            time: monotonic_ns(),
        });
    }
    Ok(())
}

/// Lets the waiting read proceed.
fn allow(group: &OwnedFd, fd: i32) -> io::Result<()> {
    let answer = [fd.to_ne_bytes(), libc::FAN_ALLOW.to_ne_bytes()].concat();
    loop {
        match rustix::io::write(group, &answer) {
            // NOENT: the waiting process was killed meanwhile
            Ok(_) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_reader_thread_closes_its_group() {
        let (group, other) = rustix::pipe::pipe().unwrap();
        let (waker, wake_fd) = Waker::new().unwrap();
        let reader = ReaderThread::spawn(group, waker).unwrap();
        assert!(reader.group().is_some());
        drop(other); // the end of the pipe is an error for the thread, because a fanotify group has no end
        wait_readable(&[&wake_fd], Duration::from_secs(20)).unwrap();
        assert!(reader.group().is_none());
    }
}
