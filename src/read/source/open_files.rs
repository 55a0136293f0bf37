//! Files that stay open, and files that are closed between reads.
//!
//! A process may open a limited number of files (`RLIMIT_NOFILE`: 256 on some systems, 1024 on most), and a checkpoint may have
//! thousands. The first files, up to a quarter of the limit, stay open for as long as their source lives. Beyond them an eighth
//! of the limit is open at a time: the one that was not used for long is closed when another one is needed, and opened again
//! when it is read. A file that is in use is not closed.
//!
//! A file is closed only where the system says by what path it is found (Linux), and this path leads to it. When it is opened
//! again it must be the same file: device, number, length and time of its last change are compared, else another file was given
//! its name, and reading is an error ([`ErrorKind::Replaced`](crate::ErrorKind::Replaced)).

use std::fs::File;
use std::io;
use std::ops::Deref;
#[cfg(target_os = "linux")]
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

#[cfg(target_os = "linux")]
mod closable;
#[cfg(target_os = "linux")]
use closable::ClosableFile;

/// This many files stay open whatever the limit is.
#[cfg(target_os = "linux")]
const LEAST: usize = 16;

/// How many files are open that are not closed while they are needed.
static STAYING_OPEN: AtomicUsize = AtomicUsize::new(0);

/// A file that is open, or is opened when it is used.
pub(super) struct SourceFile(KeptFile);

enum KeptFile {
    Always(File, #[allow(dead_code)] DescriptorCount),
    #[cfg(target_os = "linux")]
    Closable(Arc<ClosableFile>),
}

/// An open file. It stays open while this lives.
pub(super) enum HeldFile<'f> {
    Borrowed(&'f File),
    #[cfg(target_os = "linux")]
    Shared(Arc<File>),
}

impl Deref for HeldFile<'_> {
    type Target = File;

    fn deref(&self) -> &File {
        match self {
            Self::Borrowed(file) => file,
            #[cfg(target_os = "linux")]
            Self::Shared(file) => file,
        }
    }
}

impl SourceFile {
    /// Keeps an open file. `prepare` is called with the file when it is opened again.
    pub(super) fn new(file: File, prepare: fn(&File)) -> Self {
        let count = DescriptorCount::new(1);
        #[cfg(target_os = "linux")]
        if is_beyond_share() {
            drop(count);
            return Self(KeptFile::Closable(ClosableFile::new(file, prepare)));
        }
        let _ = prepare;
        Self(KeptFile::Always(file, count))
    }

    /// The open file.
    ///
    /// # Errors
    /// The file was closed, and cannot be opened again or was replaced.
    pub(super) fn get(&self) -> io::Result<HeldFile<'_>> {
        match &self.0 {
            KeptFile::Always(file, _) => Ok(HeldFile::Borrowed(file)),
            #[cfg(target_os = "linux")]
            KeptFile::Closable(file) => file.get().map(HeldFile::Shared),
        }
    }
}

/// Descriptors that are open for as long as this lives.
#[derive(Debug)]
pub(crate) struct DescriptorCount(usize);

impl DescriptorCount {
    fn new(count: usize) -> Self {
        STAYING_OPEN.fetch_add(count, Relaxed);
        Self(count)
    }

    /// For a load that opens each of its files once more.
    ///
    /// # Errors
    /// More than half of the files that this process may open would be open then.
    #[cfg(target_os = "linux")]
    pub(crate) fn of_files(count: usize) -> io::Result<Self> {
        let (open, limit) = (STAYING_OPEN.load(Relaxed), limit());
        if count > LEAST && open.saturating_add(count) > limit / 2 {
            return Err(io::Error::other(format!(
                "{count} more open files are too many where {limit} are allowed"
            )));
        }
        Ok(Self::new(count))
    }
}

impl Drop for DescriptorCount {
    fn drop(&mut self) {
        STAYING_OPEN.fetch_sub(self.0, Relaxed);
    }
}

/// Whether more files stay open than their share of the limit.
#[cfg(target_os = "linux")]
fn is_beyond_share() -> bool {
    let open = STAYING_OPEN.load(Relaxed);
    // in this order: a system call more would cost a small file a tenth of its opening
    open > LEAST && open > limit() / 4
}

/// How many files this process may have open.
#[cfg(target_os = "linux")]
fn limit() -> usize {
    // each time, since programs change it; the call takes as long as two reads of the clock
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    })
}

/// Calls `open`, and again when files that are not in use were closed, if this process has no descriptor left.
pub(crate) fn with_descriptor<T>(open: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let opened = open();
    #[cfg(target_os = "linux")]
    if opened.as_ref().is_err_and(is_out_of_descriptors) && closable::close_unused() {
        return open();
    }
    opened
}

#[cfg(target_os = "linux")]
fn is_out_of_descriptors(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let all = [Errno::MFILE, Errno::NFILE].map(|errno| Some(errno.raw_os_error()));
    all.contains(&error.raw_os_error())
}
