//! Files that are opened again for direct I/O (`O_DIRECT`), which bypasses the page cache.

#[cfg(all(test, shuttle))]
mod interleavings;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Once};

use rustix::fs::{Mode, OFlags, StatxFlags};

use super::report::ReportBuilder;
use super::storage::{StorageKind, storage_kind};
use crate::base::sync::AtomicBool;
use crate::read::source::open_files::{DescriptorCount, with_descriptor};
use crate::read::source::{Source, uninterrupted};

/// All files of a checkpoint, opened for direct I/O, and the alignment that they need.
#[derive(Debug)]
pub(super) struct DirectFiles {
    files: Vec<DirectFile>,
    align: u64,
    _open: DescriptorCount,
}

#[derive(Debug)]
pub(super) struct DirectFile {
    pub(super) file: File,
    /// Whether the file system refused a direct read, so that the page cache is used after all.
    buffered: AtomicBool,
    report: Arc<ReportBuilder>,
}

/// Alignment that every known device accepts.
const PAGE: u64 = 4096;

impl DirectFiles {
    /// Opens all of them again. Returns `None` and reports the reason if one has no descriptor, or lies on a file system
    /// without direct I/O.
    pub(super) fn open(sources: &[Arc<dyn Source>], report: &Arc<ReportBuilder>) -> Option<Self> {
        let opened = Self::open_all(sources, report).inspect_err(|error| {
            static ONCE: Once = Once::new();
            ONCE.call_once(|| tracing::info!(%error, "no direct I/O on these files: reading through the page cache"));
            report.fall_back_to_buffered(format!("no direct reads: {error}"));
        });
        opened.ok()
    }

    fn open_all(sources: &[Arc<dyn Source>], report: &Arc<ReportBuilder>) -> io::Result<Self> {
        let open = DescriptorCount::of_files(sources.len())?;
        let mut align = PAGE;
        let mut files = Vec::with_capacity(sources.len());
        for source in sources {
            let fd = source
                .as_fd()
                .ok_or_else(|| unsupported("a source has no descriptor"))?;
            let fd = fd.as_fd();
            // a file system in memory accepts the flag, and copies from the page cache all the same
            if let StorageKind::Memory(name) = storage_kind(fd) {
                return Err(unsupported(&format!("{name} is in memory")));
            }
            // through /proc: `O_DIRECT` belongs to the open file, so setting it on the caller's descriptor would
            // change the caller's reads
            let file = reopen(fd, OFlags::DIRECT)?;
            // one alignment for all files, because requests are laid out before the file is known
            align = align.max(
                alignment(fd)
                    .ok_or_else(|| unsupported("the file system reports no direct I/O"))?,
            );
            files.push(DirectFile {
                file,
                buffered: AtomicBool::new(false),
                report: Arc::clone(report),
            });
        }
        Ok(Self {
            files,
            align,
            _open: open,
        })
    }

    /// Offsets, lengths and addresses of direct reads are multiples of it.
    pub(super) fn align(&self) -> u64 {
        self.align
    }

    #[cfg(feature = "uring")]
    pub(super) fn files(&self) -> &[DirectFile] {
        &self.files
    }

    /// Fills at least `needed` bytes of `out`, unless the file ends before. Returns the number of bytes that were read.
    pub(super) fn read(
        &self,
        file: u32,
        start: u64,
        out: &mut [u8],
        needed: usize,
    ) -> io::Result<usize> {
        let file = &self.files[file as usize];
        let mut done = 0;
        while done < needed {
            let buffered = file.is_buffered();
            let rest = &mut out[done..];
            match uninterrupted(|| file.file.read_at(rest, start + done as u64)) {
                // the end of the file inside the last, aligned request
                Ok(0) => break,
                Ok(n) => {
                    file.succeeded(buffered);
                    done += n;
                }
                // with the value from before the read: another thread may have switched the file to the page cache
                // meanwhile, and this read is then repeated there instead of failing
                Err(e) => file.failed(buffered, e)?,
            }
            if done < needed {
                file.after_short_read(done, self.align)?;
            }
        }
        Ok(done)
    }

    /// See [`DirectFile::after_short_read`].
    #[cfg(feature = "uring")]
    pub(super) fn after_short_read(&self, file: u32, done: usize) -> io::Result<()> {
        self.files[file as usize].after_short_read(done, self.align)
    }
}

impl DirectFile {
    /// Whether the file is read through the page cache after all. Callers load it before a read and pass it on with the
    /// result: several reads may be in flight when the first of them is refused.
    pub(super) fn is_buffered(&self) -> bool {
        self.buffered.load(Ordering::Acquire)
    }

    /// After a read that was started while the file was `buffered` or not.
    pub(super) fn succeeded(&self, buffered: bool) {
        if !buffered {
            self.report.direct_read();
        }
    }

    /// After a read failed that was started while the file was `buffered` or not. `EINVAL` of a direct read means that
    /// the file system accepted the flag and refuses the read: the page cache is used from then on. Other errors are
    /// returned.
    pub(super) fn failed(&self, buffered: bool, error: io::Error) -> io::Result<()> {
        if error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) && !buffered {
            return self.use_page_cache(|| format!("a direct read was refused: {error}"));
        }
        Err(error)
    }

    /// After a read that returned fewer bytes than needed. The next offset may be unaligned; the rest is then read
    /// through the page cache.
    fn after_short_read(&self, done: usize, align: u64) -> io::Result<()> {
        let why = || format!("a direct read was cut short, after {done} bytes");
        if (done as u64).is_multiple_of(align) {
            Ok(())
        } else {
            self.use_page_cache(why)
        }
    }

    fn use_page_cache(&self, why: impl FnOnce() -> String) -> io::Result<()> {
        let flags = rustix::fs::fcntl_getfl(&self.file)?;
        // before `buffered` is set, so that no thread that sees the flag still reads directly
        rustix::fs::fcntl_setfl(&self.file, flags - OFlags::DIRECT)?;
        // the swap lets one of several threads report; release, so that a thread which loads `true` comes after the
        // call above
        if !self.buffered.swap(true, Ordering::AcqRel) {
            let why = why();
            tracing::info!("{why}: continuing through the page cache");
            self.report.fall_back_to_buffered(why);
        }
        Ok(())
    }
}

/// Opens the file of a descriptor again, so that the flags and read-ahead of the first descriptor do not change.
pub(super) fn reopen(fd: BorrowedFd<'_>, flags: OFlags) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | flags;
    let opened = with_descriptor(|| Ok(rustix::fs::open(&path, flags, Mode::empty())?))?;
    Ok(File::from(opened))
}

/// The alignment that the file system reports (`STATX_DIOALIGN`, since Linux 6.1), or a page where it reports none;
/// `None` if it reports that it has no direct I/O, or needs more than pages of memory.
fn alignment(fd: BorrowedFd<'_>) -> Option<u64> {
    let Ok(stat) = rustix::fs::statx(
        fd,
        c"",
        rustix::fs::AtFlags::EMPTY_PATH,
        StatxFlags::DIOALIGN,
    ) else {
        return Some(PAGE);
    };
    if stat.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return Some(PAGE);
    }
    let (memory, offset) = (
        u64::from(stat.stx_dio_mem_align),
        u64::from(stat.stx_dio_offset_align),
    );
    // buffers of the pool are aligned to pages
    let usable =
        memory > 0 && memory <= PAGE && offset > 0 && offset.is_power_of_two() && offset <= 1 << 20;
    usable.then(|| offset.max(PAGE))
}

fn unsupported(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, why)
}
