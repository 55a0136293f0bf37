//! Choosing a loader from the properties of the files, with a reason.

use std::fmt;
use std::sync::Arc;

use super::storage::{StorageInfo, StorageKind};
use super::{Loader, MmapLoader, PreadLoader, RemoteLoader};
use crate::read::catalog::ByteRange;
use crate::read::checkpoint::Checkpoint;
use crate::read::source::any_concurrent;

/// A loader, and the reason why it was chosen.
#[derive(Clone, Debug)]
pub struct LoaderChoice {
    /// The loader.
    pub loader: Arc<dyn Loader>,
    /// The reason, as a phrase for people.
    pub reason: String,
}

/// From this resident share on, a file counts as warm.
const WARM: f64 = 0.9;
/// Below this resident share, direct I/O is faster than the page cache, though it reads resident pages again
/// (experiment 24 in `docs/perf-experiments.md` has the rates of both).
const COLD: f64 = 0.5;
/// Below this many bytes, setting up a ring and opening the files again costs more than it saves.
const SMALL: u64 = 8 << 20;
/// Up to this many bytes, querying the storage of files takes longer than the best loader saves (experiment 43).
const SMALL_FILE: u64 = 256 << 10;

/// Like [`choose`], for the files that these ranges are in. The storage is not queried where that takes longer than the best
/// loader saves: for a source in memory, for a small file, and for a few rows of large ones.
pub(super) fn choose_for(
    checkpoint: &Checkpoint,
    reads: &[ByteRange],
    borrow_mapped: bool,
) -> LoaderChoice {
    let sources = checkpoint.sources();
    let is_small = match sources {
        // bytes in memory are borrowed or copied, whatever loader is chosen; the map loader does it without a thread
        [only] if only.in_memory().is_some() => {
            return LoaderChoice {
                loader: Arc::new(MmapLoader::new()),
                reason: "the bytes are in memory".to_owned(),
            };
        }
        [only] if only.len().is_some_and(|len| len <= SMALL_FILE) => true,
        _ => {
            let bytes = reads.iter().map(|read| read.len);
            let is_file = |read: &ByteRange| sources[read.file as usize].len().is_some();
            // a tensor that is inflated or gathered has no read in the list
            !reads.is_empty()
                && bytes.fold(0, u64::saturating_add) <= SMALL_FILE
                && reads.iter().all(is_file)
                && !any_concurrent(sources)
        }
    };
    if is_small {
        return LoaderChoice {
            loader: Arc::new(PreadLoader::new().threads(1)),
            reason: "small: read at once".to_owned(),
        };
    }
    choose(&StorageInfo::of_reads(checkpoint, reads), borrow_mapped)
}

/// Picks a loader. `borrow_mapped`: the caller accepts bytes that are borrowed from the mapped file.
///
/// | files | loader |
/// |---|---|
/// | in memory, borrowed | [`MmapLoader`] |
/// | at URLs | [`RemoteLoader`] |
/// | network file system | [`PreadLoader`], never a mapping |
/// | warm, borrowed | [`MmapLoader`] |
/// | warm, copied | [`PreadLoader`] |
/// | cold and small | [`PreadLoader`], one thread |
/// | cold | direct I/O: [`UringLoader`](crate::load::UringLoader), or [`PreadLoader`] without io_uring |
/// | between | [`PreadLoader`] |
pub fn choose(info: &StorageInfo, borrow_mapped: bool) -> LoaderChoice {
    let percent = info
        .resident
        .map(|share| format!("{:.0} % in the page cache", share * 100.0));
    let residency = percent.unwrap_or_else(|| "residency unknown".to_owned());
    let pick = |loader: Arc<dyn Loader>, reason: String| LoaderChoice { loader, reason };
    // a file in memory is warm even where residency is not reported
    let warm = info.resident.is_some_and(|share| share >= WARM)
        || matches!(info.kind, StorageKind::Memory(_));
    match info.kind {
        StorageKind::NotAFile if borrow_mapped && info.is_borrowable => pick(
            Arc::new(MmapLoader::new()),
            "the bytes are in memory".into(),
        ),
        StorageKind::NotAFile => pick(
            Arc::new(PreadLoader::new().threads(1)),
            "not a file: read in order".into(),
        ),
        StorageKind::Remote => pick(
            Arc::new(RemoteLoader::new()),
            "at URLs: many requests at a time".into(),
        ),
        // never a mapping: a fault waits for one page of the server at a time, and a lost server raises SIGBUS
        StorageKind::Network(name) => pick(
            Arc::new(PreadLoader::new().threads(8)),
            format!("{name}: parallel reads; a mapping would wait page by page"),
        ),
        _ if warm && borrow_mapped && info.is_borrowable => pick(
            Arc::new(MmapLoader::new()),
            format!("{residency}, and no copy is needed"),
        ),
        _ if warm => pick(
            Arc::new(PreadLoader::new()),
            format!("{residency}, to be copied into the pool"),
        ),
        _ if info.bytes < SMALL => pick(
            Arc::new(PreadLoader::new().threads(1)),
            format!("{residency}, and small"),
        ),
        _ if info.resident.is_some_and(|share| share < COLD) => pick(
            direct_loader(),
            format!("{residency}: direct I/O, straight into memory"),
        ),
        _ => pick(
            Arc::new(PreadLoader::new()),
            format!("{residency}: through the page cache"),
        ),
    }
}

fn direct_loader() -> Arc<dyn Loader> {
    #[cfg(all(target_os = "linux", feature = "uring"))]
    return Arc::new(super::UringLoader::new().direct(true));
    #[cfg(not(all(target_os = "linux", feature = "uring")))]
    return Arc::new(PreadLoader::new().direct(true));
}

impl fmt::Display for LoaderChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.loader.name(), self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(kind: StorageKind, resident: Option<f64>, borrow: bool) -> &'static str {
        choose(
            &StorageInfo {
                bytes: 1 << 30,
                resident,
                kind,
                is_borrowable: true,
            },
            borrow,
        )
        .loader
        .name()
    }

    #[test]
    fn loader_is_chosen_by_storage_residency_and_borrowing() {
        assert_eq!(chosen(StorageKind::NotAFile, None, true), "mmap");
        assert_eq!(chosen(StorageKind::NotAFile, None, false), "pread");
        assert_eq!(chosen(StorageKind::Remote, None, true), "remote");
        assert_eq!(chosen(StorageKind::Local("ext4"), Some(1.0), true), "mmap");
        assert_eq!(
            chosen(StorageKind::Local("ext4"), Some(1.0), false),
            "pread"
        );
        assert_eq!(chosen(StorageKind::Local("ext4"), Some(0.7), true), "pread");
        assert_eq!(chosen(StorageKind::Local("ext4"), None, true), "pread");
        assert_eq!(chosen(StorageKind::Memory("tmpfs"), None, true), "mmap");
        assert_eq!(
            chosen(StorageKind::Memory("tmpfs"), Some(0.0), false),
            "pread"
        );
        for borrow in [false, true] {
            assert!(chosen(StorageKind::Local("xfs"), Some(0.1), borrow).ends_with("direct"));
            for resident in [None, Some(0.0), Some(1.0)] {
                assert_eq!(
                    chosen(StorageKind::Network("nfs"), resident, borrow),
                    "pread"
                );
            }
        }
    }
}
