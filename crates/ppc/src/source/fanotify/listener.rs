//! The thread that hears events and answers those that wait for an answer.
//!
//! Readers must not wait for a policy: whoever consumes the events may be slow, this thread is not. If it ends, however
//! that comes, its group is closed, and the kernel lets everybody pass.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::heard::Events;
use super::sys;
use crate::event::{Event, Inode, Kind, Waker};
use crate::source::{drained, monotonic, pages, readable};

/// Events that nobody has taken yet; more are lost.
const QUEUE: usize = 1 << 16;
/// `FAN_PRE_ACCESS`, since Linux 6.14.
pub(crate) const PRE_ACCESS: u64 = 0x0010_0000;

/// The thread; it ends with this value.
#[derive(Debug)]
pub(crate) struct Listener {
    shared: Arc<Shared>,
    stop: Waker,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    group: OwnedFd,
    ended: AtomicBool,
    state: Mutex<State>,
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
        let shared = Shared { group, ended: AtomicBool::new(false), state: Mutex::default() };
        let (shared, (stop, stopped)) = (Arc::new(shared), Waker::new()?);
        let hears = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("ppc-fanotify".into()).spawn(move || {
            let heard = listen(&hears, &told, &stopped);
            hears.ended.store(true, Ordering::Release);
            told.wake();
            if let Err(error) = heard {
                tracing::warn!(%error, "fanotify is not heard any more");
            }
        })?;
        Ok(Self { shared, stop, thread: Some(thread) })
    }

    pub(crate) fn group(&self) -> &OwnedFd {
        &self.shared.group
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It failed, and nothing is heard any more.
    pub(crate) fn ended(&self) -> bool {
        self.shared.ended.load(Ordering::Acquire)
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

fn listen(shared: &Shared, told: &Waker, stopped: &OwnedFd) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        readable(&[&shared.group, stopped], std::time::Duration::from_secs(3600))?;
        if drained(stopped) {
            return Ok(());
        }
        let len = match rustix::io::read(&shared.group, &mut buffer) {
            Ok(len) => len,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => continue,
            Err(e) => return Err(e.into()),
        };
        let (mut events, mut lost) = (Vec::new(), 0);
        for heard in Events(&buffer[..len]) {
            let Some(fd) = sys::event_fd(heard.fd) else {
                lost += u64::from(heard.mask & libc::FAN_Q_OVERFLOW != 0);
                continue;
            };
            if heard.mask & PRE_ACCESS != 0 {
                allow(&shared.group, heard.fd)?;
            }
            if heard.pid == std::process::id() {
                continue;
            }
            let inode = Inode::of(&rustix::fs::fstat(fd.as_fd())?);
            let (kind, (start, len)) = match heard.mask & PRE_ACCESS {
                0 => (Kind::Open, (0, 0)),
                _ => (Kind::Touch, heard.range.map_or((0, 0), |(start, len)| pages(start, len))),
            };
            events.push(Event { kind, inode, start, len, pid: heard.pid, tid: heard.pid, time: monotonic() });
        }
        let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
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

/// Lets the process that waits go on.
fn allow(group: &OwnedFd, fd: i32) -> io::Result<()> {
    let answer = [fd.to_ne_bytes(), libc::FAN_ALLOW.to_ne_bytes()].concat();
    loop {
        match rustix::io::write(group, &answer) {
            // its process was killed meanwhile
            Ok(_) | Err(rustix::io::Errno::NOENT) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}
