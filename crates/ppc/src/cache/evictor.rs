//! Takes bytes of files out of the page cache.

use std::collections::VecDeque;
use std::fs::File;
use std::num::NonZeroU64;
use std::ops::{AddAssign, Range};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Advice, fadvise};
use serde::Serialize;

use crate::cache::Residency;
use crate::cache::files::Files;
use crate::cache::list::{Cursor, Cut};
use crate::cache::mappers::{Found, Mappers};
use crate::cache::residency::Counted;
use crate::error::Result;
use crate::{Inode, Ios, Namespace};

/// The largest piece of memory that the page cache keeps bytes of a file in. It lies at a multiple of its size, and goes
/// as a whole or not at all.
const FOLIO: u64 = 2 << 20;
/// Bytes of one call.
const BATCH: u64 = 64 << 20;
/// Descriptors that are kept.
const DESCRIPTORS: usize = 64;
/// Ranges of which is remembered that they were to go.
const REMEMBERED: usize = 256;
/// How long read-ahead that is under way may take until the second attempt.
const SETTLE: Duration = Duration::from_millis(2);

/// What an eviction came to, in bytes; of whole pages but for `asked`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Evicted {
    /// Bytes of the list that lie in files.
    pub asked: u64,
    /// Of these, were in memory and are not any more.
    pub gone: u64,
    /// Of these, are in memory still: somebody uses them, or they share a large piece of memory with bytes that were not
    /// to go.
    pub left: u64,
    /// Of what is left, some process has mapped, as far as was looked.
    pub mapped: u64,
    /// Of what is left, has been changed and is not yet on the device. It is left alone.
    pub dirty: u64,
    /// Files that are no longer those that were scanned, or could not be read. They are left alone.
    pub stale: u64,
}

impl AddAssign for Evicted {
    fn add_assign(&mut self, other: Self) {
        let Self {
            asked,
            gone,
            left,
            mapped,
            dirty,
            stale,
        } = other;
        self.asked += asked;
        self.gone += gone;
        self.left += left;
        self.mapped += mapped;
        self.dirty += dirty;
        self.stale += stale;
    }
}

/// Takes bytes of one namespace's files out of the page cache, and looks whether they went.
///
/// The kernel lets go of large pieces of memory only as a whole. So what is asked for in many small ranges, as by a
/// policy that evicts behind a reader, is extended back to the beginning of the piece that a range begins in, if the
/// ranges before it were asked for too; never into bytes that nobody asked to evict.
///
/// ```
/// use std::sync::Arc;
/// use anamnesis_ppc::{Entry, Namespace, cache::Evictor};
///
/// # let dir = tempfile::tempdir()?;
/// # std::fs::write(dir.path().join("model.safetensors"), [0; 10_000])?;
/// let namespace = Arc::new(Namespace::scan(dir.path())?);
/// let ios = namespace.entries().iter().map(Entry::whole).collect::<Vec<_>>().into();
/// let evicted = Evictor::new(&namespace).evict(&ios);
/// println!("{} of {} bytes are gone, {} wait for the device", evicted.gone, evicted.asked, evicted.dirty);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Evictor {
    files: Files,
    mappers: Mappers,
    found: Found,
    asked: VecDeque<(Inode, Range<u64>)>,
}

impl Evictor {
    /// For the files of this snapshot of a namespace, which any process may have mapped.
    pub fn new(namespace: &Arc<Namespace>) -> Self {
        Self {
            files: Files::new(namespace, DESCRIPTORS),
            mappers: Mappers::default(),
            found: Found::default(),
            asked: VecDeque::new(),
        }
    }

    /// Which processes may have the files mapped: looking at fewer is quicker. A look at all is at most one in half a
    /// second, and works at most a tenth of a second.
    #[must_use]
    pub fn mappers(mut self, mappers: Mappers) -> Self {
        self.mappers = mappers;
        self.found = Found::default();
        self
    }

    /// Forgets what was asked for so far: the files are about to be read again.
    pub fn forget(&mut self) {
        self.asked.clear();
    }

