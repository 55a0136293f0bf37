#![allow(unsafe_code)] // the map itself; see CONVENTIONS.md

use std::fs::File;
use std::io;

use super::{Source, copy_at};

/// A file mapped read-only. Never populated: a page is read when it is touched.
///
/// The file must not be truncated while it is mapped: the system answers a touch past the new end
/// with SIGBUS. For files that others write, read instead of mapping (`OpenOptions::map(false)`).
pub struct Mapped {
    map: memmap2::Mmap,
    file: File,
}

impl Mapped {
    /// Maps the whole file.
    ///
    /// # Errors
    /// If the file is not mappable (a pipe, a directory, longer than the address space).
    pub fn new(file: File) -> io::Result<Self> {
        // SAFETY: the map is private to this value, read-only, and lives as long as every slice
        // borrowed from it. That no one truncates or rewrites the file meanwhile cannot be proved
        // here; it is the documented condition of this type, as of every file map.
        let map = unsafe { memmap2::Mmap::map(&file)? };
        // Header bytes are announced by `will_need`; without this advice each touch of a cold file
        // would read 128 KiB around it.
        #[cfg(unix)]
        let _ = map.advise(memmap2::Advice::Random);
        Ok(Self { map, file })
    }
}

impl Source for Mapped {
    fn len(&self) -> Option<u64> {
        Some(self.map.len() as u64)
    }

    fn read_at(&self, start: u64, buf: &mut [u8]) -> io::Result<usize> {
        Ok(copy_at(&self.map, start, buf))
    }

    fn mapped(&self) -> Option<&[u8]> {
        Some(&self.map)
    }

    fn will_need(&self, start: u64, len: u64) {
        #[cfg(unix)]
        {
            let end = start.saturating_add(len).min(self.map.len() as u64);
            if let (Ok(from), Ok(to)) = (usize::try_from(start), usize::try_from(end))
                && from < to
            {
                let _ = self.map.advise_range(memmap2::Advice::WillNeed, from, to - from);
            }
        }
        #[cfg(not(unix))]
        let _ = (start, len);
    }

    #[cfg(unix)]
    fn as_fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        Some(std::os::fd::AsFd::as_fd(&self.file))
    }
}
