//! Eviction of file ranges from the page cache.

use std::collections::VecDeque;
use std::fs::File;
use std::num::NonZeroU64;
use std::ops::{AddAssign, Range};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Advice, fadvise};
use serde::Serialize;

use crate::cache::FileResidency;
use crate::cache::ResidencyMethod;
use crate::cache::descriptor_cache::DescriptorCache;
use crate::cache::mappings::{MappingProcesses, MappingScan};
use crate::cache::pieces::{ListCursor, PieceLimits};
use crate::error::Result;
use crate::{Inode, Namespace, RangeList};

/// Largest folio of the page cache. A folio lies at a multiple of its size in the file, and is evicted as a whole or
/// not at all.
const FOLIO: u64 = 2 << 20;
/// Bytes of one `POSIX_FADV_DONTNEED`. The number of calls does not matter (EXPERIMENTS.md, "Evicting"), but a folio
/// that crosses the end of a call stays; so this is a multiple of [`FOLIO`].
const BATCH: u64 = 64 << 20;
/// File descriptors that are kept open.
const DESCRIPTORS: usize = 64;
/// Number of remembered ranges whose eviction was requested.
const REMEMBERED: usize = 256;
/// Delay before the second attempt. It lets read-ahead in progress finish, whose pages are locked and cannot be
/// evicted.
const SETTLE: Duration = Duration::from_millis(2);

/// Result of an eviction in bytes. All but `requested` count whole pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Evicted {
    /// Bytes of the list that lie in files.
    pub requested: u64,
    /// Requested bytes that were cached and are evicted.
    pub freed: u64,
    /// Requested bytes that are still cached, because a process uses them or because they share a folio with bytes
    /// that were not requested.
    pub remaining: u64,
    /// Remaining bytes that a process has mapped, as far as processes were scanned.
    pub mapped: u64,
    /// Remaining bytes that are modified and not written to the device. They are never evicted.
    pub dirty: u64,
    /// Files that changed since the scan, or could not be read. They are skipped.
    pub stale: u64,
}

impl AddAssign for Evicted {
    fn add_assign(&mut self, other: Self) {
        let Self {
            requested,
            freed,
            remaining,
            mapped,
            dirty,
            stale,
        } = other;
        self.requested += requested;
        self.freed += freed;
        self.remaining += remaining;
        self.mapped += mapped;
        self.dirty += dirty;
        self.stale += stale;
    }
}

/// Evicts ranges of one namespace's files from the page cache, and verifies the result.
///
/// The kernel evicts a large folio only as a whole. A policy that evicts behind a reader requests many small ranges,
/// none of which covers a folio. So each range is extended backwards to the start of the folio in which it begins, if
/// the bytes before it were requested earlier. Bytes that were never requested are not evicted.
///
/// ```
/// use std::sync::Arc;
/// use anamnesis_ppc::{FileEntry, Namespace, cache::Evictor};
///
/// # let dir = tempfile::tempdir()?;
/// # std::fs::write(dir.path().join("model.safetensors"), [0; 10_000])?;
/// let namespace = Arc::new(Namespace::scan(dir.path())?);
/// let ranges = namespace.entries().iter().map(FileEntry::whole).collect::<Vec<_>>().into();
/// let evicted = Evictor::new(&namespace).evict(&ranges);
/// println!("{} of {} bytes evicted, {} are not written yet", evicted.freed, evicted.requested, evicted.dirty);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Evictor {
    files: DescriptorCache,
    processes: MappingProcesses,
    scan: MappingScan,
    requested: VecDeque<(Inode, Range<u64>)>,
}

impl Evictor {
    /// An evictor for the files of this snapshot of a namespace, which any process may have mapped.
    pub fn new(namespace: &Arc<Namespace>) -> Self {
        Self {
            files: DescriptorCache::new(namespace, DESCRIPTORS),
            processes: MappingProcesses::default(),
            scan: MappingScan::default(),
            requested: VecDeque::new(),
        }
    }

    /// Sets which processes are scanned for mappings of the files. Fewer processes are faster to scan. All processes
    /// are scanned at most every half second, for at most 0.1 s of processor time.
    #[must_use]
    pub fn mapping_processes(mut self, processes: MappingProcesses) -> Self {
        self.processes = processes;
        self.scan = MappingScan::default();
        self
    }

    /// Forgets the ranges requested so far. Called when the files are about to be read again, so that no range is
    /// extended into bytes that are needed again.
    pub fn forget(&mut self) {
        self.requested.clear();
    }

