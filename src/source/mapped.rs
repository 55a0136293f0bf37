#![allow(unsafe_code)] // the map itself; see CONVENTIONS.md

use std::fs::File;
use std::io;
use std::sync::OnceLock;

use super::{FileSource, Source};

/// A file that is mapped, read-only, when its bytes are first asked for as a slice.
///
/// Headers and streamed tensors are read with positioned reads: for a few kilobytes a map costs more
/// than it saves. The map is never populated, so a page is read when it is touched.
///
/// The file must not be truncated while it is mapped: the system answers a touch past the new end
/// with SIGBUS. For files that others write, read instead of mapping (`OpenOptions::map(false)`).
pub struct Mapped {
    file: FileSource,
    /// `None` inside if the file cannot be mapped (longer than the address space, a file system
    /// without maps): then it is read.
    map: OnceLock<Option<memmap2::Mmap>>,
}

impl Mapped {
    /// Takes an open file; maps nothing yet.
    ///
    /// # Errors
    /// As [`FileSource::new`].
    pub fn new(file: File) -> io::Result<Self> {
        Ok(Self {
            file: FileSource::new(file)?,
            map: OnceLock::new(),
        })
    }

    /// As [`FileSource::sized`].
    pub(crate) fn sized(file: File, len: u64, keep: bool) -> Self {
        Self {
            file: FileSource::sized(file, len, keep),
            map: OnceLock::new(),
        }
    }
}

impl Source for Mapped {
    fn len(&self) -> Option<u64> {
        self.file.len()
    }

    fn read_at(&self, start: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(start, buf)
    }

    fn in_memory(&self) -> Option<&[u8]> {
        self.file.in_memory()
    }

    fn mapped(&self) -> Option<&[u8]> {
        if let Some(whole) = self.in_memory() {
            return Some(whole);
        }
        let map = self.map.get_or_init(|| {
            // SAFETY: the map is private to this value, read-only, and lives as long as every slice
            // borrowed from it. That no one truncates or rewrites the file meanwhile cannot be proved
            // here; it is the documented condition of this type, as of every file map.
            let map = unsafe { memmap2::Mmap::map(self.file.file()) }.ok()?;
            // a file that changed its length since it was measured is read, which can fail
            (Some(map.len() as u64) == self.len()).then_some(map)
        });
        map.as_deref()
    }

    fn will_need(&self, start: u64, len: u64) {
        self.file.will_need(start, len);
    }

    fn passed(&self, start: u64, len: u64) {
        #[cfg(unix)]
        if let Some(Some(map)) = self.map.get()
            && let (Ok(start), Ok(len)) = (usize::try_from(start), usize::try_from(len))
            && start.checked_add(len).is_some_and(|end| end <= map.len())
        {
            // SAFETY: the map is read-only and shared with the file: pages that are given up are read again from the
            // file when they are touched, with the bytes that they had.
            let _ = unsafe {
                map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, len)
            };
        }
        self.file.passed(start, len);
    }

    #[cfg(unix)]
    fn as_fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.file.as_fd()
    }
}
