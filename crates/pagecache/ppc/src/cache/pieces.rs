//! Division of a list of ranges into pieces, and merging of close ranges.

use std::path::Path;
use std::sync::Arc;

use crate::{FileRange, RangeList};

/// Bytes of one file that a thread claims at once. `start` is a multiple of the page size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PrefetchPiece {
    pub(super) path: Arc<Path>,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) device: Option<u32>,
}

/// How ranges are divided and merged.
#[derive(Clone, Copy, Debug)]
pub(super) struct PieceLimits {
    /// No piece crosses a multiple of this.
    pub(super) alignment: u64,
    /// Maximum length of a piece; a multiple of the page size, not 0.
    pub(super) max_len: u64,
    /// Successive ranges of one file and device are merged if they are at most this many bytes apart.
    pub(super) gap: u64,
}

impl PieceLimits {
    /// Pieces of at most `size` bytes, without gaps: ranges are merged only if they touch or share a page.
    pub(super) fn exact(size: u64) -> Self {
        Self {
            alignment: size,
            max_len: size,
            gap: page(),
        }
    }
}

fn page() -> u64 {
    rustix::param::page_size() as u64
}

/// A position in a list.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ListCursor {
    /// Index of the next range.
    pub(super) index: usize,
    /// Offset in its file up to which the range is done.
    pub(super) offset: u64,
    /// Number of ranges so far that extend beyond the end of their file.
    pub(super) past_end: u64,
}

impl ListCursor {
    /// Returns the next piece and advances behind it. `len_of` returns the length of a file, at which pieces end, and
    /// `None` for a file whose ranges are skipped.
    ///
    /// Over all calls every range is visited once, so that a list of n ranges costs O(n).
    pub(super) fn next(
        &mut self,
        ranges: &RangeList,
        limits: PieceLimits,
        len_of: impl Fn(&Arc<Path>) -> Option<u64>,
    ) -> Option<PrefetchPiece> {
        let (
            PieceLimits {
                alignment,
                max_len,
                gap,
            },
            page,
        ) = (limits, page());
        loop {
            let range = ranges.get(self.index)?;
            let len = len_of(&range.path);
            let from = range.start.max(self.offset);
            if self.offset == 0 && len.is_some_and(|len| end(range) > len) {
                self.past_end += 1;
            }
            let end = |range: &FileRange| end(range).min(len.unwrap_or(0));
            if from >= end(range) {
                (self.index, self.offset) = (self.index + 1, 0);
                continue;
            }
            let start = from / page * page;
            // at a multiple of the alignment first: pieces after it begin where folios do, wherever the range began
            let max_end = (start / alignment + 1)
                .saturating_mul(alignment)
                .min(start.saturating_add(max_len));
            let (mut stop, mut last) = (end(range), self.index);
            while stop < max_end {
                let Some(next) = ranges.get(last + 1) else {
                    break;
                };
                let is_close = next.start >= start
                    && next.start <= stop.saturating_add(gap)
                    && next.start < max_end;
                if !is_close
                    || next.device != range.device
                    || !same_path(&next.path, &range.path)
                    // an empty or invalid range is counted by the next call and not merged away
                    || next.start >= end(next)
                {
                    break;
                }
                (stop, last) = (stop.max(end(next)), last + 1);
            }
            let piece = PrefetchPiece {
                path: Arc::clone(&range.path),
                start,
                end: stop.min(max_end),
                device: range.device,
            };
            // the last range is cut: it continues at the next call, and the ones before it are done
            (self.index, self.offset) = if stop > max_end {
                (last, max_end)
            } else {
                (last + 1, 0)
            };
            return Some(piece);
        }
    }
}

fn end(range: &FileRange) -> u64 {
    range.start.saturating_add(range.len)
}

