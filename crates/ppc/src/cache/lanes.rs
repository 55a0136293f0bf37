//! Lists and whose turn it is.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use crate::cache::files::Files;
use crate::cache::list::{Cursor, Cut, Piece, same};
use crate::cache::progress::LaneProgress;
use crate::{Ios, Namespace};

/// Files that a list may name in vain before it is given up.
const REFUSED: usize = 32;
/// Descriptors that one thread keeps for one lane.
const DESCRIPTORS: usize = 4;

/// A reader's descriptors. Each has its own read-ahead state in the kernel, which grows as long as it is read in order.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) files: Files,
    /// Where the last piece ended.
    pub(super) at: u64,
    /// Whether the last piece was read, and not found in memory: then the kernel's read-ahead is under way.
    pub(super) reading: bool,
}

/// A list that is worked on.
#[derive(Debug)]
struct Lane {
    number: u32,
    namespace: Arc<Namespace>,
    ios: Ios,
    cursor: Cursor,
    /// Pieces that were taken and given back, and when they were taken.
    rest: Vec<(u64, Piece)>,
    /// Pieces that were taken so far.
    taken: u64,
    refused: Vec<Arc<Path>>,
    /// Set once this list is not the lane's any more.
    over: Arc<AtomicBool>,
    /// Those that no thread has now.
    streams: Vec<Stream>,
    /// Pieces of this list that threads have now.
    held: usize,
}

/// A piece that one thread has.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) piece: Piece,
    pub(super) over: Arc<AtomicBool>,
    pub(super) stream: Stream,
    pub(super) lane: u32,
    turn: u64,
}

/// How a piece ended.
#[derive(Debug)]
pub(super) enum End {
    /// It is done, or its list is over.
    Done,
    /// This is left of it, for later.
    Rest(Piece),
    /// Its file cannot be read.
    Refused,
}

/// All lanes. The first is next.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    turns: VecDeque<Lane>,
    /// Ranges so far that went past their file's end.
    past_end: u64,
}

impl Lanes {
    pub(super) fn len(&self) -> usize {
        self.turns.len()
    }

    fn position(&self, root: &Path, number: u32) -> Option<usize> {
        self.turns.iter().position(|lane| lane.number == number && lane.namespace.root() == root)
    }

    pub(super) fn has(&self, root: &Path, number: u32) -> bool {
        self.position(root, number).is_some()
    }

    /// Gives a lane its list. Returns whether one was not done.
    pub(super) fn submit(&mut self, namespace: &Arc<Namespace>, number: u32, ios: Ios) -> bool {
        let mut new = Lane {
            number,
            namespace: Arc::clone(namespace),
            ios,
            cursor: Cursor::default(),
            rest: Vec::new(),
            taken: 0,
            refused: Vec::new(),
            over: Arc::default(),
            streams: Vec::new(),
            held: 0,
        };
        let Some(at) = self.position(namespace.root(), number) else {
            self.turns.push_back(new);
            return false;
        };
        let old = &mut self.turns[at];
        old.over.store(true, SeqCst);
        if Arc::ptr_eq(&old.namespace, namespace) {
            new.streams = std::mem::take(&mut old.streams);
        }
        let unfinished = old.held > 0 || !old.is_taken();
        *old = new;
        unfinished
    }

    /// Ends the lists that `which` says yes to, and returns how many.
    pub(super) fn interrupt(&mut self, which: impl Fn(&Path, u32) -> bool) -> u64 {
        let mut ended = 0;
        self.turns.retain(|lane| {
            let ends = which(lane.namespace.root(), lane.number);
            if ends {
                lane.over.store(true, SeqCst);
                ended += 1;
            }
            !ends
        });
        ended
    }

    /// The next piece of a lane that fewer than `per_lane` threads read for.
    pub(super) fn claim(&mut self, cut: Cut, per_lane: usize) -> Option<Claim> {
        for _ in 0..self.turns.len() {
            let mut lane = self.turns.pop_front()?;
            let piece = if lane.held < per_lane { lane.next(cut) } else { None };
            self.past_end += std::mem::take(&mut lane.cursor.past_end);
            let claim = piece.map(|(turn, piece)| {
                lane.held += 1;
                let stream = lane.stream(&piece);
                Claim { piece, over: Arc::clone(&lane.over), stream, lane: lane.number, turn }
            });
            if !lane.is_done() {
                self.turns.push_back(lane);
            }
            if claim.is_some() {
                return claim;
            }
        }
        None
    }

    /// Whether [`claim`](Self::claim) has something to give.
    pub(super) fn has_work(&self, per_lane: usize) -> bool {
        self.turns.iter().any(|lane| lane.held < per_lane && !lane.is_taken())
    }

