//! A prefetch queue: its list, and the pieces of it that are not read yet.

use std::path::Path;
use std::sync::Arc;

use crate::cache::descriptor_cache::DescriptorCache;
use crate::cache::pieces::{ListCursor, PieceLimits, PrefetchPiece, same_path};
use crate::cache::progress::QueueProgress;
use crate::sync::AtomicBool;
use crate::{Namespace, RangeList};

/// File descriptors that one read stream keeps open.
const DESCRIPTORS: usize = 4;

/// The descriptors of one sequential reader. The kernel keeps read-ahead state per descriptor, and its window grows
/// only while that descriptor is read in order; so a thread that continues a file gets the descriptor that read the
/// bytes before.
#[derive(Debug)]
pub(in crate::cache) struct ReadStream {
    pub(in crate::cache) files: DescriptorCache,
    /// Offset at which the last piece ended.
    pub(in crate::cache) end: u64,
    /// Whether the last piece was read from the device rather than found in the cache, so that kernel read-ahead is
    /// under way.
    pub(in crate::cache) reading: bool,
}

/// A queue with an unfinished list.
#[derive(Debug)]
pub(super) struct PrefetchQueue {
    pub(super) number: u32,
    /// Threads that may read its pieces at the same time.
    pub(super) width: usize,
    pub(super) namespace: Arc<Namespace>,
    pub(super) ranges: RangeList,
    pub(super) cursor: ListCursor,
    /// Remainders of claimed pieces, each with the number of its claim.
    pub(super) remainders: Vec<(u64, PrefetchPiece)>,
    /// Number of claims so far.
    pub(super) claims_so_far: u64,
    pub(super) unreadable: Vec<Arc<Path>>,
    /// Cancellation flag: set when the list is replaced or interrupted.
    pub(super) cancelled: Arc<AtomicBool>,
    /// Read streams that no thread uses now.
    pub(super) streams: Vec<ReadStream>,
    /// Pieces of this list that threads are reading.
    pub(super) claims: usize,
}

impl PrefetchQueue {
    /// The next piece, with the number of the claim that first covered it.
    pub(super) fn next(&mut self, limits: PieceLimits) -> Option<(u64, PrefetchPiece)> {
        // remainders first, earliest claim first, so that bytes are read in list order
        if let Some(at) = (0..self.remainders.len()).min_by_key(|&at| self.remainders[at].0) {
            let (number, mut piece) = self.remainders.swap_remove(at);
            let end = piece.start.saturating_add(limits.max_len);
            if end < piece.end {
                self.remainders.push((
                    number,
                    PrefetchPiece {
                        start: end,
                        ..piece.clone()
                    },
                ));
                piece.end = end;
            }
            return Some((number, piece));
        }
        let (unreadable, namespace) = (&self.unreadable, &self.namespace);
        let len_of = |path: &Arc<Path>| {
            // a missing file gets an unlimited length here, and fails when a thread opens it
            let unreadable = unreadable.iter().any(|other| same_path(other, path));
            (!unreadable).then(|| namespace.get(path).map_or(u64::MAX, |entry| entry.len))
        };
        let piece = self.cursor.next(&self.ranges, limits, len_of)?;
        self.claims_so_far += 1;
        Some((self.claims_so_far, piece))
    }

    /// The stream that ended where this piece begins, or any other.
    pub(super) fn stream(&mut self, piece: &PrefetchPiece) -> ReadStream {
        let continues =
            |stream: &ReadStream| stream.end == piece.start && stream.files.is_latest(&piece.path);
        match self.streams.iter().position(continues) {
            Some(at) => self.streams.swap_remove(at),
            None => self.streams.pop().unwrap_or_else(|| ReadStream {
                files: DescriptorCache::new(&self.namespace, DESCRIPTORS),
                end: 0,
                reading: false,
            }),
        }
    }

    pub(super) fn is_claimed(&self) -> bool {
        self.remainders.is_empty() && self.cursor.index >= self.ranges.len()
    }

    pub(super) fn is_done(&self) -> bool {
        self.claims == 0 && self.is_claimed()
    }

    pub(super) fn progress(&self) -> QueueProgress {
        let next = self.ranges.get(self.cursor.index);
        QueueProgress {
            root: self.namespace.root().to_owned(),
            queue: self.number,
            claimed_ranges: self.cursor.index,
            ranges: self.ranges.len(),
            path: next
                .map(|range| range.path.to_path_buf())
                .unwrap_or_default(),
            offset: next.map_or(0, |range| range.start.max(self.cursor.offset)),
        }
    }
}
