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
        // Headers are read in windows of our own; the system's read-ahead would bring 128 KiB more
        // for each place that is touched.
        #[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random);
        Ok(Self { len: meta.len(), file })
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

    #[cfg(unix)]
    fn as_fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        Some(std::os::fd::AsFd::as_fd(&self.file))
    }
}
