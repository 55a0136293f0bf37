//! The accesses of a group as spans of whole pages: what is read into a page cache.

use crate::Access;

/// Bytes of a page, the unit in which the kernel caches files. On systems with larger pages the
/// kernel rounds further.
pub const PAGE: u64 = 4096;
/// Number of spans that a group's accesses may become before larger gaps are included. It bounds
/// the memory for accesses with a stride, whose number of runs a template states freely.
const MAX_SPANS: u64 = 1 << 17;

/// Bytes `start..end` of one file, by its number in the template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileSpan {
    /// Index into [`Template::files`](crate::Template::files).
    pub file: u32,
    /// Offset of the first byte.
    pub start: u64,
    /// Offset behind the last byte.
    pub end: u64,
}

impl FileSpan {
    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

/// Returns the spans of whole pages that a group reads, in its order. An access with a stride
/// becomes one span if less than a page lies between its runs, otherwise one span per run. If that
/// were more than 131 072, larger gaps are included. `lens` are the lengths of the files; no
/// span ends after its file.
pub fn page_spans(accesses: &[Access], lens: &[u64]) -> Vec<FileSpan> {
    let mut gap = PAGE - 1;
    loop {
        let runs = |access: &Access| {
            if access.bytes.gap() <= gap {
                1
            } else {
                access.bytes.count
            }
        };
        let count = accesses.iter().map(runs).fold(0, u64::saturating_add);
        // fourfold, so that few rounds over the accesses suffice for any stride
        let wider = gap.saturating_mul(4);
        // Larger gaps merge the runs of one access. They merge separate accesses only where these
        // are consecutive, so widening cannot go below the number of accesses; the loop stops
        // there.
        if count > MAX_SPANS && count > accesses.len() as u64 && gap < wider {
            gap = wider;
            continue;
        }
        return merge(accesses, lens, gap);
    }
}

fn merge(accesses: &[Access], lens: &[u64], gap: u64) -> Vec<FileSpan> {
    let mut ranges: Vec<FileSpan> = Vec::new();
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
        // An access continues the last span if it starts in its last page, which both may share, or
        // within the gap after it. An access that goes back further reads the bytes a second time
        // and stays a span of its own, so that the schedule contains both reads.
        let continues = |last: &FileSpan| {
            let (from, to) = (
                last.end.saturating_sub(gap + 1).max(last.start),
                last.end.saturating_add(gap),
            );
            last.file == file && from <= start && start <= to
        };
        match ranges.last_mut() {
            Some(last) if continues(last) => last.end = last.end.max(end),
            _ => ranges.push(FileSpan { file, start, end }),
        }
    };
    for access in accesses {
        if access.bytes.gap() <= gap {
            add(access.file, access.bytes.start, access.bytes.end());
        } else {
            let len = access.bytes.len;
            access
                .bytes
                .starts()
                .for_each(|start| add(access.file, start, start + len));
        }
    }
    ranges
}

/// Returns the number of distinct bytes in the spans.
pub fn footprint<'r>(ranges: impl Iterator<Item = &'r FileSpan>) -> u64 {
    let mut all: Vec<FileSpan> = ranges.copied().collect();
    // sorted, one pass counts bytes that several spans cover once
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
    use super::*;
    use crate::StridedRange;

    fn access(start: u64, len: u64, count: u64, stride: u64) -> Access {
        Access {
            file: 0,
            bytes: StridedRange::strided(start, len, count, stride).unwrap(),
            at: None,
        }
    }

    #[test]
    fn accesses_become_whole_pages_and_gaps_below_a_page_are_merged() {
        let lens = [1_000_001];
        let range = |start, end| FileSpan {
            file: 0,
            start,
            end,
        };
        assert_eq!(
            page_spans(&[access(100, 10, 1, 0), access(8000, 300, 1, 0)], &lens),
            [range(0, 12288)]
        );
        assert_eq!(
            page_spans(&[access(8000, 1, 1, 0), access(0, 1, 1, 0)], &lens),
            [range(4096, 8192), range(0, 4096)]
        );
        assert_eq!(
            page_spans(
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
            page_spans(&[access(0, 100, 50, 4000)], &lens),
            [range(0, 196_608)]
        );
        assert_eq!(page_spans(&[access(0, 4096, 3, 16384)], &lens).len(), 3);
        assert_eq!(
            page_spans(&[access(999_000, 1_001, 1, 0)], &lens),
            [range(995_328, 1_000_001)]
        );
    }

    #[test]
    fn too_many_runs_become_one_span() {
        let lens = [1 << 40];
        let some = page_spans(&[access(0, 4096, 1 << 16, 65536)], &lens);
        assert_eq!(some.len(), 1 << 16);
        let many = page_spans(&[access(0, 4096, 1 << 18, 65536)], &lens);
        assert_eq!(
            many,
            [FileSpan {
                file: 0,
                start: 0,
                end: ((1 << 18) - 1) * 65536 + 4096
            }]
        );
    }
}
