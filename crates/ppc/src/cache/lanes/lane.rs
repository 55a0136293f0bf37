//! One list, and the pieces that are left of it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::cache::files::Files;
use crate::cache::list::{Cursor, Cut, Piece, same};
use crate::cache::progress::LaneProgress;
use crate::{Ios, Namespace};

/// Descriptors that one thread keeps for one lane.
const DESCRIPTORS: usize = 4;

/// A reader's descriptors. Each has its own read-ahead state in the kernel, which grows as long as it is read in order.
#[derive(Debug)]
pub(in crate::cache) struct Stream {
    pub(in crate::cache) files: Files,
    /// Where the last piece ended.
    pub(in crate::cache) at: u64,
    /// Whether the last piece was read, and not found in memory: then the kernel's read-ahead is under way.
    pub(in crate::cache) reading: bool,
}

/// A list that is worked on.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) number: u32,
    /// Threads that read for it at once.
    pub(super) width: usize,
    pub(super) namespace: Arc<Namespace>,
    pub(super) ios: Ios,
    pub(super) cursor: Cursor,
    /// Pieces that were taken and given back, and when they were taken.
    pub(super) rest: Vec<(u64, Piece)>,
    /// Pieces that were taken so far.
    pub(super) taken: u64,
    pub(super) refused: Vec<Arc<Path>>,
    /// Set once this list is not the lane's any more.
    pub(super) over: Arc<AtomicBool>,
    /// Those that no thread has now.
    pub(super) streams: Vec<Stream>,
    /// Pieces of this list that threads have now.
    pub(super) held: usize,
}

impl Lane {
    /// A piece and when it was taken first.
    pub(super) fn next(&mut self, cut: Cut) -> Option<(u64, Piece)> {
        // the earliest of what was given back
        if let Some(at) = (0..self.rest.len()).min_by_key(|&at| self.rest[at].0) {
            let (turn, mut piece) = self.rest.swap_remove(at);
            let end = piece.start.saturating_add(cut.most);
            if end < piece.end {
                self.rest.push((
                    turn,
                    Piece {
                        start: end,
                        ..piece.clone()
                    },
                ));
                piece.end = end;
            }
            return Some((turn, piece));
        }
        let (refused, namespace) = (&self.refused, &self.namespace);
        let len_of = |path: &Arc<Path>| {
            // who opens a file that is not there will say so
            let refused = refused.iter().any(|it| same(it, path));
            (!refused).then(|| namespace.get(path).map_or(u64::MAX, |entry| entry.len))
        };
        let piece = self.cursor.next(&self.ios, cut, len_of)?;
        self.taken += 1;
        Some((self.taken, piece))
    }

    /// The stream that goes on where this piece begins, or another one.
    pub(super) fn stream(&mut self, piece: &Piece) -> Stream {
        let goes_on = |stream: &Stream| stream.at == piece.start && stream.files.is_at(&piece.path);
        match self.streams.iter().position(goes_on) {
            Some(at) => self.streams.swap_remove(at),
            None => self.streams.pop().unwrap_or_else(|| Stream {
                files: Files::new(&self.namespace, DESCRIPTORS),
                at: 0,
                reading: false,
            }),
        }
    }

    pub(super) fn is_taken(&self) -> bool {
        self.rest.is_empty() && self.cursor.index >= self.ios.len()
    }

    pub(super) fn is_done(&self) -> bool {
        self.held == 0 && self.is_taken()
    }

    pub(super) fn progress(&self) -> LaneProgress {
        let next = self.ios.get(self.cursor.index);
        LaneProgress {
            root: self.namespace.root().to_owned(),
            lane: self.number,
            taken: self.cursor.index,
            of: self.ios.len(),
            path: next.map(|io| io.path.to_path_buf()).unwrap_or_default(),
            at: next.map_or(0, |io| io.start.max(self.cursor.at)),
        }
    }
}
