//! The system calls of Linux behind the queries.
#![allow(unsafe_code)] // cachestat(2) and mincore(2): no safe API exists; see CONVENTIONS.md

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use rustix::fs::{Access, AtFlags};
use rustix::thread::CapabilitySet;

use super::{FileResidency, ResidencyMethod};

/// `struct cachestat_range` of `linux/mman.h`.
#[repr(C)]
struct CachestatRange {
    off: u64,
    len: u64,
}

/// `struct cachestat` of `linux/mman.h`: numbers of pages.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Cachestat {
    /// Pages in the page cache.
    pub cache: u64,
    /// Cached pages that were modified and not yet written.
    pub dirty: u64,
    /// Cached pages that are being written.
    pub writeback: u64,
    /// Pages that were evicted and not read since.
    pub evicted: u64,
    /// Evicted pages that would count as part of the working set if they were read again.
    pub recently_evicted: u64,
}

/// Number of `cachestat(2)` on every architecture but alpha, MIPS and x32, where the call fails.
const CACHESTAT: libc::c_long = 451;

/// Bytes that are mapped at once for `mincore`: a multiple of every page size, huge pages included.
pub(super) const WINDOW: u64 = 256 << 20;

/// Distance of the samples of [`is_probably_resident`], and the length of each: experiment 45 of
/// docs/perf-experiments.md, where the samples took half the time of advising every page.
const SAMPLE_STRIDE: u64 = 4 << 20;
const SAMPLE: u64 = 64 << 10;

fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

/// `cachestat(2)` of `len` bytes of a file from `start`; a `len` of 0 means to the end of the file.
///
/// # Errors
///
/// The errors of the system call: `ENOSYS` before Linux 6.5, `EPERM` for a file that the process neither owns nor may write.
pub fn cachestat(file: BorrowedFd<'_>, start: u64, len: u64) -> io::Result<Cachestat> {
    let range = CachestatRange { off: start, len };
    let mut stat = Cachestat::default();
    // SAFETY: the kernel reads `range` and writes `stat`, which have the kernel's layout and outlive the call.
    let result = unsafe {
        libc::syscall(
            CACHESTAT,
            file.as_raw_fd(),
            &raw const range,
            &raw mut stat,
            0u32,
        )
    };
    if result == 0 {
        Ok(stat)
    } else {
        Err(io::Error::last_os_error())
    }
}

pub(super) fn measure(file: BorrowedFd<'_>, start: u64, len: u64) -> io::Result<FileResidency> {
    if len == 0 {
        // to `cachestat` a length of 0 means the rest of the file
        return Ok(from_pages(Cachestat::default(), ResidencyMethod::Cachestat));
    }
    match cachestat(file, start, len) {
        Ok(stat) if stat.cache > 0 || !is_overlay(file) => {
            Ok(from_pages(stat, ResidencyMethod::Cachestat))
        }
        Ok(_) => by_mincore(file, start, len),
        // `ENOSYS` of an old kernel, `EPERM` of a seccomp filter that lacks the call, `EOPNOTSUPP` of hugetlbfs
        Err(_) => by_mincore(file, start, len),
    }
}

fn from_pages(stat: Cachestat, method: ResidencyMethod) -> FileResidency {
    let bytes = |pages: u64| pages.saturating_mul(page_size());
    FileResidency {
        cached: bytes(stat.cache),
        dirty: bytes(stat.dirty),
        writeback: bytes(stat.writeback),
        evicted: bytes(stat.evicted),
        method,
    }
}

pub(super) fn by_mincore(file: BorrowedFd<'_>, start: u64, len: u64) -> io::Result<FileResidency> {
    if !is_mincore_truthful(file)? {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the kernel reports the cached pages of a file only to its owner and to processes that may write it",
        ));
    }
    let size = u64::try_from(rustix::fs::fstat(file)?.st_size).unwrap_or(0);
    // a mapping beyond the end of the file has no pages to count
    let end = start.saturating_add(len).min(size);
    let mut pages = Vec::new();
    let (mut at, mut cache) = (start / page_size() * page_size(), 0);
    while at < end {
        let window = (end - at).min(WINDOW);
        let len = usize::try_from(window).map_err(io::Error::other)?;
        cache += mincore(file, at, len, &mut pages)?;
        at += window;
    }
    let stat = Cachestat {
        cache,
        ..Cachestat::default()
    };
    Ok(from_pages(stat, ResidencyMethod::Mincore))
}

