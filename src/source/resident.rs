#![allow(unsafe_code)] // system calls that no safe API covers; see CONVENTIONS.md

//! How much of a file the page cache holds.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use rustix::fs::{Access, AtFlags};

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
/// Bytes that are mapped at once for `mincore`: a whole number of pages, and of huge ones.
const WINDOW: u64 = 256 << 20;

/// Bytes of the file's first `len` that are in the page cache; `None` if the kernel does not say.
///
/// Kernels before 6.5, and overlays, are asked by `mincore`, where they tell the truth: a caller who neither owns the
/// file nor may write it hears since Linux 5.2 that all of it is there, so nobody else is asked for.
pub(crate) fn resident(fd: BorrowedFd<'_>, len: u64) -> Option<u64> {
    if len == 0 {
        return Some(0);
    }
    let pages = by_cachestat(fd, 0, len).or_else(|| by_mincore(fd, len))?;
    Some(
        pages
            .saturating_mul(rustix::param::page_size() as u64)
            .min(len),
    )
}

/// Bytes between places that are looked at, and of each place.
const STRIDE: u64 = 4 << 20;
const PLACE: u64 = 64 << 10;

/// Whether these bytes are in the page cache, by the look of a place in every 4 MiB: a look at all of them would take as
/// long as asking for them. No, if the kernel does not say.
pub(crate) fn seems_resident(fd: BorrowedFd<'_>, start: u64, len: u64) -> bool {
    let page = rustix::param::page_size() as u64;
    let mut at = start;
    while at < start.saturating_add(len) {
        // the last place of a stretch, so that what is just on its way is not taken for all of it
        let end = at.saturating_add(STRIDE).min(start.saturating_add(len));
        let from = end.saturating_sub(PLACE).max(at) / page * page;
        if by_cachestat(fd, from, end - from) != Some((end - from).div_ceil(page)) {
            return false;
        }
        at = end;
    }
    true
}

/// Pages in memory, of `len` bytes (not 0) from `off`.
fn by_cachestat(fd: BorrowedFd<'_>, off: u64, len: u64) -> Option<u64> {
    let range = Range { off, len };
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
    // what an overlay's file holds is held by the file below, which its maps show
    (done == 0 && (stat.cache > 0 || !is_overlay(fd))).then_some(stat.cache)
}

fn is_overlay(fd: BorrowedFd<'_>) -> bool {
    const OVERLAYFS: i64 = 0x794c_7630;
    #[allow(clippy::useless_conversion)] // of another width elsewhere
    rustix::fs::fstatfs(fd).is_ok_and(|stat| i64::from(stat.f_type) == OVERLAYFS)
}

fn by_mincore(fd: BorrowedFd<'_>, len: u64) -> Option<u64> {
    let size = rustix::fs::fstat(fd)
        .ok()
        .filter(|_| is_told_the_truth(fd))?
        .st_size;
    // behind the file's end there are no pages to be counted
    let len = len.min(u64::try_from(size).ok()?);
    let mut pages = Vec::new();
    let (mut at, mut count) = (0, 0);
    while at < len {
        let window = (len - at).min(WINDOW);
        count += mincore(fd, at, usize::try_from(window).ok()?, &mut pages)?;
        at += window;
    }
    Some(count)
}

/// Whether `mincore` says which pages of a file are there, rather than that all are.
fn is_told_the_truth(fd: BorrowedFd<'_>) -> bool {
    let own =
        rustix::fs::fstat(fd).is_ok_and(|stat| stat.st_uid == rustix::process::geteuid().as_raw());
    // of what is asked here the kernel asks no more: a file that is open to be read only may be writable all the same
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    own || rustix::fs::accessat(rustix::fs::CWD, path, Access::WRITE_OK, AtFlags::EACCESS).is_ok()
}

