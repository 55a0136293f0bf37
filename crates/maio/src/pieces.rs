//! From a group's accesses to the pieces that are prefetched: whole pages, merged, cut at multiples of a piece.

use anamnesis_template::Access;

/// Bytes of a page. Where pages are larger, the system rounds further.
pub(crate) const PAGE: u64 = 4096;
/// Bytes of the smallest piece: what a loader reads at once.
const PIECE: u64 = 1 << 20;
/// Pieces of this size that a group may have before pieces grow.
const COUNT: u64 = 1 << 16;
/// Ranges that accesses may become before larger gaps are read over.
const RANGES: u64 = 1 << 17;

/// Bytes of one file, by its number in the template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Range {
    pub(crate) file: u32,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Range {
    pub(crate) fn len(&self) -> u64 {
        self.end - self.start
    }
}

/// The ranges of whole pages that a group reads, in order. A strided access becomes one range if no whole page lies
/// between its runs, else a range per run, unless that were too many: then larger gaps are read over. `lens` are the
/// lengths of the files; nothing reaches behind them.
pub(crate) fn ranges(accesses: &[Access], lens: &[u64]) -> Vec<Range> {
    let mut gap = PAGE - 1;
    loop {
        let runs = |access: &Access| {
            if apart(access) <= gap {
                1
            } else {
                u64::from(access.runs.count)
            }
        };
        let count = accesses.iter().map(runs).fold(0, u64::saturating_add);
        let wider = gap.saturating_mul(4);
        // accesses that lie apart are merged only if they follow each other; more than there are they never become
        if count > RANGES && count > accesses.len() as u64 && gap < wider {
            gap = wider;
            continue;
        }
        return merge(accesses, lens, gap);
    }
}

/// Bytes between the runs of an access.
fn apart(access: &Access) -> u64 {
    access.runs.stride.saturating_sub(access.runs.len)
}

fn merge(accesses: &[Access], lens: &[u64], gap: u64) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    let mut add = |file: u32, start: u64, end: u64| {
        let len = usize::try_from(file)
            .ok()
            .and_then(|file| lens.get(file))
            .copied()
            .unwrap_or(0);
        let (start, end) = (
            start - start % PAGE,
            end.checked_next_multiple_of(PAGE).unwrap_or(end).min(len),
        );
        if start >= end {
            return;
        }
        // what is read again is there again, but for a page that two accesses share
        let goes_on = |last: &Range| {
            let (from, to) = (
                last.end.saturating_sub(gap + 1).max(last.start),
                last.end.saturating_add(gap),
            );
            last.file == file && from <= start && start <= to
        };
        match ranges.last_mut() {
            Some(last) if goes_on(last) => last.end = last.end.max(end),
            _ => ranges.push(Range { file, start, end }),
        }
    };
    for access in accesses {
        if apart(access) <= gap {
            let span = access.runs.span();
            add(span.file, span.start, span.end());
        } else {
            access
                .runs
                .iter()
                .for_each(|run| add(run.file, run.start, run.end()));
        }
    }
    ranges
}

/// How large pieces are, the same for all groups of a template, the largest of which reads `most` bytes.
pub(crate) fn piece(most: u64) -> u64 {
    let mut piece = PIECE;
    while most / piece > COUNT {
        piece *= 2;
    }
    piece
}

/// Cuts ranges at multiples of `piece`, so that every one lies in one piece of its file.
pub(crate) fn cut(ranges: &[Range], piece: u64) -> Vec<Range> {
    let mut pieces = Vec::new();
    for range in ranges {
        let mut start = range.start;
        while start < range.end {
            let end = range.end.min((start / piece + 1).saturating_mul(piece));
            pieces.push(Range {
                start,
                end,
                ..*range
            });
            start = end;
        }
    }
    pieces
}

/// Bytes that any of the ranges has, each counted once.
pub(crate) fn footprint<'r>(ranges: impl Iterator<Item = &'r Range>) -> u64 {
    let mut all: Vec<Range> = ranges.copied().collect();
    all.sort_unstable();
    let (mut sum, mut file, mut done) = (0u64, None, 0);
    for range in all {
        if file != Some(range.file) {
            (file, done) = (Some(range.file), 0);
        }
        sum = sum.saturating_add(range.end.saturating_sub(range.start.max(done)));
        done = done.max(range.end);
    }
    sum
}

#[cfg(test)]
mod tests {
    use anamnesis_template::{ByteRange, Runs};

    use super::*;

    fn access(start: u64, len: u64, count: u32, stride: u64) -> Access {
        Access {
            runs: Runs::strided(
                ByteRange {
                    file: 0,
                    start,
                    len,
                },
                count,
                stride,
            )
            .unwrap(),
            at: None,
        }
    }

    #[test]
    fn pages_are_whole_and_gaps_below_a_page_are_read_over() {
        let lens = [1_000_001];
        let range = |start, end| Range {
            file: 0,
            start,
            end,
        };
        assert_eq!(
            ranges(&[access(100, 10, 1, 0), access(8000, 300, 1, 0)], &lens),
            [range(0, 12288)]
        );
        assert_eq!(
            ranges(&[access(8000, 1, 1, 0), access(0, 1, 1, 0)], &lens),
            [range(4096, 8192), range(0, 4096)]
        );
        assert_eq!(
            ranges(
                &[
                    access(0, 8192, 1, 0),
                    access(0, 12288, 1, 0),
                    access(12000, 300, 1, 0)
                ],
                &lens
            ),
            [range(0, 8192), range(0, 16384)]
        );
        assert_eq!(
            ranges(&[access(0, 100, 50, 4000)], &lens),
            [range(0, 196_608)]
        );
        assert_eq!(ranges(&[access(0, 4096, 3, 16384)], &lens).len(), 3);
        assert_eq!(
            ranges(&[access(999_000, 1_001, 1, 0)], &lens),
            [range(995_328, 1_000_001)]
        );
    }

    #[test]
    fn too_many_runs_become_one_range() {
        let lens = [1 << 40];
        let some = ranges(&[access(0, 4096, 1 << 16, 65536)], &lens);
        assert_eq!(some.len(), 1 << 16);
        let many = ranges(&[access(0, 4096, 1 << 18, 65536)], &lens);
        assert_eq!(
            many,
            [Range {
                file: 0,
                start: 0,
                end: ((1 << 18) - 1) * 65536 + 4096
            }]
        );
    }

    #[test]
    fn pieces_are_cut_at_multiples() {
        let pieces = cut(
            &[Range {
                file: 0,
                start: PIECE - PAGE,
                end: 2 * PIECE + 1,
            }],
            PIECE,
        );
        assert_eq!(
            pieces.iter().map(Range::len).collect::<Vec<_>>(),
            [PAGE, PIECE, 1]
        );
        assert_eq!((piece(1 << 30), piece(1 << 37)), (PIECE, 2 * PIECE));
        assert_eq!(footprint(pieces.iter().chain(&pieces)), PIECE + PAGE + 1);
    }
}