    /// Takes a piece back.
    pub(super) fn finish(&mut self, claim: Claim, end: End) {
        let Some(at) = self.position(claim.stream.files.namespace().root(), claim.lane) else { return };
        let lane = &mut self.turns[at];
        if Arc::ptr_eq(&lane.namespace, claim.stream.files.namespace()) {
            lane.streams.push(claim.stream);
        }
        if Arc::ptr_eq(&lane.over, &claim.over) {
            lane.held -= 1;
            match end {
                End::Done => {}
                End::Rest(piece) => lane.rest.push((claim.turn, piece)),
                End::Refused => lane.refused.push(claim.piece.path),
            }
            if lane.refused.len() > REFUSED {
                lane.cursor.index = lane.ios.len();
            }
        }
        if lane.is_done() {
            self.turns.remove(at);
        }
    }

    /// Ranges so far that went past their file's end.
    pub(super) fn past_end(&self) -> u64 {
        self.past_end
    }

    pub(super) fn progress(&self) -> Vec<LaneProgress> {
        self.turns.iter().map(Lane::progress).collect()
    }
}

impl Lane {
    /// A piece and when it was taken first.
    fn next(&mut self, cut: Cut) -> Option<(u64, Piece)> {
        // the earliest of what was given back
        if let Some(at) = (0..self.rest.len()).min_by_key(|&at| self.rest[at].0) {
            let (turn, mut piece) = self.rest.swap_remove(at);
            let end = piece.start.saturating_add(cut.most);
            if end < piece.end {
                self.rest.push((turn, Piece { start: end, ..piece.clone() }));
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
    fn stream(&mut self, piece: &Piece) -> Stream {
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

    fn is_taken(&self) -> bool {
        self.rest.is_empty() && self.cursor.index >= self.ios.len()
    }

    fn is_done(&self) -> bool {
        self.held == 0 && self.is_taken()
    }

    fn progress(&self) -> LaneProgress {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Io;

    const MIB: u64 = 1 << 20;

    /// A namespace of two sparse files of 64 MiB.
    fn namespace() -> (tempfile::TempDir, Arc<Namespace>) {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b"] {
            std::fs::File::create(dir.path().join(name)).unwrap().set_len(64 * MIB).unwrap();
        }
        let namespace = Arc::new(Namespace::scan(dir.path()).unwrap());
        (dir, namespace)
    }

    fn whole(name: &str) -> Ios {
        vec![Io { path: Path::new(name).into(), start: 0, len: 64 * MIB, device: None }].into()
    }

    fn claim(lanes: &mut Lanes) -> Option<Claim> {
        lanes.claim(Cut::exact(8 * MIB), 1)
    }

    #[test]
    fn turns() {
        let (_dir, namespace) = namespace();
        let mut lanes = Lanes::default();
        assert!(!lanes.submit(&namespace, 0, whole("a")) && !lanes.submit(&namespace, 1, whole("b")));
        let (first, second) = (claim(&mut lanes).unwrap(), claim(&mut lanes).unwrap());
        assert_eq!((first.lane, second.lane), (0, 1));
        // one thread for a lane
        assert!(claim(&mut lanes).is_none() && !lanes.has_work(1) && lanes.has_work(2));
        lanes.finish(second, End::Done);
        let third = claim(&mut lanes).unwrap();
        assert_eq!((third.lane, third.piece.start), (1, 8 * MIB));
        // what was given back comes first
        let rest = Piece { start: 5 * MIB, ..first.piece.clone() };
        lanes.finish(first, End::Rest(rest));
        assert_eq!(lanes.claim(Cut { most: MIB, ..Cut::exact(8 * MIB) }, 1).unwrap().piece.start, 5 * MIB);
        assert_eq!(lanes.claim(Cut::exact(8 * MIB), 2).map(|claim| (claim.lane, claim.piece.end)), Some((1, 24 * MIB)));
    }

    #[test]
    fn a_list_that_was_superseded_gives_nothing_back() {
        let (_dir, namespace) = namespace();
        let mut lanes = Lanes::default();
        lanes.submit(&namespace, 0, whole("a"));
        let old = claim(&mut lanes).unwrap();
        assert!(lanes.submit(&namespace, 0, whole("b")));
        assert!(old.over.load(SeqCst));
        let new = claim(&mut lanes).unwrap();
        assert!(*new.piece.path == *Path::new("b") && !new.over.load(SeqCst));
        let piece = old.piece.clone();
        lanes.finish(old, End::Rest(piece));
        assert!(claim(&mut lanes).is_none());
        lanes.finish(new, End::Done);
        assert_eq!(claim(&mut lanes).unwrap().piece.start, 8 * MIB);
        assert_eq!((lanes.interrupt(|_, _| true), lanes.len()), (1, 0));
    }

    #[test]
    fn a_file_that_is_refused_is_left_out() {
        let (_dir, namespace) = namespace();
        let mut lanes = Lanes::default();
        let both = whole("a").iter().chain(whole("b").iter()).cloned().collect::<Vec<_>>().into();
        lanes.submit(&namespace, 0, both);
        let refused = claim(&mut lanes).unwrap();
        lanes.finish(refused, End::Refused);
        let mut pieces = 0;
        while let Some(claim) = claim(&mut lanes) {
            assert_eq!(*claim.piece.path, *Path::new("b"));
            lanes.finish(claim, End::Done);
            pieces += 1;
        }
        // a list that is done is gone
        assert_eq!((pieces, lanes.len()), (8, 0));
    }
}
