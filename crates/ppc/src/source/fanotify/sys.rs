//! fanotify's system calls.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `fanotify_init`.
pub(crate) fn fanotify_init(flags: u32) -> io::Result<OwnedFd> {
    let event_flags = (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_LARGEFILE).cast_unsigned();
    // SAFETY: takes numbers only.
    owned(unsafe { libc::fanotify_init(flags, event_flags) })
}

/// `fanotify_mark` of an open file.
pub(crate) fn fanotify_mark(
    group: BorrowedFd<'_>,
    flags: u32,
    mask: u64,
    file: BorrowedFd<'_>,
) -> io::Result<()> {
    // SAFETY: takes numbers only: without a path it marks what the descriptor is of.
    let result = unsafe {
        libc::fanotify_mark(
            group.as_raw_fd(),
            flags,
            mask,
            file.as_raw_fd(),
            std::ptr::null(),
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Owns the descriptor that came with a fanotify event.
pub(crate) fn event_fd(fd: i32) -> Option<OwnedFd> {
    // SAFETY: the kernel opened it for the reader of this event, and each event is read once.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

fn owned(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the system call has just returned it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
