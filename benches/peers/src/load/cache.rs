//! What the page cache has of the file that is loaded.

use std::fs::File;
use std::os::fd::AsRawFd;

/// Before each load of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// All of it; loaded three times.
    Warm,
    /// Nothing of it; loaded twice, first into new memory.
    Cold,
}

impl Cache {
    pub fn name(self) -> &'static str {
        match self {
            Self::Warm => "warm",
            Self::Cold => "cold",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        [Self::Warm, Self::Cold]
            .into_iter()
            .find(|cache| cache.name() == name)
    }

    pub fn loads(self) -> usize {
        match self {
            Self::Warm => 3,
            Self::Cold => 2,
        }
    }

    /// Makes it so.
    pub fn prepare(self, file: &str) {
        let mut from = File::open(file).expect("the file");
        let advise = |advice| {
            // SAFETY: no memory is involved.
            unsafe { libc::posix_fadvise(from.as_raw_fd(), 0, 0, advice) };
        };
        match self {
            // asked for first, so that the device is busy
            Self::Warm => {
                advise(libc::POSIX_FADV_WILLNEED);
                std::io::copy(&mut from, &mut std::io::sink()).expect("it can be read");
            }
            // pages that nobody maps and that are written: all of a benchmark's file
            Self::Cold => {
                from.sync_all().expect("it can be written");
                advise(libc::POSIX_FADV_DONTNEED);
            }
        }
    }
}
