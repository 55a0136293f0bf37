//! Comparison of stored tensors byte by byte: pieces of both files in step, without a digest of either.

use std::io;
use std::sync::atomic::Ordering;

use crate::base::error::Result;
use crate::base::progress::RunProgress;
use crate::base::sync::AtomicBool;
use crate::base::threads::side_by_side;
use crate::read::source::{Source, read_exact_at};

use super::byte_reader::ByteReader;
use super::piece_numbers::PieceNumbers;
use super::tensor_bytes::{PIECE, TensorBytes};

/// Pieces ahead of the current one whose bytes are announced to the sources, for files that are not in the page cache.
const AHEAD: u64 = 16;

/// Two tensors of equally many logical bytes.
pub(super) struct ByteComparison<'c> {
    pub(super) a: TensorBytes<'c>,
    pub(super) b: TensorBytes<'c>,
    /// Index of what they are a part of.
    pub(super) item: usize,
}

impl ByteComparison<'_> {
    pub(super) fn nbytes(&self) -> u64 {
        self.a.info.nbytes()
    }

    fn pieces(&self) -> u64 {
        if self.a.is_in_order() || self.b.is_in_order() {
            // one piece: such a tensor is read from its first byte, however many threads there are
            u64::from(self.nbytes() > 0)
        } else {
            self.nbytes().div_ceil(PIECE)
        }
    }
}

/// Compares all of them, and sets `differs` of the items whose bytes are not equal. No further pieces are read of an item
/// that differs. `first_only`: ends with the first difference.
pub(super) fn compare(
    list: &[ByteComparison<'_>],
    differs: &[AtomicBool],
    first_only: bool,
    threads: usize,
    progress: &RunProgress<'_>,
) -> Result<()> {
    let numbers = PieceNumbers::new(list.iter().map(ByteComparison::pieces));
    let stop = AtomicBool::new(false);
    let piece_of = |piece: u64| {
        let (item, number) = numbers.find(piece);
        let comparison = &list[item];
        let start = number * PIECE;
        let len = PIECE.min(comparison.nbytes() - start);
        (comparison, start, len)
    };
    let room = || (Vec::new(), Vec::new());
    let count = numbers.count();
    side_by_side("diff", count, threads, progress, room, |piece, room| {
        let (comparison, start, len) = piece_of(piece);
        let differs = &differs[comparison.item];
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        // such a tensor has no ranges
        if comparison.pieces() == 1 && (comparison.a.is_in_order() || comparison.b.is_in_order()) {
            if !differs.load(Ordering::Relaxed) && !equal_in_order(comparison, progress)? {
                differs.store(true, Ordering::Relaxed);
                stop.store(first_only, Ordering::Relaxed);
            }
            // also where nothing was read, so that the bar ends at its end
            return progress.add(comparison.nbytes());
        }
        if !differs.load(Ordering::Relaxed) {
            if piece + AHEAD < count {
                let (later, start, len) = piece_of(piece + AHEAD);
                // both sides alternate on one device: without the announcement, each piece waits for its own read
                later.a.will_need(start, len);
                later.b.will_need(start, len);
            }
            let size = usize::try_from(len).expect("a piece");
            let (a_room, b_room) = room;
            let a = comparison.a.range(start, size, a_room)?;
            let b = comparison.b.range(start, size, b_room)?;
            if a != b {
                differs.store(true, Ordering::Relaxed);
                stop.store(first_only, Ordering::Relaxed);
            }
        }
        progress.add(len)
    })
}

/// Compares two tensors of which one is read from its first byte to its last.
fn equal_in_order(comparison: &ByteComparison<'_>, progress: &RunProgress<'_>) -> Result<bool> {
    std::thread::scope(|scope| {
        let mut a = ByteReader::new(&comparison.a, scope)?;
        let mut b = ByteReader::new(&comparison.b, scope)?;
        let mut left = comparison.nbytes();
        let (mut x, mut y) = (Vec::new(), Vec::new());
        let mut task = progress.task(0);
        while left > 0 {
            let len = usize::try_from(left.min(PIECE)).expect("a piece");
            x.resize(len, 0);
            y.resize(len, 0);
            a.read(&mut x)?;
            b.read(&mut y)?;
            if x != y {
                return Ok(false);
            }
            left -= len as u64;
            task.worked(len)?;
        }
        // checksums are verified at the end
        a.finish()?;
        b.finish()?;
        Ok(true)
    })
}

/// Whether two ranges of files have equal bytes. The error says whether it is of the second.
pub(super) fn ranges_equal(
    a: (&dyn Source, u64),
    b: (&dyn Source, u64),
    len: u64,
) -> std::result::Result<bool, (bool, io::Error)> {
    let (mut x, mut y) = (Vec::new(), Vec::new());
    let mut done = 0;
    while done < len {
        let size = usize::try_from((len - done).min(PIECE)).expect("a piece");
        x.resize(size, 0);
        y.resize(size, 0);
        // saturated: a read at the end of the range of offsets fails as a read behind the file does
        read_exact_at(a.0, a.1.saturating_add(done), &mut x).map_err(|e| (false, e))?;
        read_exact_at(b.0, b.1.saturating_add(done), &mut y).map_err(|e| (true, e))?;
        if x != y {
            return Ok(false);
        }
        done += size as u64;
    }
    Ok(true)
}
