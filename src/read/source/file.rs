//! Files read with positioned reads.

use std::fs::File;
use std::io;

#[cfg(feature = "mmap")]
use super::open_files::HeldFile;
use super::open_files::SourceFile;
use super::{Source, copy_at, fill};

/// A file read with positioned reads (`pread`).
///
/// The file's own position is neither used nor moved; on Windows it moves. Use this source instead of
/// [`MmapSource`](super::MmapSource) for files that other programs may truncate, and on network file systems: a read of a
/// missing byte is an error, a touch of a missing page ends the process.
pub struct FileSource {
    file: SourceFile,
    len: u64,
    /// The content of a file of at most [`SMALL`] bytes. One read replaces one for the header and one per tensor.
    content: Option<Box<[u8]>>,
}

impl FileSource {
    /// A source for an open file, whose length is read once, here.
    ///
    /// # Errors
    /// If the metadata cannot be read, or if `file` is a directory.
    pub fn new(file: File) -> io::Result<Self> {
        let meta = file.metadata()?;
        if meta.is_dir() {
            return Err(io::Error::new(
                io::ErrorKind::IsADirectory,
                "is a directory",
            ));
        }
        Ok(Self::with_len(file, meta.len(), false))
    }

    /// A source for an open file of a known length. `keep`: read all of it now and keep it in memory.
    pub(crate) fn with_len(file: File, len: u64, keep: bool) -> Self {
        let mut kept = None;
        if keep {
            // one read at opening replaces a read per header window: 7.6 to 6.0 µs for a load of a file of 704 bytes
            // (experiment 43)
            let mut content = vec![0; usize::try_from(len).unwrap_or(0)];
            #[cfg(target_os = "linux")]
            let polled = super::nowait::read(&file, &mut content);
            #[cfg(not(target_os = "linux"))]
            let polled = 0;
            // An error is not reported here: the content is then not kept, and the next read returns the error.
            let rest = read_at(&file, polled as u64, &mut content[polled..]);
            kept = rest
                .is_ok_and(|n| polled + n == content.len())
                .then(|| content.into());
        }
        // The cursor reads headers in windows of its own. Without this advice, the kernel would read another 128 KiB
        // around each of them. A file that is shorter than that is read with one request either way.
        let prepare: fn(&File) = match len > KERNEL_READ_AHEAD {
            true => |file| advise(file, 0, 0, FileAdvice::Random),
            false => |_| {},
        };
        prepare(&file);
        Self {
            len,
            file: SourceFile::new(file, prepare),
            content: kept,
        }
    }
}

/// Files up to this length are read whole when they are opened: reading 16 KiB takes hardly longer than reading a page
/// (experiments 43 and 48).
pub(crate) const SMALL: u64 = 16 << 10;

/// The default read-ahead of Linux (`read_ahead_kb`).
const KERNEL_READ_AHEAD: u64 = 128 << 10;

#[derive(Clone, Copy)]
enum FileAdvice {
    Random,
    WillNeed,
    DontNeed,
}

/// `posix_fadvise`; a `len` of 0 means to the end. The result is ignored because advice is only a hint.
fn advise(file: &File, start: u64, len: u64, advice: FileAdvice) {
    #[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
    {
        let advice = match advice {
            FileAdvice::Random => rustix::fs::Advice::Random,
            FileAdvice::WillNeed => rustix::fs::Advice::WillNeed,
            FileAdvice::DontNeed => rustix::fs::Advice::DontNeed,
        };
        let _ = rustix::fs::fadvise(file, start, std::num::NonZeroU64::new(len), advice);
    }
    #[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
    let _ = (file, start, len, advice);
}

/// Reads until `buf` is full or the file ends.
fn read_at(file: &File, start: u64, buf: &mut [u8]) -> io::Result<usize> {
    let mut at = start;
    fill(buf, |buf| {
        #[cfg(unix)]
        let n = std::os::unix::fs::FileExt::read_at(file, buf, at)?;
        #[cfg(windows)]
        let n = std::os::windows::fs::FileExt::seek_read(file, buf, at)?;
        at += n as u64;
        Ok(n)
    })
}

impl FileSource {
    /// The file, open.
    #[cfg(feature = "mmap")]
    pub(super) fn file(&self) -> io::Result<HeldFile<'_>> {
        self.file.get()
    }
}

impl Source for FileSource {
    fn len(&self) -> Option<u64> {
        Some(self.len)
    }

    fn in_memory(&self) -> Option<&[u8]> {
        self.content.as_deref()
    }

    fn read_at(&self, start: u64, buf: &mut [u8]) -> io::Result<usize> {
        if let Some(content) = &self.content {
            return Ok(copy_at(content, start, buf));
        }
        read_at(&*self.file.get()?, start, buf)
    }

    fn will_need(&self, start: u64, len: u64) {
        if self.content.is_some() {
            return;
        }
        // a hint: that the file cannot be opened again is for the read to say
        let Ok(file) = self.file.get() else {
            return;
        };
        // `POSIX_FADV_WILLNEED` of resident pages still costs a lookup of each page; a sample is cheaper.
        #[cfg(target_os = "linux")]
        if anamnesis_os::residency::is_probably_resident(
            std::os::fd::AsFd::as_fd(&*file),
            start,
            len,
        ) {
            return;
        }
        // a length of 0 would mean the whole rest of the file
        advise(&file, start, len.max(1), FileAdvice::WillNeed);
    }

    fn dont_need(&self, start: u64, len: u64) {
        if let Ok(file) = self.file.get() {
            advise(&file, start, len.max(1), FileAdvice::DontNeed);
        }
    }

    #[cfg(unix)]
    fn as_fd(&self) -> Option<super::SourceFd<'_>> {
        self.file.get().ok().map(Into::into)
    }
}
