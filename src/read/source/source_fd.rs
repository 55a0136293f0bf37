//! The descriptor of a source.

#[cfg(target_os = "linux")]
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
#[cfg(target_os = "linux")]
use std::sync::Arc;

use super::open_files::HeldFile;

/// The descriptor of a source's file, which stays open while this lives.
///
/// ```
/// use std::os::fd::AsFd;
/// use anamnesis::source::{FileSource, Source, SourceFd};
///
/// let file = std::fs::File::open("fixtures/gguf/plain_v3.gguf")?;
/// let of_file = SourceFd::from(file.as_fd());
/// let source = FileSource::new(file.try_clone()?)?;
/// assert!(source.as_fd().is_some());
/// # drop(of_file);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct SourceFd<'s>(Descriptor<'s>);

#[derive(Clone, Debug)]
enum Descriptor<'s> {
    Borrowed(BorrowedFd<'s>),
    #[cfg(target_os = "linux")]
    Shared(Arc<File>),
}

impl<'s> From<BorrowedFd<'s>> for SourceFd<'s> {
    fn from(fd: BorrowedFd<'s>) -> Self {
        Self(Descriptor::Borrowed(fd))
    }
}

impl<'s> From<HeldFile<'s>> for SourceFd<'s> {
    fn from(file: HeldFile<'s>) -> Self {
        Self(match file {
            HeldFile::Borrowed(file) => Descriptor::Borrowed(file.as_fd()),
            #[cfg(target_os = "linux")]
            HeldFile::Shared(file) => Descriptor::Shared(file),
        })
    }
}

impl AsFd for SourceFd<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Descriptor::Borrowed(fd) => *fd,
            #[cfg(target_os = "linux")]
            Descriptor::Shared(file) => file.as_fd(),
        }
    }
}