    /// Takes these bytes out of memory, as far as they are clean and nobody needs them. Ranges past the end of a file
    /// end there; a file that is not in the namespace, or another by now, is left alone and counted.
    ///
    /// What is mapped is first taken from those who map it, which needs `CAP_SYS_NICE` and the right to trace them, and
    /// works for bytes that one process maps at a time.
    pub fn evict(&mut self, ios: &Ios) -> Evicted {
        let mut evicted = Evicted::default();
        let mut refused: Vec<Arc<Path>> = Vec::new();
        let mut cursor = Cursor::default();
        loop {
            let namespace = Arc::clone(self.files.namespace());
            let len_of = |path: &Arc<Path>| {
                let known = if refused.contains(path) {
                    None
                } else {
                    Some(namespace.get(path))
                };
                known.map(|entry| entry.map_or(u64::MAX, |entry| entry.len))
            };
            let Some(piece) = cursor.next(ios, Cut::exact(BATCH), len_of) else {
                break;
            };
            if let Err(error) = self.evict_piece(&piece.path, piece.start..piece.end, &mut evicted)
            {
                tracing::warn!("not evicted: {error}");
                evicted.stale += 1;
                refused.push(piece.path);
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
        // where the file ends, its last page does
        let end = if bytes.end >= len {
            len.next_multiple_of(page())
        } else {
            bytes.end
        };
        let start = extend_back(&self.asked, inode, bytes.start);
        evicted.asked += bytes.end - bytes.start;
        let before = Residency::of(&open.file, bytes.start, bytes.end - bytes.start)?;
        if before.cached > 0 || start < bytes.start {
            for clean in clean(&open.file, start..end, BATCH)? {
                drop_clean(&open.file, &clean)?;
            }
        }
        let mut after = Residency::of(&open.file, bytes.start, bytes.end - bytes.start)?;
        let mut mapped = 0;
        // what lies in a piece of memory with bytes that were not asked for may wait until they are
        let inner = inner(&(start..end), end >= len);
        if after.cached > 0 && is_left(&open.file, &inner)? {
            let paged =
                self.found
                    .page_out(&self.mappers, self.files.namespace(), inode, &(start..end));
            if paged.mapped == 0 {
                // read-ahead that is under way, or a reader in the middle of it
                std::thread::sleep(SETTLE);
            }
            let open = self.files.open(path)?;
            for clean in clean(&open.file, start..end, FOLIO)? {
                drop_clean(&open.file, &clean)?;
            }
            after = Residency::of(&open.file, bytes.start, bytes.end - bytes.start)?;
            mapped = paged.mapped;
        }
        let dirty = after.dirty + after.writeback;
        evicted.gone += before.cached.saturating_sub(after.cached);
        evicted.left += after.cached;
        evicted.dirty += dirty.min(after.cached);
        evicted.mapped += mapped.min(after.cached.saturating_sub(dirty));
        self.remember(inode, bytes);
        Ok(())
    }

    /// Adds a range to what was asked for; neighbours become one, and the oldest are forgotten.
    fn remember(&mut self, inode: Inode, mut bytes: Range<u64>) {
        self.asked.retain(|(of, range)| {
            let near = *of == inode && range.start <= bytes.end && bytes.start <= range.end;
            if near {
                bytes = range.start.min(bytes.start)..range.end.max(bytes.end);
            }
            !near
        });
        if self.asked.len() == REMEMBERED {
            self.asked.pop_front();
        }
        self.asked.push_back((inode, bytes));
    }
}

/// Where the piece of memory with `start` begins, or as near to that as was asked for without a gap.
fn extend_back(asked: &VecDeque<(Inode, Range<u64>)>, inode: Inode, start: u64) -> u64 {
    let before = asked
        .iter()
        .filter(|(of, range)| *of == inode && range.start < start && start <= range.end);
    let least = before
        .map(|(_, range)| range.start.next_multiple_of(page()))
        .min()
        .unwrap_or(start);
    (start / FOLIO * FOLIO).max(least).min(start)
}

/// The part of a range that shares no piece of memory with what is outside; all of it if it is too short to tell.
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

/// Whether something of a range that could have gone is in memory.
fn is_left(file: &File, bytes: &Range<u64>) -> Result<bool> {
    let residency = Residency::of(file, bytes.start, bytes.end - bytes.start)?;
    Ok(residency.cached > residency.dirty + residency.writeback)
}

/// The parts of a range, of `size` bytes and less, that hold nothing dirty: the kernel would begin to write it. Parts
/// end at multiples of [`FOLIO`].
fn clean(file: &File, bytes: Range<u64>, size: u64) -> Result<Vec<Range<u64>>> {
    let (mut parts, mut left) = (Vec::new(), vec![bytes]);
    while let Some(part) = left.pop() {
        let stop = ((part.start / size + 1) * size).min(part.end);
        if stop < part.end {
            left.push(stop..part.end);
        }
        if part.start >= stop {
            continue;
        }
        let residency = Residency::of(file, part.start, stop - part.start)?;
        // without cachestat nobody knows; what is dirty is not dropped then either
        if residency.dirty + residency.writeback == 0 || residency.counted == Counted::Mincore {
            if residency.cached > 0 {
                parts.push(part.start..stop);
            }
        } else if stop - part.start > page() {
            // halves, at multiples of a folio as long as there are some within
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

/// Drops whole pages. The kernel drains its lists of pages by itself where some are not let go at once.
fn drop_clean(file: &File, bytes: &Range<u64>) -> Result<()> {
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
    fn extends_only_into_what_was_asked_for() {
        let namespace = Arc::new(Namespace::scan(tempfile::tempdir().unwrap().path()).unwrap());
        let mut evictor = Evictor::new(&namespace);
        let (one, two) = (Inode { dev: 1, ino: 1 }, Inode { dev: 1, ino: 2 });
        let mib = 1 << 20;
        assert_eq!(extend_back(&evictor.asked, one, 5 * mib), 5 * mib);
        evictor.remember(one, mib..5 * mib);
        // to the piece's beginning, and not further
        assert_eq!(extend_back(&evictor.asked, one, 5 * mib), 4 * mib);
        assert_eq!(extend_back(&evictor.asked, one, 4 * mib), 4 * mib);
        // not beyond what was asked for, not over gaps, not in another file
        assert_eq!(extend_back(&evictor.asked, one, mib + 4096), mib);
        assert_eq!(
            extend_back(&evictor.asked, one, 5 * mib + 4096),
            5 * mib + 4096
        );
        assert_eq!(extend_back(&evictor.asked, two, 5 * mib), 5 * mib);
        // whole pages
        evictor.remember(two, 5..2 * mib);
        assert_eq!(extend_back(&evictor.asked, two, mib), 4096);
        // neighbours are one, and the oldest are forgotten
        evictor.remember(one, 5 * mib..6 * mib);
        evictor.remember(one, 0..mib);
        assert_eq!(evictor.asked.len(), 2);
        assert_eq!(extend_back(&evictor.asked, one, mib), 0);
        for range in 0..1000 {
            evictor.remember(two, (100 + 2 * range) * mib..(101 + 2 * range) * mib);
        }
        assert_eq!(evictor.asked.len(), REMEMBERED);
        evictor.forget();
        assert_eq!(extend_back(&evictor.asked, one, 5 * mib), 5 * mib);
    }
}
