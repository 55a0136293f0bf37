//! The thread that hears events and answers those that wait for an answer.
//!
//! Readers must not wait for a policy: whoever consumes the events may be slow, this thread is not. If it ends, however
//! that comes, its group is closed, and the kernel lets everybody pass.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::io::Errno;

use super::heard::Events;
use super::sys;
use crate::event::{Event, Inode, Kind, Waker};
use crate::source::{drained, monotonic, pages, readable};

/// Events that nobody has taken yet; more are lost.
const QUEUE: usize = 1 << 16;
/// Bytes that are read at once: each event in them comes with a descriptor, of which there must not be too many.
const READ: usize = 4096;
/// `FAN_PRE_ACCESS`, since Linux 6.14.
pub(crate) const PRE_ACCESS: u64 = 0x0010_0000;

/// The thread; it ends with this value.
#[derive(Debug)]
pub(crate) struct Listener {
    /// Only the thread holds the group, so that its end closes it.
    group: Weak<OwnedFd>,
    state: Arc<Mutex<State>>,
    stop: Waker,
    thread: Option<JoinHandle<()>>,
}

/// What was heard.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) events: Vec<Event>,
    pub(crate) files: HashSet<Inode>,
    pub(crate) lost: u64,
}

impl Listener {
    /// Begins to listen; `told` is woken when there is something.
    pub(crate) fn new(group: OwnedFd, told: Waker) -> io::Result<Self> {
        let (group, state, (stop, stopped)) = (
            Arc::new(group),
            Arc::<Mutex<State>>::default(),
            Waker::new()?,
        );
        let (ours, theirs) = (Arc::downgrade(&group), Arc::clone(&state));
        let thread = std::thread::Builder::new()
            .name("ppc-fanotify".into())
            .spawn(move || {
                if let Err(error) = listen(&group, &theirs, &told, &stopped) {
                    tracing::warn!(%error, "fanotify is not heard any more");
                }
                drop(group);
                told.wake();
            })?;
        Ok(Self {
            group: ours,
            state,
            stop,
            thread: Some(thread),
        })
    }

    /// The group, for a moment; `None` when nothing is heard any more.
    pub(crate) fn group(&self) -> Option<Arc<OwnedFd>> {
        self.group.upgrade()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn listen(
    group: &OwnedFd,
    state: &Mutex<State>,
    told: &Waker,
    stopped: &OwnedFd,
) -> io::Result<()> {
    let mut buffer = vec![0; READ];
    loop {
        readable(&[group, stopped], Duration::from_secs(3600))?;
        if drained(stopped) {
            return Ok(());
        }
        let (mut events, mut lost) = (Vec::new(), 0);
        match rustix::io::read(group, &mut buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => hear(group, &buffer[..len], &mut events, &mut lost)?,
            Err(Errno::AGAIN | Errno::INTR) => continue,
            // the kernel could not open the file for us, and has answered itself
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
        let fit = events.len().min(QUEUE - state.events.len().min(QUEUE));
        state.lost += lost + u64::try_from(events.len() - fit).unwrap_or(0);
        state.events.extend(events.drain(..fit));
        let any = !state.events.is_empty();
        drop(state);
        if any {
            told.wake();
        }
    }
}

/// Answers the events in what was read, and tells them.
fn hear(group: &OwnedFd, bytes: &[u8], events: &mut Vec<Event>, lost: &mut u64) -> io::Result<()> {
    for heard in Events(bytes) {
        let Some(fd) = sys::event_fd(heard.fd) else {
            *lost += u64::from(heard.mask & libc::FAN_Q_OVERFLOW != 0);
            continue;
        };
        if heard.mask & PRE_ACCESS != 0 {
            allow(group, heard.fd)?;
        }
        let Ok(stat) = rustix::fs::fstat(fd) else {
            continue;
        };
        if heard.pid == std::process::id() {
            continue;
        }
        let (kind, (start, len)) = match heard.mask & PRE_ACCESS {
            0 => (Kind::Open, (0, 0)),
            _ => (
                Kind::Touch,
                heard.range.map_or((0, 0), |(start, len)| pages(start, len)),
            ),
        };
        let (inode, pid, time) = (Inode::of(&stat), heard.pid, monotonic());
        events.push(Event {
            kind,
            inode,
            start,
            len,
            pid,
            tid: pid,
            time,
        });
    }
    Ok(())
}

/// Lets the process that waits go on.
fn allow(group: &OwnedFd, fd: i32) -> io::Result<()> {
    let answer = [fd.to_ne_bytes(), libc::FAN_ALLOW.to_ne_bytes()].concat();
    loop {
        match rustix::io::write(group, &answer) {
            // its process was killed meanwhile
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
    fn a_listener_that_ends_closes_its_group() {
        let (group, other) = rustix::pipe::pipe().unwrap();
        let (waker, wake) = Waker::new().unwrap();
        let listener = Listener::new(group, waker).unwrap();
        assert!(listener.group().is_some());
        drop(other); // what is read ends, as it never does with fanotify
        readable(&[&wake], Duration::from_secs(20)).unwrap();
        assert!(listener.group().is_none());
    }
}
