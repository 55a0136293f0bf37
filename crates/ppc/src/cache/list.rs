//! A list of ranges, cut and merged into pieces that one thread takes at once.

use std::path::Path;
use std::sync::Arc;

use crate::{Io, Ios};

/// Bytes of one file, from a page's first byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) path: Arc<Path>,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) device: Option<u32>,
}

/// How a list is cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// A piece ends at a multiple of this.
    pub(super) size: u64,
    /// A piece has at most so many bytes; whole pages, not 0.
    pub(super) most: u64,
    /// Neighbours in the same file, for the same device, are one piece if at most so many bytes lie between them.
    pub(super) gap: u64,
}

impl Cut {
    /// Pieces of this size, and nothing in them that was not asked for but what shares a page with it.
    pub(super) fn exact(size: u64) -> Self {
        Self {
            size,
            most: size,
            gap: page(),
        }
    }
}

fn page() -> u64 {
    rustix::param::page_size() as u64
}

/// A place in a list.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cursor {
    /// The range that is next.
    pub(super) index: usize,
    /// Its bytes before this are done.
    pub(super) at: u64,
    /// Ranges that went past their file's end.
    pub(super) past_end: u64,
}

impl Cursor {
    /// The next piece, and moves behind it. It ends where its file does, too: `len_of` says where that is, and `None` for
    /// a file that is not to be read.
    ///
    /// Looks at every range once, over all calls.
    pub(super) fn next(
        &mut self,
        ios: &Ios,
        cut: Cut,
        len_of: impl Fn(&Arc<Path>) -> Option<u64>,
    ) -> Option<Piece> {
        let (Cut { size, most, gap }, page) = (cut, page());
        loop {
            let io = ios.get(self.index)?;
            let len = len_of(&io.path);
            let from = io.start.max(self.at);
            if self.at == 0 && len.is_some_and(|len| end(io) > len) {
                self.past_end += 1;
            }
            let end = |io: &Io| end(io).min(len.unwrap_or(0));
            if from >= end(io) {
                (self.index, self.at) = (self.index + 1, 0);
                continue;
            }
            let start = from / page * page;
            let most = (start / size + 1)
                .saturating_mul(size)
                .min(start.saturating_add(most));
            let (mut stop, mut last) = (end(io), self.index);
            while stop < most {
                let Some(next) = ios.get(last + 1) else { break };
                let near = next.start >= start
                    && next.start <= stop.saturating_add(gap)
                    && next.start < most;
                if !near
                    || next.device != io.device
                    || !same(&next.path, &io.path)
                    || next.start >= end(next)
                {
                    break;
                }
                (stop, last) = (stop.max(end(next)), last + 1);
            }
            let piece = Piece {
                path: Arc::clone(&io.path),
                start,
                end: stop.min(most),
                device: io.device,
            };
            (self.index, self.at) = if stop > most {
                (last, most)
            } else {
                (last + 1, 0)
            };
            return Some(piece);
        }
    }
}

fn end(io: &Io) -> u64 {
    io.start.saturating_add(io.len)
}

