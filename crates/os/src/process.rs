#![allow(unsafe_code)] // process_madvise(2): no safe API exists; see CONVENTIONS.md

//! Advice about the memory of another process.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// Requests the eviction of `len` bytes at `address` of another process (`MADV_PAGEOUT`). Clean file pages are dropped and
/// read again when the process accesses them. Returns the number of bytes that were advised, which may be less than `len`.
///
/// # Errors
///
/// `EPERM` without `CAP_SYS_NICE` and the right to read the process's memory maps; `ESRCH` if the process has exited;
/// `ENOSYS` before Linux 5.10.
pub fn page_out(pidfd: BorrowedFd<'_>, address: usize, len: usize) -> io::Result<usize> {
    let range = libc::iovec {
        iov_base: ptr::without_provenance_mut(address),
        iov_len: len,
    };
    // SAFETY: the kernel reads one `iovec`, which outlives the call. The address belongs to the other process, and the
    // advice changes no byte that either process can observe.
    let advised = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            pidfd.as_raw_fd(),
            &raw const range,
            1usize,
            libc::MADV_PAGEOUT,
            0u32,
        )
    };
    usize::try_from(advised).map_err(|_| io::Error::last_os_error())
}
