//! The schedule of a worker: its chunks in reading order, and an index that finds the position of
//! any byte.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use anamnesis_ppc::{FileRange, RangeList};

use anamnesis_template::FileSpan;

/// Number of index rows that a search examines for one chunk of a file. It bounds the time per
/// event, which has a deadline; a template that reads the same chunk more often than this is
/// followed less exactly.
const MAX_CANDIDATES: usize = 4096;

/// The chunks of a group in reading order. A *position* is a number of bytes from the beginning of
/// the schedule. A byte of a file that is read several times has several positions.
#[derive(Debug)]
pub(crate) struct Schedule {
    ranges: Arc<[FileRange]>,
    files: Box<[u32]>,
    /// The position of each chunk, followed by the end.
    starts: Box<[u64]>,
    chunk_len: u64,
    /// For each chunk (file, number of the chunk in the file, index), ascending.
    index: Box<[(u32, u64, usize)]>,
}

/// Where an access is in the schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AccessPosition {
    /// The first chunk of the access.
    pub(crate) first_chunk: usize,
    /// The positions of its bytes.
    pub(crate) positions: Range<u64>,
}

impl Schedule {
    /// Creates a schedule from spans, each of which must lie within one chunk of its file.
    pub(crate) fn new(
        ranges: &[FileSpan],
        chunk_len: u64,
        paths: &[Arc<Path>],
        device: Option<u32>,
    ) -> Self {
        let path =
            |file: u32| Arc::clone(&paths[usize::try_from(file).expect("an index of a template")]);
        let io = |range: &FileSpan| FileRange {
            path: path(range.file),
            start: range.start,
            len: range.len(),
            device,
        };
        let mut starts = vec![0];
        for range in ranges {
            starts.push(starts[starts.len() - 1] + range.len());
        }
        let mut index: Vec<_> = ranges
            .iter()
            .enumerate()
            .map(|(i, range)| (range.file, range.start / chunk_len, i))
            .collect();
        // sorted by file and chunk number, so that two binary searches find all positions of a byte
        index.sort_unstable();
        Self {
            ranges: ranges.iter().map(io).collect(),
            files: ranges.iter().map(|range| range.file).collect(),
            starts: starts.into(),
            chunk_len,
            index: index.into(),
        }
    }

    /// Returns the number of chunks.
    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Returns the position after the last chunk.
    pub(crate) fn nbytes(&self) -> u64 {
        self.starts[self.len()]
    }

    /// Returns the position at which chunk `i` starts, or the end if there is no such chunk.
    pub(crate) fn start_of(&self, i: usize) -> u64 {
        self.starts[i.min(self.len())]
    }

    /// Returns the chunk at a position.
    pub(crate) fn chunk_at(&self, position: u64) -> usize {
        self.whole_chunks_before(position)
    }

    /// Returns the number of chunks that start before a position.
    pub(crate) fn chunks_up_to(&self, position: u64) -> usize {
        self.starts
            .partition_point(|&begin| begin < position)
            .min(self.len())
    }

    /// Returns the number of chunks that end at or before a position.
    pub(crate) fn whole_chunks_before(&self, position: u64) -> usize {
        self.starts
            .partition_point(|&begin| begin <= position)
            .saturating_sub(1)
    }

    /// Returns chunk `i` as bytes of a file, by the file's number in the template.
    pub(crate) fn span(&self, i: usize) -> FileSpan {
        let io = &self.ranges[i];
        FileSpan {
            file: self.files[i],
            start: io.start,
            end: io.start + io.len,
        }
    }

    /// Returns chunk `i` as a range for the runtime.
    pub(crate) fn file_range(&self, i: usize) -> &FileRange {
        &self.ranges[i]
    }

    /// Returns these chunks as a list for the runtime.
    pub(crate) fn ranges(&self, range: Range<usize>) -> RangeList {
        RangeList::slice(&self.ranges, range)
    }

    /// Returns the accelerator for which the bytes are read.
    pub(crate) fn device(&self) -> Option<u32> {
        self.ranges.first().and_then(|io| io.device)
    }

    /// Sets the accelerator for which the bytes are read.
    pub(crate) fn set_device(&mut self, device: Option<u32>) {
        if self.device() != device {
            // replaced and not changed: requests in progress share the list
            self.ranges = self
                .ranges
                .iter()
                .map(|io| FileRange {
                    device,
                    ..io.clone()
                })
                .collect();
        }
    }

    /// Whether both schedules have the same chunks.
    pub(crate) fn same_ranges(&self, other: &Self) -> bool {
        self.starts == other.starts && (0..self.len()).all(|i| self.span(i) == other.span(i))
    }

    /// Returns where these bytes are read, for a worker at `position`: the first occurrence at or
    /// ahead of it within `reach`; otherwise the last one behind it within `reach`; otherwise the
    /// first one ahead, or the last one behind.
    pub(crate) fn find(
        &self,
        bytes: &FileSpan,
        position: u64,
        reach: u64,
    ) -> Option<AccessPosition> {
        // Bytes before the first chunk of the access are in a gap of the template.
        let first = (bytes.start / self.chunk_len..=(bytes.end - 1) / self.chunk_len)
            .take(MAX_CANDIDATES)
            .find_map(|chunk_number| self.find_in(bytes, chunk_number, position, reach))?;
        let offset = bytes.start.saturating_sub(self.ranges[first].start);
        let mut last = first;
        // an access goes on into the next chunks as far as they follow it in the file
        while last + 1 < self.len()
            && self.is_continued(last)
            && self.ranges[last + 1].start < bytes.end
        {
            last += 1;
        }
        let len = bytes.end.min(self.span(last).end) - self.ranges[last].start;
        Some(AccessPosition {
            first_chunk: first,
            positions: self.starts[first] + offset..self.starts[last] + len,
        })
    }

