#![allow(unsafe_code)] // cachestat(2) and mincore(2): no safe API exists; see CONVENTIONS.md

//! How many bytes of a file are in the page cache, and whether memory has pages.
//!
//! `cachestat(2)` (Linux 6.5) answers for a file without mapping it. `mincore(2)` of a mapping that is never read
//! through serves older kernels, and overlayfs: the pages of an overlay's file belong to the file of the lower layer,
//! so `cachestat` counts none, whereas a mapping refers to the lower file.
//!
//! Since Linux 5.2 `mincore` reports every page as resident to a caller that neither owns the file nor may write it.
//! Such an answer is not passed on; the query fails with [`io::ErrorKind::PermissionDenied`].
//!
//! Outside of Linux each query of a file returns [`io::ErrorKind::Unsupported`] or `None`, and memory and ranges count as
//! not resident.

#[cfg(target_os = "linux")]
pub use linux::{Cachestat, cachestat};

#[cfg(unix)]
use std::os::fd::AsFd as AsFile;
#[cfg(windows)]
use std::os::windows::io::AsHandle as AsFile;

use std::io;

/// The system call that measured a [`FileResidency`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "lowercase")
)]
pub enum ResidencyMethod {
    /// `cachestat(2)`: every field is known.
    Cachestat,
    /// `mincore(2)`: only [`FileResidency::cached`] is known, the other fields are 0.
    Mincore,
}

/// Page-cache state of a byte range of a file, in bytes of whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct FileResidency {
    /// Bytes in the page cache.
    pub cached: u64,
    /// Cached bytes that were modified and not yet written to the device.
    pub dirty: u64,
    /// Cached bytes that are being written to the device.
    pub writeback: u64,
    /// Bytes that were in the page cache and have been evicted since.
    pub evicted: u64,
    /// The system call that was used.
    pub method: ResidencyMethod,
}

impl FileResidency {
    /// Measures `len` bytes of a file from `start`. Reads nothing into memory.
    ///
    /// ```
    /// use anamnesis_os::residency::FileResidency;
    /// let file = std::fs::File::open(std::env::current_exe()?)?;
    /// if let Ok(residency) = FileResidency::of(&file, 0, file.metadata()?.len()) {
    ///     println!("{} bytes of this program are in the page cache", residency.cached);
    /// }
    /// # Ok::<_, std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::PermissionDenied`] for a file that the process neither owns nor may write,
    /// [`io::ErrorKind::Unsupported`] outside of Linux, and errors of the system calls.
    pub fn of(file: impl AsFile, start: u64, len: u64) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        return linux::measure(file.as_fd(), start, len);
        #[cfg(not(target_os = "linux"))]
        {
            let _ = (file, start, len);
            Err(io::ErrorKind::Unsupported.into())
        }
    }
}

/// Bytes of a file's first `len` that are in the page cache; `None` if the system does not report it.
pub fn resident_bytes(file: impl AsFile, len: u64) -> Option<u64> {
    FileResidency::of(file, 0, len)
        .ok()
        .map(|residency| residency.cached.min(len))
}

/// Whether a range of a file is probably in the page cache, from a sample of 64 KiB in every 4 MiB; `false` if the system
/// does not report it.
///
/// Counting every page of a large range takes as long as advising the kernel to read it, so callers that want to avoid
/// the advice use the sample.
pub fn is_probably_resident(file: impl AsFile, start: u64, len: u64) -> bool {
    #[cfg(target_os = "linux")]
    return linux::is_probably_resident(file.as_fd(), start, len);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (file, start, len);
        false
    }
}

/// Whether the page in the middle of this memory is resident, without touching it; `false` for empty memory and outside of
/// Linux.
pub fn is_memory_resident(memory: &[u8]) -> bool {
    #[cfg(target_os = "linux")]
    return linux::is_memory_resident(memory);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = memory;
        false
    }
}

#[cfg(target_os = "linux")]
mod linux {
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
    /// Those of the system call: `ENOSYS` before Linux 6.5, `EPERM` for a file that the process neither owns nor may
    /// write.
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

    pub(super) fn by_mincore(
        file: BorrowedFd<'_>,
        start: u64,
        len: u64,
    ) -> io::Result<FileResidency> {
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
        let writable =
            rustix::fs::accessat(rustix::fs::CWD, path, Access::WRITE_OK, AtFlags::EACCESS);
        Ok(writable.is_ok())
    }

