//! The bytes of a file that were read, as ranges that do not touch one another.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::blocks::BlockMemory;

/// Bytes that were read, within the memory of the store.
pub(super) struct ReadRanges {
    map: BTreeMap<u64, Vec<u8>>,
    nbytes: u64,
    memory: Arc<BlockMemory>,
    /// Whether there was no memory for all of it.
    is_incomplete: bool,
}

impl ReadRanges {
    pub(super) fn new(memory: Arc<BlockMemory>) -> Self {
        Self {
            map: BTreeMap::new(),
            nbytes: 0,
            memory,
            is_incomplete: false,
        }
    }

    /// Bytes that may be added.
    pub(super) fn room(&self) -> u64 {
        self.memory.room()
    }

    /// Adds bytes from a place on; those that are known are not added again.
    pub(super) fn add(&mut self, start: u64, bytes: &[u8]) {
        if self.is_incomplete || bytes.is_empty() {
            return;
        }
        if self.memory.room() < bytes.len() as u64 {
            // a part of a header is useless: the next opening would request the rest in as many round trips
            self.is_incomplete = true;
            self.clear();
            return;
        }
        let before = self.map.range(..=start).next_back();
        let before = before.filter(|(from, known)| start <= **from + known.len() as u64);
        // where the range that the bytes are added to begins, and where the next byte of it is
        let first = before.map_or(start, |(from, _)| *from);
        let range = self.map.entry(first).or_default();
        let mut grown = extend(range, first, start, bytes);
        // ranges that it reaches now
        loop {
            let end = first + self.map[&first].len() as u64;
            let next = self.map.range(first + 1..=end).next();
            let Some(from) = next.map(|(from, _)| *from) else {
                break;
            };
            let next = self.map.remove(&from).unwrap_or_default();
            let range = self.map.entry(first).or_default();
            grown += extend(range, first, from, &next);
            grown -= next.len() as u64;
        }
        self.nbytes += grown;
        self.memory.hold(grown);
    }

    /// The ranges; `None` if something is missing, or nothing was read.
    pub(super) fn into_ranges(mut self) -> Option<Vec<(u64, Vec<u8>)>> {
        let map = std::mem::take(&mut self.map);
        let is_complete = !self.is_incomplete && !map.is_empty();
        is_complete.then(|| map.into_iter().collect())
    }

    fn clear(&mut self) {
        self.map.clear();
        self.memory.release(std::mem::take(&mut self.nbytes));
    }
}

impl Drop for ReadRanges {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Appends the part of `bytes`, which start at `start`, that lies behind the end of a range from `first` on. Returns how
/// much that is.
fn extend(range: &mut Vec<u8>, first: u64, start: u64, bytes: &[u8]) -> u64 {
    let end = first + range.len() as u64;
    let known = usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX);
    let new = bytes.get(known..).unwrap_or_default();
    range.extend_from_slice(new);
    new.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(most: u64) -> Arc<BlockMemory> {
        Arc::new(BlockMemory::new(most))
    }

    #[test]
    fn ranges_that_touch_are_one() {
        let memory = memory(1000);
        let mut ranges = ReadRanges::new(Arc::clone(&memory));
        let file: Vec<u8> = (0..100).collect();
        for (start, end) in [(10, 20), (30, 40), (20, 25), (12, 18), (50, 50), (60, 70)] {
            ranges.add(start as u64, &file[start..end]);
        }
        assert_eq!(memory.held(), 35);
        // over a gap and a range, into the next one
        ranges.add(24, &file[24..65]);
        assert_eq!(memory.held(), 60);
        ranges.add(0, &file[..5]);
        let expected = [(0, file[..5].to_vec()), (10, file[10..70].to_vec())];
        assert_eq!(ranges.into_ranges().unwrap(), expected);
        assert_eq!(memory.held(), 0);
    }

    /// Against a file of which each byte is known to be read or not.
    #[test]
    fn random_reads_are_all_kept() {
        let file: Vec<u8> = (0..200_u8).map(|i| i.wrapping_mul(37)).collect();
        let mut state = 7u64;
        let mut random = |most: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            usize::try_from(state >> 33).unwrap() % most
        };
        for _ in 0..200 {
            let memory = memory(1000);
            let mut ranges = ReadRanges::new(Arc::clone(&memory));
            let mut read = vec![false; file.len()];
            for _ in 0..random(12) {
                let start = random(file.len());
                let end = (start + random(30)).min(file.len());
                ranges.add(start as u64, &file[start..end]);
                read[start..end].fill(true);
            }
            let count = read.iter().filter(|read| **read).count();
            assert_eq!(memory.held(), count as u64);
            let found = ranges.into_ranges().unwrap_or_default();
            let mut end = None;
            for (start, bytes) in &found {
                let start = usize::try_from(*start).unwrap();
                assert!(end.is_none_or(|end| start > end) && !bytes.is_empty());
                assert_eq!(bytes, &file[start..start + bytes.len()]);
                assert!(read[start..start + bytes.len()].iter().all(|read| *read));
                end = Some(start + bytes.len());
            }
            let kept = found.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
            assert_eq!(kept, count);
        }
    }

    #[test]
    fn without_memory_nothing_is_kept() {
        let memory = memory(10);
        let mut ranges = ReadRanges::new(Arc::clone(&memory));
        ranges.add(0, &[1; 8]);
        ranges.add(8, &[1; 8]);
        ranges.add(0, &[1; 1]);
        assert_eq!((memory.held(), ranges.into_ranges()), (0, None));
    }
}
