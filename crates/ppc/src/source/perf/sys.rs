//! perf's system calls.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::attr::Attr;

/// What a perf event is of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum On {
    /// Every process, on this CPU.
    Cpu(u32),
    /// The thread that opens it.
    Thread,
}

/// `perf_event_open`.
pub(crate) fn perf_event_open(attr: &Attr, on: On) -> io::Result<OwnedFd> {
    let (pid, cpu) = match on {
        On::Cpu(cpu) => (
            -1,
            i32::try_from(cpu).map_err(|_| io::ErrorKind::InvalidInput)?,
        ),
        On::Thread => (0, -1),
    };
    let no_group = -1;
    // SAFETY: `attr` lives through the call, and its `size` field says how long it is.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_ref(attr),
            pid,
            cpu,
            no_group,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    owned(i32::try_from(fd).unwrap_or(-1))
}

const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;

/// What is asked of a perf event's descriptor.
#[derive(Debug)]
pub(crate) enum Ask<'a> {
    /// Begin to count.
    Enable,
    /// Write samples into the ring of another event on the same CPU.
    Output(BorrowedFd<'a>),
    /// Sample only what passes; can be set once.
    Filter(&'a CStr),
}

/// Asks it.
pub(crate) fn perf_ioctl(fd: BorrowedFd<'_>, ask: Ask<'_>) -> io::Result<()> {
    // _IO('$', 0), _IO('$', 5), _IOW('$', 6, char *)
    const ENABLE: libc::c_ulong = 0x2400;
    const SET_OUTPUT: libc::c_ulong = 0x2405;
    const SET_FILTER: libc::c_ulong = 0x4000_2406 | (size_of::<usize>() as libc::c_ulong) << 16;
    let fd = fd.as_raw_fd();
    let result = match ask {
        // SAFETY: takes no argument.
        Ask::Enable => unsafe { libc::ioctl(fd, ENABLE as _, 0) },
        // SAFETY: the argument is a number.
        Ask::Output(ring) => unsafe { libc::ioctl(fd, SET_OUTPUT as _, ring.as_raw_fd()) },
        // SAFETY: the kernel reads up to the NUL, which a CStr has.
        Ask::Filter(text) => unsafe { libc::ioctl(fd, SET_FILTER as _, text.as_ptr()) },
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// The id that samples of a perf event carry.
pub(crate) fn perf_id(fd: BorrowedFd<'_>) -> io::Result<u64> {
    // _IOR('$', 7, __u64 *)
    const ID: libc::c_ulong = 0x8000_2407 | (size_of::<usize>() as libc::c_ulong) << 16;
    let mut id = 0u64;
    // SAFETY: the kernel writes eight bytes, and `id` has them.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), ID as _, std::ptr::from_mut(&mut id)) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(id)
    }
}

fn owned(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the system call has just returned it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