    /// Evicts the clean pages of these ranges that no process uses. Ranges end at the end of their file. A file that
    /// is not in the namespace, or was replaced, is skipped and counted in [`Evicted::stale`].
    ///
    /// Mapped pages are first unmapped from their processes. This needs `CAP_SYS_NICE` and the permission to trace
    /// them, and only works for pages that a single process has mapped.
    pub fn evict(&mut self, ranges: &RangeList) -> Evicted {
        let mut evicted = Evicted::default();
        let mut unreadable: Vec<Arc<Path>> = Vec::new();
        let mut cursor = ListCursor::default();
        loop {
            let namespace = Arc::clone(self.files.namespace());
            let len_of = |path: &Arc<Path>| {
                let known = if unreadable.contains(path) {
                    None
                } else {
                    Some(namespace.get(path))
                };
                known.map(|entry| entry.map_or(u64::MAX, |entry| entry.len))
            };
            let Some(piece) = cursor.next(ranges, PieceLimits::exact(BATCH), len_of) else {
                break;
            };
            if let Err(error) = self.evict_piece(&piece.path, piece.start..piece.end, &mut evicted)
            {
                tracing::warn!("not evicted: {error}");
                evicted.stale += 1;
                unreadable.push(piece.path);
            }
        }
        evicted
    }

    fn evict_piece(
        &mut self,
        path: &Arc<Path>,
        bytes: Range<u64>,
        evicted: &mut Evicted,
    ) -> Result<()> {
        let open = self.files.open(path)?;
        let (inode, len) = (open.entry.inode, open.entry.len);
        // at the end of the file, its whole last page is evicted
        let end = if bytes.end >= len {
            len.next_multiple_of(page())
        } else {
            bytes.end
        };
        let start = extend_back(&self.requested, inode, bytes.start);
        evicted.requested += bytes.end - bytes.start;
        // freed bytes are measured, since the kernel reports success whether or not pages were dropped
        let before = FileResidency::of(&open.file, bytes.start, bytes.end - bytes.start)?;
        // an extension backwards may complete a folio even of a range with nothing cached
        if before.cached > 0 || start < bytes.start {
            for range in clean_ranges(&open.file, start..end, BATCH)? {
                drop_pages(&open.file, &range)?;
            }
        }
        let mut after = FileResidency::of(&open.file, bytes.start, bytes.end - bytes.start)?;
        let mut mapped = 0;
        // folios that are only partly requested are no reason for a second attempt: they stay until the rest is
        // requested
        let inner = inner(&(start..end), end >= len);
        if after.cached > 0 && is_evictable(&open.file, &inner)? {
            let paged = self.scan.page_out(
                &self.processes,
                self.files.namespace(),
                inode,
                &(start..end),
            );
            // unmapped pages can be dropped at once; only those that no process has mapped are waited for
            if paged.mapped == 0 {
                // the pages are locked by read-ahead in progress, or used by a read call
                std::thread::sleep(SETTLE);
            }
            let open = self.files.open(path)?;
            for range in clean_ranges(&open.file, start..end, FOLIO)? {
                drop_pages(&open.file, &range)?;
            }
            after = FileResidency::of(&open.file, bytes.start, bytes.end - bytes.start)?;
            mapped = paged.mapped;
        }
        let dirty = after.dirty + after.writeback;
        evicted.freed += before.cached.saturating_sub(after.cached);
        evicted.remaining += after.cached;
        evicted.dirty += dirty.min(after.cached);
        evicted.mapped += mapped.min(after.cached.saturating_sub(dirty));
        self.remember(inode, bytes);
        Ok(())
    }

    /// Adds a requested range. Touching ranges are merged, and the oldest is dropped beyond [`REMEMBERED`].
    fn remember(&mut self, inode: Inode, mut bytes: Range<u64>) {
        self.requested.retain(|(of, range)| {
            let touches = *of == inode && range.start <= bytes.end && bytes.start <= range.end;
            if touches {
                bytes = range.start.min(bytes.start)..range.end.max(bytes.end);
            }
            !touches
        });
        // a range that is no longer remembered costs a folio that stays cached, not correctness
        if self.requested.len() == REMEMBERED {
            self.requested.pop_front();
        }
        self.requested.push_back((inode, bytes));
    }
}

/// The start of the folio that contains `start`, or of the requested bytes that end at `start` if they begin later.
/// `start` itself if the bytes before it were not requested.
fn extend_back(requested: &VecDeque<(Inode, Range<u64>)>, inode: Inode, start: u64) -> u64 {
    let before = requested
        .iter()
        .filter(|(of, range)| *of == inode && range.start < start && start <= range.end);
    let earliest = before
        .map(|(_, range)| range.start.next_multiple_of(page()))
        .min()
        .unwrap_or(start);
    (start / FOLIO * FOLIO).max(earliest).min(start)
}

