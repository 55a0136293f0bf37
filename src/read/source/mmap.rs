#![allow(unsafe_code)] // mapping a file; see the register in CONVENTIONS.md

//! Mapped files.

use std::fs::File;
use std::io;

use zeropool::DividedBuffer;

use super::{FileSource, Source};
use crate::base::sync::OnceLock;

/// A file that is read with positioned reads and mapped, read-only, when a tensor is first borrowed from it.
///
/// Headers and streamed tensors are read, not mapped: for a few kilobytes a map costs more than it saves. The map is not
/// populated, so a page is read from the device when it is first touched.
///
/// The file must not be truncated while it is mapped: the system answers a touch behind the new end with SIGBUS, which
/// ends the process. For files that other programs write, use [`FileSource`] (`OpenOptions::mmap(false)`).
pub struct MmapSource {
    file: FileSource,
    /// Empty until the map is first used. `None` inside if the file cannot be mapped (it is larger than the address
    /// space, or the file system has no maps): tensors are then read.
    map: OnceLock<Option<memmap2::Mmap>>,
    /// Whether private maps are offered.
    private: bool,
}

impl MmapSource {
    /// A source for an open file. The file is not mapped yet.
    ///
    /// # Errors
    /// The errors of [`FileSource::new`].
    pub fn new(file: File) -> io::Result<Self> {
        Ok(Self {
            file: FileSource::new(file)?,
            map: OnceLock::new(),
            private: false,
        })
    }

    /// Whether [`map_private`](Source::map_private) offers private maps. Default off.
    #[must_use]
    pub fn private(mut self, private: bool) -> Self {
        self.private = private;
        self
    }

    /// Like [`FileSource::with_len`].
    pub(crate) fn with_len(file: File, len: u64, keep: bool) -> Self {
        Self {
            file: FileSource::with_len(file, len, keep),
            map: OnceLock::new(),
            private: false,
        }
    }
}

impl Source for MmapSource {
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
        // a small file was read whole when it was opened, and touching a copy cannot raise SIGBUS
        if let Some(content) = self.in_memory() {
            return Some(content);
        }
        let map = self.map.get_or_init(|| {
            // SAFETY: the map is private to this value, read-only, and lives as long as every slice
            // borrowed from it. That no process truncates or rewrites the file meanwhile cannot be proved
            // here; it is the documented condition of this type, as of every file map.
            let map = unsafe { memmap2::Mmap::map(&*self.file.file().ok()?) }.ok()?;
            // The header was checked against the length at open. A file of another length is read instead, because a
            // read behind the end is an error and a touch behind the end is a signal.
            (Some(map.len() as u64) == self.len()).then_some(map)
        });
        map.as_deref()
    }

    fn map_private(&self) -> Option<DividedBuffer> {
        // a small file was read whole, and copying it costs less than mapping it again
        if !self.private || self.in_memory().is_some() {
            return None;
        }
        // pages that are not written to need no swap space, and most of a checkpoint's are not
        let mut options = memmap2::MmapOptions::new();
        options.no_reserve_swap();
        // SAFETY: as in `mapped`. Writes go to pages of this process alone.
        let map = unsafe { options.map_copy(&*self.file.file().ok()?) }.ok()?;
        (Some(map.len() as u64) == self.len()).then(|| DividedBuffer::of_owner(map))
    }

    fn will_need(&self, start: u64, len: u64) {
        self.file.will_need(start, len);
    }

    fn dont_need(&self, start: u64, len: u64) {
        // The kernel does not drop pages of the page cache that a process has mapped, so they are unmapped first.
        #[cfg(unix)]
        if let Some(Some(map)) = self.map.get()
            && let (Ok(start), Ok(len)) = (usize::try_from(start), usize::try_from(len))
            && start.checked_add(len).is_some_and(|end| end <= map.len())
        {
            // SAFETY: the map is read-only and shared with the file: pages that are dropped are read again from the
            // file when they are touched, with the bytes that they had.
            let _ = unsafe {
                map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, len)
            };
        }
        self.file.dont_need(start, len);
    }

    #[cfg(unix)]
    fn as_fd(&self) -> Option<super::SourceFd<'_>> {
        self.file.as_fd()
    }
}
