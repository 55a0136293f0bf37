//! The state of the page cache before a load.

use std::fs::File;
use std::os::fd::AsRawFd;

/// How much of the file is in the page cache before each load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageCache {
    /// All of it. A process loads three times.
    Warm,
    /// None of it. A process loads twice: into new memory, and into memory that it has.
    Cold,
    /// None of it. A process loads once, and the time begins with the process.
    New,
}

impl PageCache {
    pub fn name(self) -> &'static str {
        match self {
            Self::Warm => "warm",
            Self::Cold => "cold",
            Self::New => "new",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Warm, Self::Cold, Self::New]
            .into_iter()
            .find(|cache| cache.name() == name)
    }

    pub fn loads(self) -> usize {
        match self {
            Self::Warm => 3,
            Self::Cold => 2,
            Self::New => 1,
        }
    }

    /// Reads `file` into the page cache, or evicts it.
    pub fn prepare(self, file: &str) {
        let mut from = File::open(file).expect("the file can be opened");
        let advise = |advice| {
            // SAFETY: the call takes an open descriptor and accesses no memory of this process
            unsafe { libc::posix_fadvise(from.as_raw_fd(), 0, 0, advice) };
        };
        match self {
            // read-ahead of the whole file keeps the device busier than the copy alone
            Self::Warm => {
                advise(libc::POSIX_FADV_WILLNEED);
                std::io::copy(&mut from, &mut std::io::sink()).expect("the file can be read");
            }
            // only clean pages can be evicted, hence the sync
            Self::Cold | Self::New => {
                from.sync_all().expect("the file can be synced");
                advise(libc::POSIX_FADV_DONTNEED);
            }
        }
    }
}