/// Compares two paths. The pointers are compared first, because the ranges of a template mostly share one allocation
/// per file.
pub(super) fn same_path(a: &Arc<Path>, b: &Arc<Path>) -> bool {
    Arc::ptr_eq(a, b) || a == b
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: u64 = 1 << 40;

    fn list_of(ranges: &[(&str, u64, u64)]) -> RangeList {
        let range = |&(path, start, len): &(&str, u64, u64)| FileRange {
            path: Path::new(path).into(),
            start,
            len,
            device: None,
        };
        ranges.iter().map(range).collect::<Vec<_>>().into()
    }

    /// Path, start and end of each piece, with gaps of at most a page.
    fn pieces(
        ranges: &[(&str, u64, u64)],
        alignment: u64,
        max_len: u64,
    ) -> Vec<(String, u64, u64)> {
        pieces_with(
            ranges,
            PieceLimits {
                alignment,
                max_len,
                gap: page(),
            },
        )
    }

    fn pieces_with(ranges: &[(&str, u64, u64)], limits: PieceLimits) -> Vec<(String, u64, u64)> {
        let (list, mut cursor, mut pieces) = (list_of(ranges), ListCursor::default(), Vec::new());
        while let Some(piece) = cursor.next(&list, limits, |path| {
            (**path != *Path::new("unreadable")).then_some(LEN)
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
    fn adjacent_ranges_are_merged_and_long_ranges_are_divided() {
        let piece = |path: &str, start, end| (path.to_owned(), start, end);
        let size = 1 << 20;
        assert_eq!(
            pieces(&[("a", 0, 10), ("a", 10, 5), ("a", 4000, 96)], size, size),
            [piece("a", 0, 4096)]
        );
        // a gap of one page is merged, a longer one is not
        assert_eq!(
            pieces(&[("a", 0, 4096), ("a", 8192, 1)], size, size),
            [piece("a", 0, 8193)]
        );
        assert_eq!(
            pieces(&[("a", 0, 4095), ("a", 8192, 1)], size, size),
            [piece("a", 0, 4095), piece("a", 8192, 8193)]
        );
        assert_eq!(
            pieces(&[("a", 0, 10), ("b", 10, 10)], size, size),
            [piece("a", 0, 10), piece("b", 0, 20)]
        );
        // list order is kept: a range before the previous one starts a piece of its own
        assert_eq!(
            pieces(&[("a", 8192, 1), ("a", 0, 1)], size, size),
            [piece("a", 8192, 8193), piece("a", 0, 1)]
        );
        // pieces start at the page in which the range begins, and end at multiples of the alignment
        let divided = [
            piece("a", size - 4096, size),
            piece("a", size, 2 * size),
            piece("a", 2 * size, 2 * size + 7),
        ];
        assert_eq!(pieces(&[("a", size - 1, size + 8)], size, size), divided);
        assert_eq!(
            pieces(&[("a", 0, 12_288)], size, 8192),
            [piece("a", 0, 8192), piece("a", 8192, 12_288)]
        );
        // a range that contains the next one and extends beyond the piece
        let overlapping = [("a", 0, 8), ("a", 5, size), ("a", size, 9)];
        assert_eq!(
            pieces(&overlapping, size, size),
            [piece("a", 0, size), piece("a", size, size + 9)]
        );
    }

    #[test]
    fn ranges_are_merged_with_gaps_up_to_the_limit() {
        let piece = |start, end| ("a".to_owned(), start, end);
        let ranges = [
            ("a", 0, 4096),
            ("a", 16_384, 4096),
            ("a", 65_536, 4096),
            ("b", 69_632, 1),
            ("a", 0, 1),
        ];
        let limits = PieceLimits {
            alignment: 1 << 20,
            max_len: 1 << 20,
            gap: 12_288,
        };
        assert_eq!(
            pieces_with(&ranges[..3], limits),
            [piece(0, 20_480), piece(65_536, 69_632)]
        );
        assert_eq!(
            pieces_with(
                &ranges[..3],
                PieceLimits {
                    gap: 1 << 16,
                    ..limits
                }
            ),
            [piece(0, 69_632)]
        );
        assert_eq!(
            pieces_with(
                &ranges[..3],
                PieceLimits {
                    gap: 1 << 16,
                    max_len: 32_768,
                    ..limits
                }
            ),
            [piece(0, 20_480), piece(65_536, 69_632)]
        );
        assert_eq!(
            pieces_with(
                &ranges[2..],
                PieceLimits {
                    gap: 1 << 16,
                    ..limits
                }
            )
            .len(),
            3,
            "other files and earlier offsets are not merged"
        );
    }

    #[test]
    fn invalid_ranges_end_the_list_without_overflow() {
        let max = u64::MAX;
        assert!(
            pieces(
                &[
                    ("a", 0, 0),
                    ("a", max, 0),
                    ("a", LEN, 9),
                    ("unreadable", 0, 9)
                ],
                4096,
                4096
            )
            .is_empty()
        );
        assert!(pieces(&[("a", max - 5, max)], 1 << 20, 1 << 20).is_empty());
        let at_the_end = pieces(&[("a", LEN - 5, max), ("a", LEN, 7)], 1 << 20, 1 << 20);
        assert_eq!(at_the_end, [("a".to_owned(), LEN - 4096, LEN)]);
    }
}