/// Pages in memory, of `len` bytes (not 0) from `start` (whole pages); `pages` is room that is used again.
fn mincore(fd: BorrowedFd<'_>, start: u64, len: usize, pages: &mut Vec<u8>) -> Option<u64> {
    let offset = libc::off_t::try_from(start).ok()?;
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
        return None;
    }
    pages.clear();
    pages.resize(len.div_ceil(rustix::param::page_size()), 0);
    // SAFETY: `at` is a mapping of `len` bytes, and `pages` has a byte for each of its pages.
    let done = unsafe { libc::mincore(at, len, pages.as_mut_ptr()) };
    // SAFETY: the mapping made above, of which nobody knows.
    unsafe { libc::munmap(at, len) };
    (done == 0).then(|| pages.iter().map(|page| u64::from(page & 1)).sum())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::fs::{FileExt, PermissionsExt};

    use super::*;

    /// A file that is open, and has no name any more.
    fn file(name: &str) -> File {
        let path =
            std::env::temp_dir().join(format!("anamnesis-resident-{name}-{}", std::process::id()));
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .unwrap();
        std::fs::remove_file(path).unwrap();
        file
    }

    #[test]
    fn both_say_the_same_of_a_file_that_is_half_there() {
        // of which the kernel takes nothing back meanwhile
        let file =
            File::from(rustix::fs::memfd_create("half", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
        // a hole, which nobody has read, before what was written; more than one window, and no whole page at the end
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
            let by_mincore = by_mincore(file.as_fd(), len).expect("a file of our own");
            if let Some(by_cachestat) = by_cachestat(file.as_fd(), 0, len) {
                assert_eq!(by_mincore, by_cachestat, "of {len} bytes");
            }
        }
        let page = rustix::param::page_size() as u64;
        assert_eq!(by_mincore(file.as_fd(), hole), Some(0));
        assert_eq!(
            by_mincore(file.as_fd(), len),
            Some((len - hole).div_ceil(page))
        );
        assert_eq!(
            resident(file.as_fd(), len).unwrap(),
            ((len - hole).div_ceil(page) * page).min(len)
        );
        assert!(!seems_resident(file.as_fd(), 0, len), "the hole");
        if by_cachestat(file.as_fd(), 0, 1).is_some() {
            assert!(
                seems_resident(file.as_fd(), hole, len - hole)
                    && seems_resident(file.as_fd(), len - 1, 1)
            );
            assert!(!seems_resident(file.as_fd(), hole - 1, 1));
        }
    }

    #[test]
    fn what_is_let_go_is_gone_for_both() {
        let file = file("let-go");
        file.write_all_at(&vec![1; 8 << 20], 0).unwrap();
        file.sync_all().unwrap();
        // a file system in memory lets go of nothing
        rustix::fs::fadvise(
            &file,
            0,
            std::num::NonZeroU64::new(4 << 20),
            rustix::fs::Advice::DontNeed,
        )
        .unwrap();
        // once more where the kernel took some back between the two
        let same = || {
            let left = by_mincore(file.as_fd(), 8 << 20);
            left > Some(0)
                && by_cachestat(file.as_fd(), 0, 8 << 20).is_none_or(|pages| Some(pages) == left)
        };
        assert!((0..5).any(|_| same()));
    }

    #[test]
    fn of_the_files_of_others_nothing_is_known() {
        let mut file = file("others");
        file.write_all(&[1; 10_000]).unwrap();
        file.set_permissions(std::fs::Permissions::from_mode(0o644))
            .unwrap();
        assert!(is_told_the_truth(file.as_fd()));
        if !rustix::process::geteuid().is_root() {
            let others = File::open("/etc/passwd").unwrap();
            assert_eq!(by_mincore(others.as_fd(), 1), None);
            return;
        }
        // only this thread becomes somebody else
        let told = std::thread::spawn(move || {
            let nobody = rustix::process::Uid::from_raw(65_534);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            let before = by_mincore(file.as_fd(), 10_000);
            (before, file)
        });
        let (told, file) = told.join().unwrap();
        assert_eq!(told, None);
        assert!(by_mincore(file.as_fd(), 10_000).is_some());
    }
}
