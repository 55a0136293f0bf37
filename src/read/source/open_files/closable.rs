//! Files that are closed when they are not in use.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use anamnesis_os::files::open_without_waiting;

use super::{limit, with_descriptor};

/// The files that are open, in the order in which they were opened or passed over. Locked after the lock of a file, or without
/// one; a file is never waited for while it is locked.
static OPEN: Mutex<VecDeque<Weak<ClosableFile>>> = Mutex::new(VecDeque::new());

pub(super) struct ClosableFile {
    state: Mutex<ClosableState>,
    /// Whether it was used since it was last passed over.
    used: AtomicBool,
    prepare: fn(&File),
}

struct ClosableState {
    /// `None` while it is closed. Other owners use it.
    file: Option<Arc<File>>,
    /// Where it is found again, once it was closed.
    place: Option<ClosedPlace>,
}

/// Device, number, length, and time of the last change in seconds and nanoseconds.
type Identity = (u64, u64, u64, i64, i64);

struct ClosedPlace {
    path: PathBuf,
    identity: Identity,
}

fn identity(meta: &std::fs::Metadata) -> Identity {
    let changed = (meta.mtime(), meta.mtime_nsec());
    (meta.dev(), meta.ino(), meta.len(), changed.0, changed.1)
}

impl ClosedPlace {
    /// The place of an open file, if its path leads to it: not of one that was removed, nor of one that only another mount
    /// namespace or root has.
    fn of(file: &File) -> Option<Self> {
        let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
        let identity = identity(&file.metadata().ok()?);
        let found = std::fs::metadata(&path).ok()?;
        (found.is_file() && self::identity(&found) == identity).then_some(Self { path, identity })
    }

    fn open(&self) -> io::Result<File> {
        let file = match with_descriptor(|| open_without_waiting(&self.path)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(replaced()),
            file => file?,
        };
        match identity(&file.metadata()?) == self.identity {
            true => Ok(file),
            false => Err(replaced()),
        }
    }
}

/// The number that a file server's system has for this, which every layer passes on.
fn replaced() -> io::Error {
    rustix::io::Errno::STALE.into()
}

impl ClosableFile {
    pub(super) fn new(file: File, prepare: fn(&File)) -> Arc<Self> {
        let new = Arc::new(Self {
            state: Mutex::new(ClosableState {
                file: Some(Arc::new(file)),
                place: None,
            }),
            used: AtomicBool::new(true),
            prepare,
        });
        new.record_open();
        new
    }

    pub(super) fn get(self: &Arc<Self>) -> io::Result<Arc<File>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let file = match (&state.file, &state.place) {
            (Some(file), _) => {
                self.used.store(true, Relaxed);
                return Ok(Arc::clone(file));
            }
            (None, Some(place)) => Arc::new(place.open()?),
            (None, None) => unreachable!("a file is closed when its place is known"),
        };
        (self.prepare)(&file);
        state.file = Some(Arc::clone(&file));
        drop(state);
        self.record_open();
        Ok(file)
    }

    /// Closes the file, unless it is in use or cannot be found again. `now`: also if it was used not long ago.
    fn close(&self, now: bool) -> bool {
        if self.used.swap(false, Relaxed) && !now {
            return false;
        }
        // locked: it is being opened or used
        let Ok(mut state) = self.state.try_lock() else {
            return false;
        };
        let Some(file) = &state.file else {
            return true;
        };
        if Arc::strong_count(file) > 1 {
            return false;
        }
        if state.place.is_none() {
            state.place = ClosedPlace::of(file);
        }
        if state.place.is_none() {
            return false;
        }
        state.file = None;
        true
    }

    /// Notes that this file is open, and closes others beyond the share.
    fn record_open(self: &Arc<Self>) {
        let mut open = lock_open();
        open.push_back(Arc::downgrade(self));
        let share = (limit() / 8).max(1);
        // each file is passed over once, and closed when it is met again; those in use stay
        let mut left = 2 * open.len();
        while open.len() > share && left > 0 {
            left -= 1;
            close_first(&mut open, false);
        }
    }
}

fn lock_open() -> MutexGuard<'static, VecDeque<Weak<ClosableFile>>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Closes the first file, or moves it to the end. Returns whether a descriptor was closed.
fn close_first(open: &mut VecDeque<Weak<ClosableFile>>, now: bool) -> bool {
    let Some(first) = open.pop_front() else {
        return false;
    };
    // one whose source has gone closed with it
    let Some(file) = first.upgrade() else {
        return false;
    };
    let closed = file.close(now);
    if !closed {
        open.push_back(first);
    }
    closed
}

/// Closes all files that are not in use. Returns whether there were any.
pub(super) fn close_unused() -> bool {
    let mut open = lock_open();
    (0..open.len()).fold(false, |any, _| close_first(&mut open, true) || any)
}