/// Paths of a template are mostly the same allocation.
pub(super) fn same(a: &Arc<Path>, b: &Arc<Path>) -> bool {
    Arc::ptr_eq(a, b) || a == b
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: u64 = 1 << 40;

    fn ios(ranges: &[(&str, u64, u64)]) -> Ios {
        let io = |&(path, start, len): &(&str, u64, u64)| Io {
            path: Path::new(path).into(),
            start,
            len,
            device: None,
        };
        ranges.iter().map(io).collect::<Vec<_>>().into()
    }

    fn pieces(ranges: &[(&str, u64, u64)], size: u64, most: u64) -> Vec<(String, u64, u64)> {
        pieces_cut(
            ranges,
            Cut {
                size,
                most,
                gap: page(),
            },
        )
    }

    fn pieces_cut(ranges: &[(&str, u64, u64)], cut: Cut) -> Vec<(String, u64, u64)> {
        let (list, mut cursor, mut pieces) = (ios(ranges), Cursor::default(), Vec::new());
        while let Some(piece) = cursor.next(&list, cut, |path| {
            (**path != *Path::new("refused")).then_some(LEN)
        }) {
            pieces.push((
                piece.path.to_str().unwrap().to_owned(),
                piece.start,
                piece.end,
            ));
            assert!(pieces.len() < 1000);
        }
        pieces
    }

    #[test]
    fn neighbours_merge_and_long_ranges_are_cut() {
        let of = |path: &str, start, end| (path.to_owned(), start, end);
        let size = 1 << 20;
        assert_eq!(
            pieces(&[("a", 0, 10), ("a", 10, 5), ("a", 4000, 96)], size, size),
            [of("a", 0, 4096)]
        );
        // a page between them is near, more is not
        assert_eq!(
            pieces(&[("a", 0, 4096), ("a", 8192, 1)], size, size),
            [of("a", 0, 8193)]
        );
        assert_eq!(
            pieces(&[("a", 0, 4095), ("a", 8192, 1)], size, size),
            [of("a", 0, 4095), of("a", 8192, 8193)]
        );
        assert_eq!(
            pieces(&[("a", 0, 10), ("b", 10, 10)], size, size),
            [of("a", 0, 10), of("b", 0, 20)]
        );
        // the order is kept: what lies before is a piece of its own
        assert_eq!(
            pieces(&[("a", 8192, 1), ("a", 0, 1)], size, size),
            [of("a", 8192, 8193), of("a", 0, 1)]
        );
        // at multiples of the size, from the page that a range begins in
        let cut = [
            of("a", size - 4096, size),
            of("a", size, 2 * size),
            of("a", 2 * size, 2 * size + 7),
        ];
        assert_eq!(pieces(&[("a", size - 1, size + 8)], size, size), cut);
        assert_eq!(
            pieces(&[("a", 0, 12_288)], size, 8192),
            [of("a", 0, 8192), of("a", 8192, 12_288)]
        );
        // one that holds the next, and goes beyond the cut
        let within = [("a", 0, 8), ("a", 5, size), ("a", size, 9)];
        assert_eq!(
            pieces(&within, size, size),
            [of("a", 0, size), of("a", size, size + 9)]
        );
    }

    #[test]
    fn what_lies_between_near_ranges_is_read_along() {
        let of = |start, end| ("a".to_owned(), start, end);
        let rows = [
            ("a", 0, 4096),
            ("a", 16_384, 4096),
            ("a", 65_536, 4096),
            ("b", 69_632, 1),
            ("a", 0, 1),
        ];
        let cut = Cut {
            size: 1 << 20,
            most: 1 << 20,
            gap: 12_288,
        };
        assert_eq!(
            pieces_cut(&rows[..3], cut),
            [of(0, 20_480), of(65_536, 69_632)]
        );
        assert_eq!(
            pieces_cut(
                &rows[..3],
                Cut {
                    gap: 1 << 16,
                    ..cut
                }
            ),
            [of(0, 69_632)]
        );
        assert_eq!(
            pieces_cut(
                &rows[..3],
                Cut {
                    gap: 1 << 16,
                    most: 32_768,
                    ..cut
                }
            ),
            [of(0, 20_480), of(65_536, 69_632)]
        );
        assert_eq!(
            pieces_cut(
                &rows[2..],
                Cut {
                    gap: 1 << 16,
                    ..cut
                }
            )
            .len(),
            3,
            "other files, and what lies before"
        );
    }

    #[test]
    fn nonsense_ends() {
        let max = u64::MAX;
        assert!(
            pieces(
                &[("a", 0, 0), ("a", max, 0), ("a", LEN, 9), ("refused", 0, 9)],
                4096,
                4096
            )
            .is_empty()
        );
        assert!(pieces(&[("a", max - 5, max)], 1 << 20, 1 << 20).is_empty());
        let piece = pieces(&[("a", LEN - 5, max), ("a", LEN, 7)], 1 << 20, 1 << 20);
        assert_eq!(piece, [("a".to_owned(), LEN - 4096, LEN)]);
    }
}
