use std::fs::File;
use std::io;

use super::{Source, copy_at, fill};

/// A file read with positioned reads; the file's own position is neither used nor moved (on Windows it moves).
///
/// Use it instead of a map for files that others may truncate meanwhile, and on network file systems.
pub struct FileSource {
    file: File,
    len: u64,
    /// All of a small file: one read, where header and tensors would take one each.
    whole: Option<Box<[u8]>>,
}

impl FileSource {
    /// Takes an open file of known length.
    ///
    /// # Errors
    /// If the file's length cannot be read, or it is not a regular file or block device.
    pub fn new(file: File) -> io::Result<Self> {
        let meta = file.metadata()?;
        if meta.is_dir() {
            return Err(io::Error::new(
                io::ErrorKind::IsADirectory,
                "is a directory",
            ));
        }
        Ok(Self::sized(file, meta.len(), false))
    }

    /// Takes an open file whose length was just read; reads it whole if it is to be kept.
    pub(crate) fn sized(file: File, len: u64, keep: bool) -> Self {
        let mut source = Self {
            len,
            file,
            whole: None,
        };
        if keep {
            let mut whole = vec![0; usize::try_from(len).unwrap_or(0)];
            #[cfg(target_os = "linux")]
            let here = super::soon::read(&source.file, &mut whole);
            #[cfg(not(target_os = "linux"))]
            let here = 0;
            // what cannot be read now says why when it is asked for
            let rest = source.read_at(here as u64, &mut whole[here..]);
            source.whole = rest
                .is_ok_and(|n| here + n == whole.len())
                .then(|| whole.into());
        }
        // Headers are read in windows of our own; the system's read-ahead would bring 128 KiB more
        // for each place that is touched. A file that is no longer may as well come whole.
        if len > READ_AHEAD {
            source.advise(0, 0, Advice::Random);
        }
        source
    }
}

/// Bytes that take hardly longer to be read than a page.
pub(crate) const SMALL: u64 = 16 << 10;
/// What Linux reads ahead if it is told nothing.
const READ_AHEAD: u64 = 128 << 10;

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

    fn in_memory(&self) -> Option<&[u8]> {
        self.whole.as_deref()
    }

    fn read_at(&self, start: u64, buf: &mut [u8]) -> io::Result<usize> {
        if let Some(whole) = &self.whole {
            return Ok(copy_at(whole, start, buf));
        }
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
        if self.whole.is_some() {
            return;
        }
        #[cfg(target_os = "linux")]
        if super::resident::seems_resident(std::os::fd::AsFd::as_fd(&self.file), start, len) {
            return;
        }
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
