//! How many bytes of a file are in the page cache, and whether memory has pages.
//!
//! `cachestat(2)` (Linux 6.5) answers for a file without mapping it. `mincore(2)` of a mapping that is never read
//! through serves older kernels, and overlayfs: the pages of an overlay's file belong to the file of the lower layer,
//! so `cachestat` counts none, whereas a mapping refers to the lower file.
//!
//! Since Linux 5.2 `mincore` reports every page as resident to a caller that neither owns the file nor may write it.
//! Such an answer is not passed on; the query fails with [`io::ErrorKind::PermissionDenied`].
//!
//! Outside of Linux each query of a file returns [`io::ErrorKind::Unsupported`] or `None`, and memory and ranges count as
//! not resident.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests;

#[cfg(target_os = "linux")]
pub use linux::{Cachestat, cachestat};

#[cfg(unix)]
use std::os::fd::AsFd as AsFile;
#[cfg(windows)]
use std::os::windows::io::AsHandle as AsFile;

use std::io;

/// The system call that measured a [`FileResidency`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "lowercase")
)]
pub enum ResidencyMethod {
    /// `cachestat(2)`: every field is known.
    Cachestat,
    /// `mincore(2)`: only [`FileResidency::cached`] is known, the other fields are 0.
    Mincore,
}

/// Page-cache state of a byte range of a file, in bytes of whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct FileResidency {
    /// Bytes in the page cache.
    pub cached: u64,
    /// Cached bytes that were modified and not yet written to the device.
    pub dirty: u64,
    /// Cached bytes that are being written to the device.
    pub writeback: u64,
    /// Bytes that were in the page cache and have been evicted since.
    pub evicted: u64,
    /// The system call that was used.
    pub method: ResidencyMethod,
}

impl FileResidency {
    /// Measures `len` bytes of a file from `start`. Reads nothing into memory.
    ///
    /// ```
    /// use anamnesis_os::residency::FileResidency;
    /// let file = std::fs::File::open(std::env::current_exe()?)?;
    /// if let Ok(residency) = FileResidency::of(&file, 0, file.metadata()?.len()) {
    ///     println!("{} bytes of this program are in the page cache", residency.cached);
    /// }
    /// # Ok::<_, std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::PermissionDenied`] for a file that the process neither owns nor may write,
    /// [`io::ErrorKind::Unsupported`] outside of Linux, and errors of the system calls.
    pub fn of(file: impl AsFile, start: u64, len: u64) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        return linux::measure(file.as_fd(), start, len);
        #[cfg(not(target_os = "linux"))]
        {
            let _ = (file, start, len);
            Err(io::ErrorKind::Unsupported.into())
        }
    }
}

/// Bytes of a range of a file that are in the page cache; `None` if the system does not report it.
pub fn resident_bytes(file: impl AsFile, start: u64, len: u64) -> Option<u64> {
    FileResidency::of(file, start, len)
        .ok()
        // whole pages are counted, the last of which may reach beyond `len`
        .map(|residency| residency.cached.min(len))
}

/// Whether a range of a file is probably in the page cache, from a sample of 64 KiB in every 4 MiB; `false` if the system
/// does not report it.
///
/// Counting every page of a large range takes as long as advising the kernel to read it, so callers that want to avoid
/// the advice use the sample.
pub fn is_probably_resident(file: impl AsFile, start: u64, len: u64) -> bool {
    #[cfg(target_os = "linux")]
    return linux::is_probably_resident(file.as_fd(), start, len);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (file, start, len);
        false
    }
}

/// Whether the page in the middle of this memory is resident, without touching it; `false` for empty memory and outside of
/// Linux.
pub fn is_memory_resident(memory: &[u8]) -> bool {
    #[cfg(target_os = "linux")]
    return linux::is_memory_resident(memory);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = memory;
        false
    }
}
