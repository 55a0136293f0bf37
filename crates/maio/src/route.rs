//! A group's way through the model: its pieces in order, and where in it any byte is.

use std::ops::Range as Span;
use std::path::Path;
use std::sync::Arc;

use anamnesis_ppc::{Io, Ios};

use crate::pieces::Range;

/// Pieces of one place of a file that are looked at; a template that visits a place more often is not served well.
const LOOK: usize = 4096;

/// The pieces of a group in order. A *position* is a number of bytes from the beginning, so that the same byte of a
/// file has several if it is read several times.
#[derive(Debug)]
pub(crate) struct Route {
    ios: Arc<[Io]>,
    files: Box<[u32]>,
    /// The position of each piece, and the end.
    begins: Box<[u64]>,
    piece: u64,
    /// (file, which piece of it, index), ascending.
    index: Box<[(u32, u64, usize)]>,
}

/// Where an access is on the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    /// The first piece of it.
    pub(crate) first: usize,
    /// The positions.
    pub(crate) span: Span<u64>,
}

impl Route {
    /// `ranges` must each lie within one piece of their file.
    pub(crate) fn new(
        ranges: &[Range],
        piece: u64,
        paths: &[Arc<Path>],
        device: Option<u32>,
    ) -> Self {
        let path =
            |file: u32| Arc::clone(&paths[usize::try_from(file).expect("an index of a template")]);
        let io = |range: &Range| Io {
            path: path(range.file),
            start: range.start,
            len: range.len(),
            device,
        };
        let mut begins = vec![0];
        for range in ranges {
            begins.push(begins[begins.len() - 1] + range.len());
        }
        let mut index: Vec<_> = ranges
            .iter()
            .enumerate()
            .map(|(i, range)| (range.file, range.start / piece, i))
            .collect();
        index.sort_unstable();
        Self {
            ios: ranges.iter().map(io).collect(),
            files: ranges.iter().map(|range| range.file).collect(),
            begins: begins.into(),
            piece,
            index: index.into(),
        }
    }

    /// How many pieces.
    pub(crate) fn len(&self) -> usize {
        self.ios.len()
    }

    /// The position behind the last piece.
    pub(crate) fn nbytes(&self) -> u64 {
        self.begins[self.len()]
    }

    /// The position where a piece begins; of the piece behind the last, the end.
    pub(crate) fn begin(&self, i: usize) -> u64 {
        self.begins[i.min(self.len())]
    }

    /// The piece at a position.
    pub(crate) fn at(&self, position: u64) -> usize {
        self.whole(position)
    }

    /// The pieces up to a position, the one it lies in included.
    pub(crate) fn up_to(&self, position: u64) -> usize {
        self.begins
            .partition_point(|&begin| begin < position)
            .min(self.len())
    }

    /// The pieces that end before a position, or there.
    pub(crate) fn whole(&self, position: u64) -> usize {
        self.begins
            .partition_point(|&begin| begin <= position)
            .saturating_sub(1)
    }

    /// A piece as bytes of a file.
    pub(crate) fn range(&self, i: usize) -> Range {
        let io = &self.ios[i];
        Range {
            file: self.files[i],
            start: io.start,
            end: io.start + io.len,
        }
    }

    /// A piece as it is answered.
    pub(crate) fn io(&self, i: usize) -> &Io {
        &self.ios[i]
    }

    /// Some of it, as an answer.
    pub(crate) fn ios(&self, range: Span<usize>) -> Ios {
        Ios::of(&self.ios, range)
    }

    /// The accelerator that the bytes are for.
    pub(crate) fn device(&self) -> Option<u32> {
        self.ios.first().and_then(|io| io.device)
    }

    /// From now on the bytes are for this accelerator.
    pub(crate) fn aim(&mut self, device: Option<u32>) {
        if self.device() != device {
            self.ios = self
                .ios
                .iter()
                .map(|io| Io {
                    device,
                    ..io.clone()
                })
                .collect();
        }
    }

    /// Whether the two are the same.
    pub(crate) fn alike(&self, other: &Self) -> bool {
        self.begins == other.begins && (0..self.len()).all(|i| self.range(i) == other.range(i))
    }

    /// Where these bytes are, for a worker whose front is at `front`: the first place at or ahead of it, within
    /// `reach`; else the last one behind it, within `reach`; else the first ahead, or the last behind.
    pub(crate) fn find(&self, bytes: &Range, front: u64, reach: u64) -> Option<Spot> {
        // what lies before the first piece of theirs is in a gap
        let first = (bytes.start / self.piece..=(bytes.end - 1) / self.piece)
            .take(LOOK)
            .find_map(|place| self.find_in(bytes, place, front, reach))?;
        let offset = bytes.start.saturating_sub(self.ios[first].start);
        let mut last = first;
        while last + 1 < self.len() && self.follows(last) && self.ios[last + 1].start < bytes.end {
            last += 1;
        }
        let len = bytes.end.min(self.range(last).end) - self.ios[last].start;
        Some(Spot {
            first,
            span: self.begins[first] + offset..self.begins[last] + len,
        })
    }