/// The whole folios of a range; the range itself if it contains none.
fn inner(bytes: &Range<u64>, is_end: bool) -> Range<u64> {
    let end = if is_end {
        bytes.end
    } else {
        bytes.end / FOLIO * FOLIO
    };
    let inner = bytes.start.next_multiple_of(FOLIO)..end;
    if inner.is_empty() {
        bytes.clone()
    } else {
        inner
    }
}

/// Whether clean pages of the range are cached.
fn is_evictable(file: &File, bytes: &Range<u64>) -> Result<bool> {
    let residency = FileResidency::of(file, bytes.start, bytes.end - bytes.start)?;
    Ok(residency.cached > residency.dirty + residency.writeback)
}

/// The subranges of at most `size` bytes that contain cached pages and no dirty ones. `POSIX_FADV_DONTNEED` would
/// start to write dirty pages to the device. Where possible, subranges end at multiples of [`FOLIO`].
fn clean_ranges(file: &File, bytes: Range<u64>, size: u64) -> Result<Vec<Range<u64>>> {
    let (mut parts, mut left) = (Vec::new(), vec![bytes]);
    while let Some(part) = left.pop() {
        let stop = ((part.start / size + 1) * size).min(part.end);
        if stop < part.end {
            left.push(stop..part.end);
        }
        if part.start >= stop {
            continue;
        }
        let residency = FileResidency::of(file, part.start, stop - part.start)?;
        // `mincore` does not report dirty pages; the kernel does not drop them in any case
        if residency.dirty + residency.writeback == 0
            || residency.method == ResidencyMethod::Mincore
        {
            if residency.cached > 0 {
                parts.push(part.start..stop);
            }
        } else if stop - part.start > page() {
            // bisect, at a multiple of the folio size if the range contains one
            let half = part.start + (stop - part.start) / 2;
            let unit = if half / FOLIO * FOLIO > part.start {
                FOLIO
            } else {
                page()
            };
            let middle = (half / unit * unit).max(part.start + page());
            left.extend([middle..stop, part.start..middle]);
        }
    }
    Ok(parts)
}

/// Drops whole pages. Pages that are on a processor's LRU batch cannot be dropped at once; the kernel drains the
/// batches and tries again by itself.
fn drop_pages(file: &File, bytes: &Range<u64>) -> Result<()> {
    if let Some(len) = NonZeroU64::new(bytes.end.saturating_sub(bytes.start)) {
        fadvise(file, bytes.start, Some(len), Advice::DontNeed)?;
    }
    Ok(())
}

fn page() -> u64 {
    rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_extended_back_only_to_bytes_requested_before() {
        let namespace = Arc::new(Namespace::scan(tempfile::tempdir().unwrap().path()).unwrap());
        let mut evictor = Evictor::new(&namespace);
        let (first, second) = (Inode { dev: 1, ino: 1 }, Inode { dev: 1, ino: 2 });
        let mib = 1 << 20;
        assert_eq!(extend_back(&evictor.requested, first, 5 * mib), 5 * mib);
        evictor.remember(first, mib..5 * mib);
        // to the start of the folio and not further
        assert_eq!(extend_back(&evictor.requested, first, 5 * mib), 4 * mib);
        assert_eq!(extend_back(&evictor.requested, first, 4 * mib), 4 * mib);
        // not beyond requested bytes, not across gaps, not in another file
        assert_eq!(extend_back(&evictor.requested, first, mib + 4096), mib);
        assert_eq!(
            extend_back(&evictor.requested, first, 5 * mib + 4096),
            5 * mib + 4096
        );
        assert_eq!(extend_back(&evictor.requested, second, 5 * mib), 5 * mib);
        // in whole pages
        evictor.remember(second, 5..2 * mib);
        assert_eq!(extend_back(&evictor.requested, second, mib), 4096);
        // touching ranges are merged, and the oldest are dropped
        evictor.remember(first, 5 * mib..6 * mib);
        evictor.remember(first, 0..mib);
        assert_eq!(evictor.requested.len(), 2);
        assert_eq!(extend_back(&evictor.requested, first, mib), 0);
        for range in 0..1000 {
            evictor.remember(second, (100 + 2 * range) * mib..(101 + 2 * range) * mib);
        }
        assert_eq!(evictor.requested.len(), REMEMBERED);
        evictor.forget();
        assert_eq!(extend_back(&evictor.requested, first, 5 * mib), 5 * mib);
    }
}
