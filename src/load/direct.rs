//! Files opened again to be read around the page cache.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};

use rustix::fs::{Mode, OFlags, StatxFlags};

use super::facts::{Kind, kind};
use super::way::Tally;
use crate::source::Source;

/// Files that are read directly, and how reads of them are aligned.
#[derive(Debug)]
pub(super) struct Files {
    files: Vec<Direct>,
    align: u64,
}

#[derive(Debug)]
pub(super) struct Direct {
    pub(super) file: File,
    /// Through the page cache after all.
    buffered: AtomicBool,
    tally: Arc<Tally>,
}

/// What every device that we know is content with.
const PAGE: u64 = 4096;

impl Files {
    /// Opens all of them again; `None`, which is noted, if one has no descriptor or a file system that does not read
    /// directly.
    pub(super) fn open(sources: &[Box<dyn Source>], tally: &Arc<Tally>) -> Option<Self> {
        let opened = Self::all(sources, tally).inspect_err(|error| {
            static ONCE: Once = Once::new();
            ONCE.call_once(|| tracing::info!(%error, "no direct I/O on these files: reading through the page cache"));
            tally.through(format!("no direct reads: {error}"));
        });
        opened.ok()
    }

    fn all(sources: &[Box<dyn Source>], tally: &Arc<Tally>) -> io::Result<Self> {
        let mut align = PAGE;
        let mut files = Vec::with_capacity(sources.len());
        for source in sources {
            let fd = source
                .as_fd()
                .ok_or_else(|| unsupported("a source has no descriptor"))?;
            // what it takes for a direct read is another copy
            if let Kind::Memory(name) = kind(fd) {
                return Err(unsupported(&format!("{name} is in memory")));
            }
            let file = again(fd, OFlags::DIRECT)?;
            align = align.max(
                alignment(fd)
                    .ok_or_else(|| unsupported("the file system says that it has none"))?,
            );
            files.push(Direct {
                file,
                buffered: AtomicBool::new(false),
                tally: Arc::clone(tally),
            });
        }
        Ok(Self { files, align })
    }

    /// Offsets, lengths and addresses are multiples of it.
    pub(super) fn align(&self) -> u64 {
        self.align
    }

    #[cfg(feature = "uring")]
    pub(super) fn files(&self) -> &[Direct] {
        &self.files
    }

    /// Fills `wanted` bytes or more of `out`, unless the file ends before.
    pub(super) fn read(
        &self,
        file: u32,
        start: u64,
        out: &mut [u8],
        wanted: usize,
    ) -> io::Result<usize> {
        let file = &self.files[file as usize];
        let mut done = 0;
        while done < wanted {
            let buffered = file.is_buffered();
            match file.file.read_at(&mut out[done..], start + done as u64) {
                Ok(0) => break,
                Ok(n) => {
                    file.read(buffered);
                    done += n;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => file.fall_back(buffered, e)?,
            }
            if done < wanted {
                file.cut_short(done, self.align)?;
            }
        }
        Ok(done)
    }

    /// After a short read: see [`Direct::cut_short`].
    #[cfg(feature = "uring")]
    pub(super) fn cut_short(&self, file: u32, done: usize) -> io::Result<()> {
        self.files[file as usize].cut_short(done, self.align)
    }
}

impl Direct {
    /// Whether it is read through the page cache after all: to be asked before a read, and told if that read fails.
    pub(super) fn is_buffered(&self) -> bool {
        self.buffered.load(Ordering::Acquire)
    }

    /// After a read that was begun when the file was `buffered` or not.
    pub(super) fn read(&self, buffered: bool) {
        if !buffered {
            self.tally.past();
        }
    }

    /// After an error of a read that was begun when the file was `buffered` or not: if the file system took the flag
    /// and not the read, reads go through the page cache. Several may have been on their way.
    pub(super) fn fall_back(&self, buffered: bool, error: io::Error) -> io::Result<()> {
        if error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) && !buffered {
            return self.buffer(|| format!("a direct read was refused: {error}"));
        }
        Err(error)
    }

    /// What a short read leaves need not be aligned; then the rest comes through the page cache.
    fn cut_short(&self, done: usize, align: u64) -> io::Result<()> {
        let cut = || format!("a direct read was cut short, after {done} bytes");
        if (done as u64).is_multiple_of(align) {
            Ok(())
        } else {
            self.buffer(cut)
        }
    }

    fn buffer(&self, why: impl FnOnce() -> String) -> io::Result<()> {
        let flags = rustix::fs::fcntl_getfl(&self.file)?;
        rustix::fs::fcntl_setfl(&self.file, flags - OFlags::DIRECT)?;
        if !self.buffered.swap(true, Ordering::AcqRel) {
            let why = why();
            tracing::info!("{why}: reading on through the page cache");
            self.tally.through(why);
        }
        Ok(())
    }
}

/// Opens the file behind a descriptor once more, so that flags and read-ahead of the first are left alone.
pub(super) fn again(fd: BorrowedFd<'_>, flags: OFlags) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let opened = rustix::fs::open(
        path,
        OFlags::RDONLY | OFlags::CLOEXEC | flags,
        Mode::empty(),
    )?;
    Ok(File::from(opened))
}

/// What the file system says it wants; `None` if it says that it cannot.
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
