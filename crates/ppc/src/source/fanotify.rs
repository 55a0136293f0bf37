//! Events from fanotify: that a file is opened, or every read before it happens.
//!
//! [`Fanotify::opens`] hears of opens and delays nobody: a sign that a service starts, with its process. It does not say
//! which bytes are asked for.
//!
//! [`Fanotify::reads`] (Linux 6.14, ext4, xfs and btrfs) hears of every `read` with its range, in the page cache or not,
//! and of `mmap`, but not of page faults. The reader waits until it is answered, 7–11 µs as measured earlier, which made
//! warm reads 28 % slower: the last resort for whoever has no trace points. A thread of its own answers at once, so that
//! nobody waits for a policy; if this process dies, the kernel lets everybody pass. If it is *stopped* (`SIGSTOP`, a
//! frozen cgroup), its files' readers wait until it goes on.
//!
//! Both need CAP_SYS_ADMIN. Threads are not told apart: [`Event::tid`] is the process too.

mod heard;
mod listener;
mod sys;

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use self::listener::{Listener, PRE_ACCESS};
use super::{drained, readable};
use crate::error::{Error, ErrorKind, Result};
use crate::event::{Event, EventSource, Inode, Sight, Waker};
use crate::namespace::Namespace;

/// A source of opens or reads, from fanotify. See the [module](self).
#[derive(Debug)]
pub struct Fanotify {
    mask: u64,
    root: PathBuf,
    /// Files with a mark.
    marked: HashSet<Inode>,
    listener: Listener,
    waker: Waker,
    wake: Arc<OwnedFd>,
}

impl Fanotify {
    /// Tells that files are opened.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] with what is needed.
    pub fn opens(namespace: &Namespace) -> Result<Self> {
        Self::new(namespace, libc::FAN_CLASS_NOTIF, libc::FAN_OPEN)
    }

    /// Tells every read, and delays it until it is told.
    ///
    /// # Errors
    ///
    /// As [`opens`](Self::opens).
    pub fn reads(namespace: &Namespace) -> Result<Self> {
        Self::new(namespace, libc::FAN_CLASS_PRE_CONTENT, PRE_ACCESS)
    }

    fn new(namespace: &Namespace, class: u32, mask: u64) -> Result<Self> {
        let flags = class | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK | libc::FAN_UNLIMITED_MARKS;
        let group = sys::fanotify_init(flags).map_err(refused)?;
        // whether this kernel and this file system know such marks
        let root = std::fs::File::open(namespace.root())?;
        for change in [libc::FAN_MARK_ADD, libc::FAN_MARK_REMOVE] {
            sys::fanotify_mark(
                group.as_fd(),
                change,
                mask | libc::FAN_EVENT_ON_CHILD,
                root.as_fd(),
            )
            .map_err(refused)?;
        }
        let (waker, wake) = Waker::new()?;
        let listener = Listener::new(group, waker.clone())?;
        Ok(Self {
            mask,
            root: namespace.root().to_owned(),
            marked: HashSet::new(),
            listener,
            waker,
            wake,
        })
    }

    fn mark(&self, change: u32, namespace: &Namespace, inode: Inode) -> Result<()> {
        // what was replaced since is not the file that was meant
        let Some(Ok(file)) = namespace.find(inode).map(|entry| namespace.open(entry)) else {
            return Ok(());
        };
        let ended = || {
            Error::new(ErrorKind::Unavailable(
                "fanotify failed before, and is not heard any more".into(),
            ))
        };
        let group = self.listener.group().ok_or_else(ended)?;
        sys::fanotify_mark(group.as_fd(), change, self.mask, file.as_fd()).map_err(refused)
    }
}

fn refused(error: io::Error) -> Error {
    let what = match error.raw_os_error() {
        Some(libc::EPERM) => "fanotify needs CAP_SYS_ADMIN (or root); without it use shim",
        Some(libc::EINVAL) => {
            "hearing of reads needs fanotify's FAN_PRE_ACCESS, of Linux 6.14; fanotify hears of opens"
        }
        Some(libc::EOPNOTSUPP) => {
            "hearing of reads needs ext4, xfs or btrfs; fanotify hears of opens"
        }
        Some(libc::ENOSYS) => {
            "this kernel has no fanotify (CONFIG_FANOTIFY, CONFIG_FANOTIFY_ACCESS_PERMISSIONS)"
        }
        _ => return error.into(),
    };
    Error::new(ErrorKind::Unavailable(what.into()))
}

impl EventSource for Fanotify {
    fn name(&self) -> &'static str {
        if self.mask == PRE_ACCESS {
            "reads"
        } else {
            "opens"
        }
    }

    fn sight(&self) -> Sight {
        let none = Sight {
            read_misses: false,
            map_misses: false,
            reads: false,
            maps: false,
            blind: "",
        };
        match self.mask {
            PRE_ACCESS => Sight {
                reads: true,
                blind: "whether bytes were in memory, and what is touched of mapped memory",
                ..none
            },
            _ => Sight {
                blind: "which bytes are asked for: only that a file is opened, and by which process",
                ..none
            },
        }
    }

    fn watch(&mut self, files: &[Inode]) -> Result<()> {
        let namespace = Namespace::scan(&self.root)?;
        let files: HashSet<_> = files.iter().copied().collect();
        self.listener.state().files.clone_from(&files);
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
        readable(&[&self.wake], timeout)?;
        drained(&self.wake);
        into.append(&mut self.listener.state().events);
        Ok(self.listener.group().is_some())
    }

    fn lost(&self) -> u64 {
        self.listener.state().lost
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }
}