/// Whether `mincore` reports the true state of a file's pages: the rule of `can_do_mincore` in `mm/mincore.c`, which
/// requires that the process owns the file (or has `CAP_FOWNER`) or may write it. How the descriptor was opened
/// does not count.
pub(super) fn is_mincore_truthful(file: BorrowedFd<'_>) -> io::Result<bool> {
    let owner = rustix::fs::fstat(file)?.st_uid;
    if owner == rustix::process::geteuid().as_raw() {
        return Ok(true);
    }
    let privileged = rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::FOWNER));
    if privileged {
        return Ok(true);
    }
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    // by the effective ids, as the kernel checks; through `/proc`, since the path under which the file was opened
    // may lead elsewhere now
    let writable = rustix::fs::accessat(rustix::fs::CWD, path, Access::WRITE_OK, AtFlags::EACCESS);
    Ok(writable.is_ok())
}

/// Counts the resident pages of `len` bytes (not 0) from `start` (a multiple of the page size). `pages` is scratch
/// memory that successive calls reuse.
fn mincore(file: BorrowedFd<'_>, start: u64, len: usize, pages: &mut Vec<u8>) -> io::Result<u64> {
    let offset = libc::off_t::try_from(start).map_err(io::Error::other)?;
    // SAFETY: a new mapping at an address that the kernel chooses; no memory of this process changes. The mapping is
    // never accessed, so truncation of the file cannot raise a signal.
    let at = unsafe {
        libc::mmap(
            ptr::null_mut(),
            len,
            // `mincore` needs no access
            libc::PROT_NONE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            offset,
        )
    };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    pages.clear();
    pages.resize(len.div_ceil(rustix::param::page_size()), 0);
    // SAFETY: `at` is a mapping of `len` bytes, and `pages` has one byte for each of its pages.
    let result = unsafe { libc::mincore(at, len, pages.as_mut_ptr()) };
    let error = (result != 0).then(io::Error::last_os_error);
    // SAFETY: unmaps the mapping made above, to which no reference exists.
    unsafe { libc::munmap(at, len) };
    match error {
        Some(error) => Err(error),
        // the other bits are reserved
        None => Ok(pages.iter().map(|page| u64::from(page & 1)).sum()),
    }
}

pub(super) fn is_probably_resident(file: BorrowedFd<'_>, start: u64, len: u64) -> bool {
    let range_end = start.saturating_add(len);
    let mut at = start;
    while at < range_end {
        // the sample lies at the end of its stretch, because a read under way fills a stretch from its beginning
        let end = at.saturating_add(SAMPLE_STRIDE).min(range_end);
        let from = end.saturating_sub(SAMPLE).max(at) / page_size() * page_size();
        let pages = (end - from).div_ceil(page_size());
        match cachestat(file, from, end - from) {
            Ok(stat) if stat.cache == pages => at = end,
            _ => return false,
        }
    }
    true
}

fn is_overlay(file: BorrowedFd<'_>) -> bool {
    const OVERLAYFS_SUPER_MAGIC: i64 = 0x794c_7630;
    #[allow(clippy::useless_conversion)] // `f_type` has 32 bits on some architectures
    rustix::fs::fstatfs(file).is_ok_and(|stat| i64::from(stat.f_type) == OVERLAYFS_SUPER_MAGIC)
}

pub(super) fn is_memory_resident(memory: &[u8]) -> bool {
    let page = rustix::param::page_size();
    let Some(middle) = memory
        .get(memory.len() / 2..)
        .filter(|rest| !rest.is_empty())
    else {
        return false;
    };
    let at = middle
        .as_ptr()
        .map_addr(|address| address / page * page)
        .cast_mut();
    let mut state = 0;
    // SAFETY: `mincore` reports on one page without accessing it, and writes one byte to `state`.
    let result = unsafe { libc::mincore(at.cast(), page, &raw mut state) };
    result == 0 && state & 1 == 1
}
