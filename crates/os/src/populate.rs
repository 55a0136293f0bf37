#![allow(unsafe_code)] // mapping a file and populating the mapping: no safe API exists; see CONVENTIONS.md

//! Reading a range of a file into the page cache by populating a mapping of it. Linux 5.14.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// A mapping of a range of a file that is populated and never read through, so that truncation of the file cannot raise a
/// signal.
#[derive(Debug)]
pub struct PopulateMap {
    at: *mut libc::c_void,
    len: usize,
}

impl PopulateMap {
    /// Maps `len` bytes (not 0) of a file from `start`, a multiple of the page size.
    ///
    /// `MADV_HUGEPAGE` makes the page cache allocate folios of 2 MiB where the file system has large folios, and
    /// `MADV_RANDOM` turns read-ahead off.
    ///
    /// # Errors
    ///
    /// The errors of `mmap` and `madvise`; `EINVAL` on kernels without transparent huge pages.
    pub fn new(file: BorrowedFd<'_>, start: u64, len: usize) -> io::Result<Self> {
        let offset = libc::off_t::try_from(start).map_err(io::Error::other)?;
        // SAFETY: a new mapping at an address that the kernel chooses; no memory of this process changes.
        let at = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                // `MADV_POPULATE_READ` refuses mappings without read permission
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                offset,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let map = Self { at, len };
        for advice in [libc::MADV_HUGEPAGE, libc::MADV_RANDOM] {
            // SAFETY: advises the mapping made above; the advice changes no byte.
            if unsafe { libc::madvise(at, len, advice) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(map)
    }

    /// Reads `len` bytes from `offset` (a multiple of the page size) of the mapping into the page cache, clipped to the
    /// mapping. Blocks until they are resident.
    ///
    /// # Errors
    ///
    /// `EFAULT` beyond the end of the file, and errors of the device.
    pub fn populate(&self, offset: usize, len: usize) -> io::Result<()> {
        let offset = offset.min(self.len);
        let at = self.at.wrapping_byte_add(offset);
        let len = len.min(self.len - offset);
        // SAFETY: the range lies in the mapping, which lives as long as `self`. Pages beyond the end of a truncated file
        // make the call fail and raise no signal.
        let result = unsafe { libc::madvise(at, len, libc::MADV_POPULATE_READ) };
        if result == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

impl Drop for PopulateMap {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `new`, and no reference to it exists.
        unsafe { libc::munmap(self.at, self.len) };
    }
}