    /// Counts the resident pages of `len` bytes (not 0) from `start` (a multiple of the page size). `pages` is scratch
    /// memory that successive calls reuse.
    fn mincore(
        file: BorrowedFd<'_>,
        start: u64,
        len: usize,
        pages: &mut Vec<u8>,
    ) -> io::Result<u64> {
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
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use std::fs::{File, Permissions};
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::fs::{FileExt, PermissionsExt};

    use super::linux::{WINDOW, by_mincore, is_mincore_truthful};
    use super::*;

    fn page_size() -> u64 {
        rustix::param::page_size() as u64
    }

    #[test]
    fn cachestat_and_mincore_agree_on_a_sparse_file() {
        // a memfd, because the kernel does not evict its pages
        let memfd = rustix::fs::memfd_create("sparse", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let file = File::from(memfd);
        // a hole longer than one window, then data that does not end at a page boundary
        let (hole, len) = (WINDOW + (8 << 20), WINDOW + (16 << 20) + 77);
        file.write_all_at(&vec![1; usize::try_from(len - hole).unwrap()], hole)
            .unwrap();
        for len in [
            1,
            hole,
            hole + 4096,
            hole + 4097,
            len,
            len + (1 << 20),
            u64::MAX,
        ] {
            let by_mincore = by_mincore(file.as_fd(), 0, len).expect("the test owns the file");
            if let Ok(stat) = cachestat(file.as_fd(), 0, len) {
                assert_eq!(by_mincore.cached, stat.cache * page_size(), "{len} bytes");
            }
        }
        let cached =
            |start, len| by_mincore(file.as_fd(), start, len).map(|residency| residency.cached);
        let pages = (len - hole).div_ceil(page_size());
        assert_eq!(cached(0, hole).unwrap(), 0);
        assert_eq!(cached(0, len).unwrap(), pages * page_size());
        assert_eq!(cached(hole + page_size() + 1, 1).unwrap(), page_size());
        assert_eq!(
            resident_bytes(&file, len).unwrap(),
            (pages * page_size()).min(len)
        );
        assert_eq!(resident_bytes(&file, 0), Some(0));
        assert_eq!(FileResidency::of(&file, hole, 0).unwrap().cached, 0);
        assert!(!is_probably_resident(&file, 0, len), "the hole");
        if cachestat(file.as_fd(), 0, 1).is_ok() {
            assert!(is_probably_resident(&file, hole, len - hole));
            assert!(is_probably_resident(&file, len - 1, 1));
            assert!(!is_probably_resident(&file, hole - 1, 1));
        }
    }

    #[test]
    fn cachestat_and_mincore_agree_on_an_evicted_range() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&vec![1; 8 << 20], 0).unwrap();
        file.sync_all().unwrap();
        // a file system in memory ignores the advice
        rustix::fs::fadvise(
            &file,
            0,
            std::num::NonZeroU64::new(4 << 20),
            rustix::fs::Advice::DontNeed,
        )
        .unwrap();
        // the kernel may evict pages between the two calls: repeat
        let counts_agree = || {
            let left = by_mincore(file.as_fd(), 0, 8 << 20).unwrap().cached;
            let counted = FileResidency::of(&file, 0, 8 << 20).unwrap().cached;
            left > 0 && counted == left
        };
        assert!((0..5).any(|_| counts_agree()));
    }

    #[test]
    fn mincore_of_files_of_other_users_is_refused() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[1; 10_000]).unwrap();
        file.set_permissions(Permissions::from_mode(0o644)).unwrap();
        assert!(is_mincore_truthful(file.as_fd()).unwrap());
        let refused = |file: &File| {
            let error = by_mincore(file.as_fd(), 0, 10_000).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        };
        if !rustix::process::geteuid().is_root() {
            return refused(&File::open("/etc/passwd").unwrap());
        }
        // changes the user id of this thread only
        let file = std::thread::spawn(move || {
            let unprivileged = rustix::process::Uid::from_raw(65_534);
            rustix::thread::set_thread_res_uid(unprivileged, unprivileged, unprivileged).unwrap();
            refused(&file);
            file
        })
        .join()
        .unwrap();
        by_mincore(file.as_fd(), 0, 10_000).unwrap();
    }

    #[test]
    fn memory_is_resident_once_touched() {
        let mut memory = vec![0u8; 64 << 20];
        assert!(!is_memory_resident(&memory));
        let middle = memory.len() / 2;
        memory[middle] = 1;
        assert!(is_memory_resident(&memory));
        let last_quarter = &memory[memory.len() / 4 * 3..];
        assert!(
            !is_memory_resident(last_quarter),
            "even a huge page ends before"
        );
        assert!(!is_memory_resident(&[]));
    }
}
