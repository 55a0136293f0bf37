#![allow(unsafe_code)] // a system call that no safe API covers; see CONVENTIONS.md

//! How much of a file the page cache holds.

use std::os::fd::{AsRawFd, BorrowedFd};

/// `struct cachestat_range` of `linux/mman.h`.
#[repr(C)]
struct Range {
    off: u64,
    len: u64,
}

/// `struct cachestat`: numbers of pages.
#[repr(C)]
#[derive(Default)]
struct Stat {
    cache: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// `cachestat(2)` has this number on all architectures but alpha, MIPS and x32, where it fails. Linux 6.5.
const CACHESTAT: libc::c_long = 451;

/// Bytes of the file's first `len` that are in the page cache; `None` if the kernel does not say.
pub(crate) fn resident(fd: BorrowedFd<'_>, len: u64) -> Option<u64> {
    if len == 0 {
        return Some(0);
    }
    let range = Range { off: 0, len };
    let mut stat = Stat::default();
    // SAFETY: the kernel reads one structure and writes the other, both of its own layout and alive during the call.
    let done = unsafe { libc::syscall(CACHESTAT, fd.as_raw_fd(), &raw const range, &raw mut stat, 0u32) };
    let page = rustix::param::page_size() as u64;
    (done == 0).then(|| stat.cache.saturating_mul(page).min(len))
}