    fn find_in(
        &self,
        bytes: &FileSpan,
        chunk_number: u64,
        position: u64,
        reach: u64,
    ) -> Option<usize> {
        let rows = self.rows(bytes.file, chunk_number);
        // rows of one chunk are in schedule order, so the nearest reads ahead and behind are next
        // to the position
        let middle = rows.partition_point(|row| row.2 < self.chunk_at(position));
        let overlaps_bytes = |row: &&(u32, u64, usize)| overlap(&self.span(row.2), bytes);
        let ahead = rows[middle..]
            .iter()
            .take(MAX_CANDIDATES)
            .find(overlaps_bytes)
            .map(|row| row.2);
        let behind = || {
            rows[..middle]
                .iter()
                .rev()
                .take(MAX_CANDIDATES)
                .find(overlaps_bytes)
                .map(|row| row.2)
        };
        if ahead.is_some_and(|i| self.starts[i] <= position.saturating_add(reach)) {
            return ahead;
        }
        let behind = behind();
        if behind.is_some_and(|i| self.starts[i + 1].saturating_add(reach) >= position) {
            behind
        } else {
            ahead.or(behind)
        }
    }

    /// Whether the schedule contains any of these bytes.
    pub(crate) fn contains(&self, bytes: &FileSpan) -> bool {
        (bytes.start / self.chunk_len..=(bytes.end - 1) / self.chunk_len)
            .take(MAX_CANDIDATES)
            .any(|chunk_number| {
                self.rows(bytes.file, chunk_number)
                    .iter()
                    .take(MAX_CANDIDATES)
                    .any(|row| overlap(&self.span(row.2), bytes))
            })
    }

    /// Returns the index rows of one chunk of a file, in order.
    fn rows(&self, file: u32, chunk_number: u64) -> &[(u32, u64, usize)] {
        let start = self
            .index
            .partition_point(|row| (row.0, row.1) < (file, chunk_number));
        let len = self.index[start..].partition_point(|row| (row.0, row.1) == (file, chunk_number));
        &self.index[start..start + len]
    }

    /// Whether the next chunk continues this one in the same file.
    fn is_continued(&self, i: usize) -> bool {
        let (this, next) = (self.span(i), self.span(i + 1));
        this.file == next.file && this.end == next.start
    }

    /// Returns the chunks that overlap `range`, which must lie in one chunk of its file, in order.
    pub(crate) fn overlaps(&self, range: &FileSpan) -> impl Iterator<Item = usize> + '_ {
        let range = *range;
        let rows = self
            .rows(range.file, range.start / self.chunk_len)
            .iter()
            .map(|row| row.2);
        rows.filter(move |&i| overlap(&self.span(i), &range))
    }
}

fn overlap(a: &FileSpan, b: &FileSpan) -> bool {
    a.start < b.end && b.start < a.end
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: u64 = 1 << 20;

    fn schedule(starts: &[u64]) -> Schedule {
        let ranges: Vec<_> = starts
            .iter()
            .map(|&start| FileSpan {
                file: 0,
                start: start * P,
                end: (start + 1) * P,
            })
            .collect();
        Schedule::new(&ranges, P, &[Path::new("m").into()], None)
    }

    fn bytes(start: u64, end: u64) -> FileSpan {
        FileSpan {
            file: 0,
            start,
            end,
        }
    }

    #[test]
    fn the_nearest_occurrence_ahead_is_found() {
        let schedule = schedule(&[0, 1, 2, 1, 7]);
        let found = |start, position| {
            schedule
                .find(&bytes(start, start + 1), position, P)
                .map(|found| found.first_chunk)
        };
        assert_eq!(found(P + 5, 0), Some(1));
        assert_eq!(found(P + 5, 2 * P), Some(3));
        assert_eq!(found(P + 5, 4 * P), Some(3));
        assert_eq!(
            (found(5, P), found(5, 4 * P), found(2 * P, 3 * P)),
            (Some(0), Some(0), Some(2))
        );
        assert_eq!(found(5 * P, 0), None);
        // An access across a gap, and one that covers several chunks.
        assert_eq!(
            schedule
                .find(&bytes(6 * P, 8 * P), 0, P)
                .unwrap()
                .first_chunk,
            4
        );
        assert_eq!(
            schedule
                .find(&bytes(10, 2 * P + 10), 0, P)
                .unwrap()
                .positions,
            10..2 * P + 10
        );
        assert_eq!(
            schedule.overlaps(&bytes(P, P + 1)).collect::<Vec<_>>(),
            [1, 3]
        );
    }

    #[test]
    fn a_chunk_is_found_by_position() {
        let schedule = schedule(&[0, 1]);
        assert_eq!(
            (
                schedule.chunk_at(0),
                schedule.chunk_at(P - 1),
                schedule.chunk_at(P),
                schedule.chunk_at(2 * P)
            ),
            (0, 0, 1, 2)
        );
        assert_eq!(
            (
                schedule.chunks_up_to(0),
                schedule.chunks_up_to(1),
                schedule.chunks_up_to(P),
                schedule.chunks_up_to(9 * P)
            ),
            (0, 1, 1, 2)
        );
    }
}
