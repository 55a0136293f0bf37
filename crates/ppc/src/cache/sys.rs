#![allow(unsafe_code)] // system calls that no safe API covers; see CONVENTIONS.md

//! The system calls of the cache that no safe API covers.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// `struct cachestat_range` of `linux/mman.h`.
#[repr(C)]
struct Range {
    off: u64,
    len: u64,
}

/// `struct cachestat`: numbers of pages.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stat {
    pub(super) cache: u64,
    pub(super) dirty: u64,
    pub(super) writeback: u64,
    pub(super) evicted: u64,
    pub(super) recently_evicted: u64,
}

/// `cachestat(2)` has this number on all architectures but alpha, MIPS and x32, where it fails. Linux 6.5.
const CACHESTAT: libc::c_long = 451;

/// What the page cache holds of `len` bytes from `start`; a `len` of 0 means to the end of the file.
pub(super) fn cachestat(fd: BorrowedFd<'_>, start: u64, len: u64) -> io::Result<Stat> {
    let range = Range { off: start, len };
    let mut stat = Stat::default();
    // SAFETY: the kernel reads one structure and writes the other, both of its own layout and alive during the call.
    let done = unsafe {
        libc::syscall(
            CACHESTAT,
            fd.as_raw_fd(),
            &raw const range,
            &raw mut stat,
            0u32,
        )
    };
    if done == 0 {
        Ok(stat)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Pages of a file that are in memory, of `len` bytes (not 0) from `start` (whole pages). The kernel says so of every
/// page to those who neither own the file nor may write it: ask only for them.
pub(super) fn mincore(fd: BorrowedFd<'_>, start: u64, len: usize) -> io::Result<u64> {
    let offset = libc::off_t::try_from(start).map_err(io::Error::other)?;
    // SAFETY: a new mapping at an address that the kernel chooses; nothing of this process is changed. It is never
    // read through, so that a file which becomes shorter does no harm.
    let at = unsafe {
        libc::mmap(
            ptr::null_mut(),
            len,
            libc::PROT_NONE,
            libc::MAP_SHARED,
            fd.as_raw_fd(),
            offset,
        )
    };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let mut pages = vec![0u8; len.div_ceil(rustix::param::page_size())];
    // SAFETY: `at` is a mapping of `len` bytes, and `pages` has a byte for each of its pages.
    let done = unsafe { libc::mincore(at, len, pages.as_mut_ptr()) };
    let failed = (done != 0).then(io::Error::last_os_error);
    // SAFETY: the mapping made above, of which nobody knows.
    unsafe { libc::munmap(at, len) };
    match failed {
        Some(error) => Err(error),
        None => Ok(pages.iter().map(|page| u64::from(page & 1)).sum()),
    }
}

/// A part of a file, mapped to be filled: never read through.
#[derive(Debug)]
pub(super) struct Fill {
    at: *mut libc::c_void,
    len: usize,
}

impl Fill {
    /// Of `len` bytes (not 0) from `start` (whole pages). What is filled through it comes in pieces of 2 MiB, if the
    /// file system has large folios, and nothing is read ahead of it.
    pub(super) fn new(fd: BorrowedFd<'_>, start: u64, len: usize) -> io::Result<Self> {
        let offset = libc::off_t::try_from(start).map_err(io::Error::other)?;
        // SAFETY: a new mapping at an address that the kernel chooses; nothing of this process is changed.
        let at = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                offset,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let fill = Self { at, len };
        for advice in [libc::MADV_HUGEPAGE, libc::MADV_RANDOM] {
            // SAFETY: the mapping made above; the advice changes no byte of it.
            if unsafe { libc::madvise(at, len, advice) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(fill)
    }

    /// Brings `len` bytes at `offset` (whole pages) of the mapping into memory, as far as they are within it.
    pub(super) fn populate(&self, offset: usize, len: usize) -> io::Result<()> {
        let offset = offset.min(self.len);
        let at = self.at.wrapping_byte_add(offset);
        // SAFETY: within the mapping, which lives as long as this. A file that became shorter is an error, not a signal.
        let done =
            unsafe { libc::madvise(at, len.min(self.len - offset), libc::MADV_POPULATE_READ) };
        if done == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

impl Drop for Fill {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, of which nobody else knows.
        unsafe { libc::munmap(self.at, self.len) };
    }
}

/// Asks the kernel to take `len` bytes at `address` of another process out of memory (`MADV_PAGEOUT`): what is clean
/// is dropped, and read from its file when it is touched again. Returns how many bytes were advised.
pub(super) fn page_out(pidfd: BorrowedFd<'_>, address: usize, len: usize) -> io::Result<usize> {
    let range = libc::iovec {
        iov_base: ptr::without_provenance_mut(address),
        iov_len: len,
    };
    // SAFETY: the kernel reads one `iovec`, alive during the call. The address is of the other process, and the advice
    // changes no byte that it can see.
    let done = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            pidfd.as_raw_fd(),
            &raw const range,
            1usize,
            libc::MADV_PAGEOUT,
            0u32,
        )
    };
    usize::try_from(done).map_err(|_| io::Error::last_os_error())
}

/// Lets this thread's new pages, those of the page cache included, come from a memory node while it has some; `None`:
/// from where the thread runs.
pub(super) fn prefer_node(node: Option<u32>) -> io::Result<()> {
    const WORDS: usize = 16;
    const BITS: usize = usize::BITS as usize;
    let mut mask = [0usize; WORDS];
    if let Some(node) = node {
        let node = usize::try_from(node).map_err(io::Error::other)?;
        let word = mask
            .get_mut(node / BITS)
            .ok_or(io::ErrorKind::InvalidInput)?;
        *word |= 1 << (node % BITS);
    }
    let (mode, most) = if node.is_some() {
        (libc::MPOL_PREFERRED, WORDS * BITS)
    } else {
        (libc::MPOL_DEFAULT, 1)
    };
    // SAFETY: the kernel reads less than `most` bits of the mask, which is alive during the call and has as many.
    let done = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, mask.as_ptr(), most) };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn node_masks() {
        // node 0 is everywhere; a kernel without NUMA has no such call
        match prefer_node(Some(0)) {
            Ok(()) => prefer_node(None).unwrap(),
            Err(error) => assert!(
                matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)),
                "{error}"
            ),
        }
        assert_eq!(
            prefer_node(Some(1 << 20)).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
    }

    #[test]
    fn mincore_counts_what_was_written() {
        let file = tempfile::tempfile().unwrap();
        rustix::io::pwrite(&file, &[1; 10_000], 0).unwrap();
        let pages = 10_000usize.div_ceil(rustix::param::page_size());
        assert_eq!(mincore(file.as_fd(), 0, 10_000).unwrap(), pages as u64);
        // 0: an overlay, whose files are held by those below
        let counted = cachestat(file.as_fd(), 0, 0).map_or(0, |stat| stat.cache);
        assert!(counted == pages as u64 || counted == 0, "{counted}");
    }
}
