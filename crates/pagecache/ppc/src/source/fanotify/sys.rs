//! fanotify's system calls.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `fanotify_init(2)`: creates a group.
pub(crate) fn fanotify_init(flags: u32) -> io::Result<OwnedFd> {
    // how the kernel opens the file of each event for this process. Without `O_LARGEFILE` a 32-bit process gets no
    // event of files above 2 GiB
    let event_flags = (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_LARGEFILE).cast_unsigned();
    // SAFETY: all arguments are numbers.
    owned(unsafe { libc::fanotify_init(flags, event_flags) })
}

/// `fanotify_mark(2)` of an open file.
pub(crate) fn fanotify_mark(
    group: BorrowedFd<'_>,
    flags: u32,
    mask: u64,
    file: BorrowedFd<'_>,
) -> io::Result<()> {
    // SAFETY: the path may be null: the call then marks the file of the descriptor.
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

/// Takes ownership of the descriptor that came with an event; `None` if the event has none.
pub(crate) fn event_fd(fd: i32) -> Option<OwnedFd> {
    // SAFETY: the kernel opened the descriptor for the reader of this event, and each event is decoded once.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

fn owned(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the system call has just returned the descriptor, so it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
