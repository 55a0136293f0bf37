//! How much of a file the page cache holds.

use std::os::fd::AsFd;

use serde::Serialize;

use crate::cache::sys;
use crate::error::{Error, ErrorKind, Result};

/// Who was asked for a [`Residency`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Counted {
    /// `cachestat(2)`, Linux 6.5: everything is known.
    Cachestat,
    /// `mincore(2)`, before that and on overlayfs: only [`Residency::cached`] is known, the others are 0.
    Mincore,
}

/// What the page cache holds of a range of a file, in bytes of whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Residency {
    /// In the page cache.
    pub cached: u64,
    /// Of these, changed and not yet on the device.
    pub dirty: u64,
    /// Of these, on the way to the device.
    pub writeback: u64,
    /// Once in the page cache and evicted since.
    pub evicted: u64,
    /// Who said so.
    pub counted: Counted,
}

/// Bytes that are mapped at once for `mincore`.
const WINDOW: u64 = 256 << 20;

impl Residency {
    /// Of `len` bytes of a file from `start`, by `cachestat`, or `mincore` where the kernel lacks it and on overlayfs. Brings
    /// nothing into memory.
    ///
    /// ```
    /// use anamnesis_ppc::cache::Residency;
    /// let file = std::fs::File::open(std::env::current_exe()?)?;
    /// let residency = Residency::of(&file, 0, file.metadata()?.len())?;
    /// println!("{} bytes of this program are in memory", residency.cached);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] for a file that belongs to somebody else and cannot be written: the kernel does not
    /// say then. The system's errors.
    pub fn of(file: impl AsFd, start: u64, len: u64) -> Result<Self> {
        if len == 0 {
            return Ok(Self::new(sys::Stat::default(), Counted::Cachestat));
        }
        match sys::cachestat(file.as_fd(), start, len) {
            // what an overlay's file holds is held by the file below, which its maps show
            Ok(stat) if stat.cache == 0 && is_overlay(&file) => Self::by_mincore(file, start, len),
            Ok(stat) => Ok(Self::new(stat, Counted::Cachestat)),
            Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
                Self::by_mincore(file, start, len)
            }
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => Err(not_ours()),
            Err(error) => Err(error.into()),
        }
    }

    fn by_mincore(file: impl AsFd, start: u64, len: u64) -> Result<Self> {
        let stat = rustix::fs::fstat(&file)?;
        let own = rustix::process::geteuid();
        if !own.is_root() && own.as_raw() != stat.st_uid {
            return Err(not_ours());
        }
        let page = rustix::param::page_size() as u64;
        let end = start
            .saturating_add(len)
            .min(u64::try_from(stat.st_size).unwrap_or(0));
        let (mut at, mut cache) = (start / page * page, 0);
        while at < end {
            let window = (end - at).min(WINDOW);
            cache += sys::mincore(
                file.as_fd(),
                at,
                usize::try_from(window).map_err(std::io::Error::other)?,
            )?;
            at += window;
        }
        Ok(Self::new(
            sys::Stat {
                cache,
                ..sys::Stat::default()
            },
            Counted::Mincore,
        ))
    }

    fn new(stat: sys::Stat, counted: Counted) -> Self {
        let bytes = |pages: u64| pages.saturating_mul(rustix::param::page_size() as u64);
        Self {
            cached: bytes(stat.cache),
            dirty: bytes(stat.dirty),
            writeback: bytes(stat.writeback),
            evicted: bytes(stat.evicted),
            counted,
        }
    }
}

fn is_overlay(file: impl AsFd) -> bool {
    const OVERLAYFS: i64 = 0x794c_7630;
    rustix::fs::fstatfs(file).is_ok_and(|stat| stat.f_type == OVERLAYFS)
}

fn not_ours() -> Error {
    let what = "the kernel tells what is in memory of a file only to its owner and to who may write it; run as one of them";
    Error::new(ErrorKind::Unavailable(what.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_count_the_same() {
        let file = tempfile::tempfile().unwrap();
        let page = rustix::param::page_size() as u64;
        rustix::io::pwrite(&file, &vec![1; 65_536], page * 16).unwrap(); // a hole before it
        let counts = |start, len| {
            (
                Residency::of(&file, start, len).unwrap(),
                Residency::by_mincore(&file, start, len).unwrap(),
            )
        };
        for (start, len) in [
            (0, page * 16 + 65_536),
            (page * 16, 65_536),
            (page * 17 + 1, 1),
            (0, u64::MAX),
        ] {
            let (of, by_mincore) = counts(start, len);
            assert_eq!(of.cached, by_mincore.cached, "{start} {len}");
        }
        assert_eq!(counts(page * 16, 65_536).0.cached, 65_536);
        assert_eq!(Residency::of(&file, 0, 0).unwrap().cached, 0);
    }
}
