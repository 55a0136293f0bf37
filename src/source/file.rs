use std::fs::File;
use std::io;

use super::{Source, fill};

/// A file read with positioned reads; the file's own position is neither used nor moved (on Windows it moves).
///
/// Use it instead of a map for files that others may truncate meanwhile, and on network file systems.
pub struct FileSource {
    file: File,
    len: u64,
}

impl FileSource {
    /// Takes an open file of known length.
    ///
    /// # Errors
    /// If the file's length cannot be read, or it is not a regular file or block device.
    pub fn new(file: File) -> io::Result<Self> {
        let meta = file.metadata()?;
        if meta.is_dir() {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, "is a directory"));
        }
        let source = Self { len: meta.len(), file };
        // Headers are read in windows of our own; the system's read-ahead would bring 128 KiB more
        // for each place that is touched.
        source.advise(0, 0, Advice::Random);
        Ok(source)
    }
}

/// What the system is told of a file.
#[derive(Clone, Copy)]
enum Advice {
    Random,
    WillNeed,
    DontNeed,
}

impl FileSource {
    /// `posix_fadvise`; a `len` of 0 means to the end. Only a hint, so failure is of no account.
    fn advise(&self, start: u64, len: u64, advice: Advice) {
        #[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
        {
            let advice = match advice {
                Advice::Random => rustix::fs::Advice::Random,
                Advice::WillNeed => rustix::fs::Advice::WillNeed,
                Advice::DontNeed => rustix::fs::Advice::DontNeed,
            };
            let _ = rustix::fs::fadvise(&self.file, start, std::num::NonZeroU64::new(len), advice);
        }
        #[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
        let _ = (start, len, advice);
    }

    #[cfg(feature = "mmap")]
    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

impl Source for FileSource {
    fn len(&self) -> Option<u64> {
        Some(self.len)
    }

    fn read_at(&self, start: u64, buf: &mut [u8]) -> io::Result<usize> {
        let mut at = start;
        fill(buf, |buf| {
            #[cfg(unix)]
            let n = std::os::unix::fs::FileExt::read_at(&self.file, buf, at)?;
            #[cfg(windows)]
            let n = std::os::windows::fs::FileExt::seek_read(&self.file, buf, at)?;
            at += n as u64;
            Ok(n)
        })
    }

    fn will_need(&self, start: u64, len: u64) {
        self.advise(start, len.max(1), Advice::WillNeed);
    }

    fn passed(&self, start: u64, len: u64) {
        self.advise(start, len.max(1), Advice::DontNeed);
    }

    #[cfg(unix)]
    fn as_fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        Some(std::os::fd::AsFd::as_fd(&self.file))
    }
}