    fn find_in(&self, bytes: &Range, place: u64, front: u64, reach: u64) -> Option<usize> {
        let rows = self.rows(bytes.file, place);
        let middle = rows.partition_point(|row| row.2 < self.at(front));
        let meets = |row: &&(u32, u64, usize)| meet(&self.range(row.2), bytes);
        let ahead = rows[middle..]
            .iter()
            .take(LOOK)
            .find(meets)
            .map(|row| row.2);
        let behind = || {
            rows[..middle]
                .iter()
                .rev()
                .take(LOOK)
                .find(meets)
                .map(|row| row.2)
        };
        if ahead.is_some_and(|i| self.begins[i] <= front.saturating_add(reach)) {
            return ahead;
        }
        let behind = behind();
        if behind.is_some_and(|i| self.begins[i + 1].saturating_add(reach) >= front) {
            behind
        } else {
            ahead.or(behind)
        }
    }

    /// Whether any of these bytes is on the way.
    pub(crate) fn has(&self, bytes: &Range) -> bool {
        (bytes.start / self.piece..=(bytes.end - 1) / self.piece)
            .take(LOOK)
            .any(|place| {
                self.rows(bytes.file, place)
                    .iter()
                    .take(LOOK)
                    .any(|row| meet(&self.range(row.2), bytes))
            })
    }

    /// The rows of the index for one piece of a file, in order.
    fn rows(&self, file: u32, place: u64) -> &[(u32, u64, usize)] {
        let start = self
            .index
            .partition_point(|row| (row.0, row.1) < (file, place));
        let len = self.index[start..].partition_point(|row| (row.0, row.1) == (file, place));
        &self.index[start..start + len]
    }

    /// Whether the next piece goes on where this one ends.
    fn follows(&self, i: usize) -> bool {
        let (this, next) = (self.range(i), self.range(i + 1));
        this.file == next.file && this.end == next.start
    }

    /// The pieces that lie in the same piece of a file as `range` and share bytes with it, in order.
    pub(crate) fn overlaps(&self, range: &Range) -> impl Iterator<Item = usize> + '_ {
        let range = *range;
        let rows = self
            .rows(range.file, range.start / self.piece)
            .iter()
            .map(|row| row.2);
        rows.filter(move |&i| meet(&self.range(i), &range))
    }
}

fn meet(a: &Range, b: &Range) -> bool {
    a.start < b.end && b.start < a.end
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: u64 = 1 << 20;

    fn route(starts: &[u64]) -> Route {
        let ranges: Vec<_> = starts
            .iter()
            .map(|&start| Range {
                file: 0,
                start: start * P,
                end: (start + 1) * P,
            })
            .collect();
        Route::new(&ranges, P, &[Path::new("m").into()], None)
    }

    fn bytes(start: u64, end: u64) -> Range {
        Range {
            file: 0,
            start,
            end,
        }
    }

    #[test]
    fn the_nearest_place_ahead_is_found() {
        let route = route(&[0, 1, 2, 1, 7]);
        let found = |start, front| {
            route
                .find(&bytes(start, start + 1), front, P)
                .map(|spot| spot.first)
        };
        assert_eq!(found(P + 5, 0), Some(1));
        assert_eq!(found(P + 5, 2 * P), Some(3));
        assert_eq!(found(P + 5, 4 * P), Some(3));
        assert_eq!(
            (found(5, P), found(5, 4 * P), found(2 * P, 3 * P)),
            (Some(0), Some(0), Some(2))
        );
        assert_eq!(found(5 * P, 0), None);
        // an access over a gap, and one of several pieces
        assert_eq!(route.find(&bytes(6 * P, 8 * P), 0, P).unwrap().first, 4);
        assert_eq!(
            route.find(&bytes(10, 2 * P + 10), 0, P).unwrap().span,
            10..2 * P + 10
        );
        assert_eq!(route.overlaps(&bytes(P, P + 1)).collect::<Vec<_>>(), [1, 3]);
    }

    #[test]
    fn positions_and_pieces() {
        let route = route(&[0, 1]);
        assert_eq!(
            (route.at(0), route.at(P - 1), route.at(P), route.at(2 * P)),
            (0, 0, 1, 2)
        );
        assert_eq!(
            (
                route.up_to(0),
                route.up_to(1),
                route.up_to(P),
                route.up_to(9 * P)
            ),
            (0, 1, 1, 2)
        );
    }
}
