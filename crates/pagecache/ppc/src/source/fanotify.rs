//! Events from fanotify: opens of files, or every read before it happens.
//!
//! [`FanotifySource::opens`] reports opens and delays no process. It shows that a service starts and which process it is,
//! but not which bytes are read.
//!
//! [`FanotifySource::reads`] (Linux 6.14, on ext4, xfs and btrfs) reports every `read` with its range, cached or not, and
//! `mmap`, but no page faults. The reader waits until the event is answered: 7–11 µs per event, which made warm reads 28 %
//! slower (EXPERIMENTS.md). It is therefore the last resort where trace points are not available. A thread of its own
//! answers, so that readers never wait for a policy. If this process ends, the kernel closes the group and all waiting
//! reads proceed. If it is *stopped* (`SIGSTOP`, a frozen control group), readers of the watched files wait until it is
//! continued.
//!
//! Both need CAP_SYS_ADMIN. fanotify reports processes, not threads: [`Event::tid`] is the process id.

mod decode;
mod reader;
mod sys;

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use self::reader::{PRE_ACCESS, ReaderThread};
use super::poll::{drain, wait_readable};
use crate::error::{Error, ErrorKind, Result};
use crate::event::{Capabilities, Event, EventSource, Inode, Waker};
use crate::namespace::Namespace;

/// A source of opens or of reads, from fanotify. See the [module](self).
#[derive(Debug)]
pub struct FanotifySource {
    mask: u64,
    root: PathBuf,
    /// The files that have a mark.
    marked: HashSet<Inode>,
    reader: ReaderThread,
    waker: Waker,
    wake_fd: Arc<OwnedFd>,
}

impl FanotifySource {
    /// Reports opens of files below the root of `namespace`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] with the missing privilege or kernel feature.
    pub fn opens(namespace: &Namespace) -> Result<Self> {
        Self::new(namespace, libc::FAN_CLASS_NOTIF, libc::FAN_OPEN)
    }

    /// Reports every read of files below the root of `namespace`, and delays it.
    ///
    /// # Errors
    ///
    /// The errors of [`opens`](Self::opens).
    pub fn reads(namespace: &Namespace) -> Result<Self> {
        Self::new(namespace, libc::FAN_CLASS_PRE_CONTENT, PRE_ACCESS)
    }

    fn new(namespace: &Namespace, class: u32, mask: u64) -> Result<Self> {
        // non-blocking, since a poll may report an event that is gone when it is read. No limit on marks, of which each
        // file takes one; the queue keeps its limit, and what it drops is counted by `FAN_Q_OVERFLOW`
        let flags = class | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK | libc::FAN_UNLIMITED_MARKS;
        let group = sys::fanotify_init(flags).map_err(unavailable)?;
        // a mark on the root, removed at once, shows whether the kernel and the file system support this mask
        let root = std::fs::File::open(namespace.root())?;
        for change in [libc::FAN_MARK_ADD, libc::FAN_MARK_REMOVE] {
            sys::fanotify_mark(
                group.as_fd(),
                change,
                mask | libc::FAN_EVENT_ON_CHILD,
                root.as_fd(),
            )
            .map_err(unavailable)?;
        }
        let (waker, wake_fd) = Waker::new()?;
        let reader = ReaderThread::spawn(group, waker.clone())?;
        Ok(Self {
            mask,
            root: namespace.root().to_owned(),
            marked: HashSet::new(),
            reader,
            waker,
            wake_fd,
        })
    }

    fn mark(&self, change: u32, namespace: &Namespace, inode: Inode) -> Result<()> {
        // a file that was replaced or removed since the scan is skipped
        let Some(Ok(file)) = namespace.find(inode).map(|entry| namespace.open(entry)) else {
            return Ok(());
        };
        let ended = || {
            Error::new(ErrorKind::Unavailable(
                "the fanotify connection was lost earlier".into(),
            ))
        };
        let group = self.reader.group().ok_or_else(ended)?;
        sys::fanotify_mark(group.as_fd(), change, self.mask, file.as_fd()).map_err(unavailable)
    }
}

/// Explains an error of fanotify's system calls.
fn unavailable(error: io::Error) -> Error {
    let what = match error.raw_os_error() {
        Some(libc::EPERM) => "fanotify needs CAP_SYS_ADMIN (or root); the source shim does not",
        Some(libc::EINVAL) => {
            "reporting reads needs fanotify's FAN_PRE_ACCESS of Linux 6.14; the source opens does not"
        }
        Some(libc::EOPNOTSUPP) => {
            "reporting reads needs ext4, xfs or btrfs; the source opens works on other file systems"
        }
        Some(libc::ENOSYS) => {
            "this kernel has no fanotify (CONFIG_FANOTIFY, CONFIG_FANOTIFY_ACCESS_PERMISSIONS)"
        }
        _ => return error.into(),
    };
    Error::new(ErrorKind::Unavailable(what.into()))
}

impl EventSource for FanotifySource {
    fn name(&self) -> &'static str {
        if self.mask == PRE_ACCESS {
            "reads"
        } else {
            "opens"
        }
    }

    fn capabilities(&self) -> Capabilities {
        let is_reads = self.mask == PRE_ACCESS;
        Capabilities {
            read_misses: false,
            map_misses: false,
            reads: is_reads,
            first_touches: false,
            limitations: if is_reads {
                "whether bytes were cached, and accesses to mapped memory"
            } else {
                "which bytes are read: only that a process opens a file"
            },
        }
    }

    fn watch(&mut self, files: &[Inode]) -> Result<()> {
        // marks need an open file; which path an inode has now is known from a new scan only
        let namespace = Namespace::scan(&self.root)?;
        let files: HashSet<_> = files.iter().copied().collect();
        // before the marks are added: the first event of a new file must find it watched
        self.reader.state().files.clone_from(&files);
        for &file in &files {
            self.mark(libc::FAN_MARK_ADD, &namespace, file)?;
        }
        for &file in self.marked.difference(&files) {
            self.mark(libc::FAN_MARK_REMOVE, &namespace, file)?;
        }
        self.marked = files;
        Ok(())
    }

    fn wait(&mut self, timeout: Duration, into: &mut Vec<Event>) -> io::Result<bool> {
        wait_readable(&[&self.wake_fd], timeout)?;
        drain(&self.wake_fd);
        into.append(&mut self.reader.state().events);
        Ok(self.reader.group().is_some())
    }

    fn lost(&self) -> u64 {
        self.reader.state().lost
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }
}
