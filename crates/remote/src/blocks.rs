//! The blocks of a file that have arrived or are requested.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The memory of the blocks of all files of a store, arrived or requested.
#[derive(Debug)]
pub(crate) struct BlockMemory {
    /// Relaxed: the number publishes no other data.
    held: AtomicU64,
    most: u64,
}

impl BlockMemory {
    pub(crate) fn new(most: u64) -> Self {
        Self {
            held: AtomicU64::new(0),
            most,
        }
    }

    /// Bytes of all blocks.
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    pub(crate) fn hold(&self, bytes: u64) {
        self.held.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn release(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes that may be held.
    pub(crate) fn most(&self) -> u64 {
        self.most
    }

    /// Bytes that may be added.
    pub(crate) fn room(&self) -> u64 {
        self.most.saturating_sub(self.held())
    }
}

/// Byte ranges that do not overlap, by their first byte. A block can be read as far as it has arrived.
#[derive(Debug)]
pub(crate) struct Blocks {
    map: BTreeMap<u64, RequestedBlock>,
    /// Lengths of all blocks, arrived or requested.
    nbytes: u64,
    memory: Arc<BlockMemory>,
}

impl Drop for Blocks {
    fn drop(&mut self) {
        self.clear();
    }
}

#[derive(Debug)]
struct RequestedBlock {
    len: u64,
    arrived: Vec<u8>,
    /// From the first to the last byte that was read, as offsets in the block.
    used: Range<u64>,
}

/// The content of a place in the file.
#[derive(Debug, PartialEq)]
pub(crate) enum BlockAt<'b> {
    /// These bytes, and possibly others behind them.
    Arrived(&'b [u8]),
    Requested,
    Missing,
}

impl Blocks {
    pub(crate) fn new(memory: Arc<BlockMemory>) -> Self {
        Self {
            map: BTreeMap::new(),
            nbytes: 0,
            memory,
        }
    }

    pub(crate) fn memory(&self) -> &Arc<BlockMemory> {
        &self.memory
    }

    fn add(&mut self, bytes: u64) {
        self.nbytes += bytes;
        self.memory.hold(bytes);
    }

    fn release(&mut self, bytes: u64) {
        self.nbytes -= bytes;
        self.memory.release(bytes);
    }

    /// The block that contains a place, and its first byte.
    fn containing(&self, at: u64) -> Option<(u64, &RequestedBlock)> {
        let (&start, block) = self.map.range(..=at).next_back()?;
        (at - start < block.len).then_some((start, block))
    }

    pub(crate) fn at(&self, at: u64) -> BlockAt<'_> {
        let Some((start, block)) = self.containing(at) else {
            return BlockAt::Missing;
        };
        let offset = usize::try_from(at - start).expect("blocks are shorter than memory");
        match block.arrived.get(offset..) {
            Some(rest) if !rest.is_empty() => BlockAt::Arrived(rest),
            _ => BlockAt::Requested,
        }
    }

    pub(crate) fn nbytes(&self) -> u64 {
        self.nbytes
    }

    /// Makes blocks of at most `piece` bytes for the parts of the range that no block covers, and returns their ranges.
    pub(crate) fn request(&mut self, start: u64, end: u64, piece: u64) -> Vec<(u64, u64)> {
        let mut made = Vec::new();
        let mut at = start;
        while at < end {
            if let Some((from, block)) = self.containing(at) {
                at = from + block.len;
                continue;
            }
            // up to the next block: no byte is requested twice
            let next = self.map.range(at..).next().map_or(end, |(from, _)| *from);
            let stop = next.min(end).min(at.saturating_add(piece));
            self.insert(at, stop - at);
            made.push((at, stop));
            at = stop;
        }
        made
    }

    fn insert(&mut self, start: u64, len: u64) {
        self.add(len);
        let block = RequestedBlock {
            len,
            arrived: Vec::new(),
            used: 0..0,
        };
        self.map.insert(start, block);
    }

    /// Adds a block that was kept on this machine, where there is none. Its bytes do not count as used: none were received.
    pub(crate) fn insert_kept(&mut self, start: u64, bytes: Vec<u8>) {
        let len = bytes.len() as u64;
        self.add(len);
        let block = RequestedBlock {
            len,
            arrived: bytes,
            used: 0..len,
        };
        self.map.insert(start, block);
    }

    /// Notes that `len` bytes from a place on were read, which lie in one block. Returns by how much the block's range of bytes
    /// that were read has grown.
    pub(crate) fn note_used(&mut self, at: u64, len: u64) -> u64 {
        let Some((&start, block)) = self.map.range_mut(..=at).next_back() else {
            return 0;
        };
        let read = at - start..(at - start).saturating_add(len);
        let used = match block.used.is_empty() {
            true => read,
            false => block.used.start.min(read.start)..block.used.end.max(read.end),
        };
        let before = block.used.end - block.used.start;
        block.used = used.start..used.end.min(block.len);
        (block.used.end - block.used.start).saturating_sub(before)
    }

    /// Stores bytes that arrived. Bytes that no block waits for at its end are dropped.
    pub(crate) fn put(&mut self, start: u64, bytes: &[u8]) {
        let end = start + bytes.len() as u64;
        let first = self.containing(start).map_or(start, |(from, _)| from);
        for (&from, block) in self.map.range_mut(first..end) {
            let at = from + block.arrived.len() as u64;
            let stop = end.min(from + block.len);
            if at < start || at >= stop {
                continue; // a gap in front, or all of it is there
            }
            let offset = |at: u64| usize::try_from(at - start).expect("inside of `bytes`");
            if block.arrived.is_empty() {
                let len = usize::try_from(block.len).expect("blocks are shorter than memory");
                // at the first byte and not at the request, so that a hundred requested blocks hold no memory before
                // they arrive
                block.arrived.reserve_exact(len);
            }
            block
                .arrived
                .extend_from_slice(&bytes[offset(at)..offset(stop)]);
        }
    }

    /// Cuts off what lies behind the end of the file.
    pub(crate) fn cut(&mut self, len: u64) {
        let behind = self.map.split_off(&len);
        let mut released = behind.values().map(|block| block.len).sum::<u64>();
        if let Some((&start, block)) = self.map.iter_mut().next_back()
            && start + block.len > len
        {
            released += start + block.len - len;
            block.len = len - start;
            block
                .arrived
                .truncate(usize::try_from(block.len).unwrap_or(usize::MAX));
        }
        self.release(released);
    }

    /// Ends the requests of a range: what arrived stays.
    pub(crate) fn give_up(&mut self, start: u64, end: u64) {
        let first = self.containing(start).map_or(start, |(from, _)| from);
        let mut released = 0;
        self.map.retain(|&from, block| {
            if from >= first && from < end {
                let arrived = block.arrived.len() as u64;
                released += block.len - arrived;
                // the rest is missing again, so that the next reader requests it
                block.len = arrived;
            }
            block.len > 0
        });
        self.release(released);
    }

    /// Removes complete blocks, the first ones first, except the one at `keep`, until at most `most` bytes are left.
    pub(crate) fn evict(&mut self, keep: u64, most: u64) {
        // lowest offsets first, since headers are read from the front to the back
        while self.nbytes > most {
            let complete = |(from, block): &(&u64, &RequestedBlock)| {
                block.arrived.len() as u64 == block.len
                    // the end belongs to it too: a reader that goes forward stands there
                    && !(**from..=**from + block.len).contains(&keep)
            };
            let Some((&first, _)) = self.map.iter().find(complete) else {
                return;
            };
            let released = self.map.remove(&first).map_or(0, |block| block.len);
            self.release(released);
        }
    }

    /// Removes everything.
    pub(crate) fn clear(&mut self) {
        self.map.clear();
        self.release(self.nbytes);
    }

    /// Whether one block holds all of a file of this length.
    pub(crate) fn holds(&self, len: u64) -> bool {
        self.map
            .get(&0)
            .is_some_and(|block| block.arrived.len() as u64 == len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_all_files_is_counted() {
        let memory = Arc::new(BlockMemory::new(100));
        let [mut a, mut b] = [0; 2].map(|_| Blocks::new(Arc::clone(&memory)));
        a.request(0, 60, 20);
        b.request(0, 30, 20);
        assert_eq!((memory.held(), memory.room()), (90, 10));
        a.put(0, &[1; 20]);
        a.give_up(20, 60);
        assert_eq!(memory.held(), 50);
        a.evict(40, 0);
        b.cut(10);
        assert_eq!((memory.held(), b.nbytes()), (10, 10));
        b.request(10, 200, 500);
        assert_eq!(memory.room(), 0);
        b.clear();
        assert_eq!(memory.held(), 0);
        a.request(0, 60, 20);
        drop(a);
        assert_eq!(memory.held(), 0);
    }

    #[test]
    fn bytes_are_read_as_far_as_they_have_arrived() {
        let mut blocks = Blocks::new(Arc::new(BlockMemory::new(u64::MAX)));
        assert_eq!(blocks.request(10, 30, 8), [(10, 18), (18, 26), (26, 30)]);
        assert_eq!(blocks.at(10), BlockAt::Requested);
        blocks.put(10, b"abc");
        assert_eq!(blocks.at(11), BlockAt::Arrived(b"bc"));
        assert_eq!(blocks.at(13), BlockAt::Requested);
        assert_eq!(blocks.at(30), BlockAt::Missing);
        // bytes over several blocks, of which the first three are there already
        blocks.put(10, b"abcdefghijklmnopqrst");
        assert_eq!(blocks.at(13), BlockAt::Arrived(b"defgh"));
        assert_eq!(blocks.at(26), BlockAt::Arrived(b"qrst"));
        assert_eq!(blocks.nbytes(), 20);
    }

    #[test]
    fn bytes_that_were_read_count_once() {
        let mut blocks = Blocks::new(Arc::new(BlockMemory::new(u64::MAX)));
        blocks.request(100, 130, 20);
        blocks.put(100, &[1; 30]);
        assert_eq!(blocks.note_used(104, 4), 4);
        assert_eq!(blocks.note_used(104, 8), 4);
        assert_eq!(blocks.note_used(102, 2), 2);
        // with the gap
        assert_eq!(blocks.note_used(118, 2), 8);
        // another block
        assert_eq!(blocks.note_used(120, 10), 10);
        assert_eq!(blocks.note_used(99, 1), 0);
    }

    #[test]
    fn only_what_is_missing_is_requested() {
        let mut blocks = Blocks::new(Arc::new(BlockMemory::new(u64::MAX)));
        blocks.request(4, 8, 100);
        assert_eq!(blocks.request(0, 12, 100), [(0, 4), (8, 12)]);
        assert_eq!(blocks.request(0, 12, 100), []);
    }

    #[test]
    fn the_end_of_the_file_cuts_blocks() {
        let mut blocks = Blocks::new(Arc::new(BlockMemory::new(u64::MAX)));
        blocks.request(0, 100, 40);
        blocks.put(0, &[7; 40]);
        blocks.cut(30);
        assert_eq!((blocks.nbytes(), blocks.holds(30)), (30, true));
        assert_eq!(blocks.at(30), BlockAt::Missing);
        blocks.cut(0);
        assert_eq!(blocks.nbytes(), 0);
    }

    #[test]
    fn a_request_that_is_given_up_keeps_what_arrived() {
        let mut blocks = Blocks::new(Arc::new(BlockMemory::new(u64::MAX)));
        blocks.request(0, 30, 10);
        blocks.put(10, b"ab");
        blocks.give_up(10, 30);
        assert_eq!(blocks.at(0), BlockAt::Requested);
        assert_eq!(blocks.at(10), BlockAt::Arrived(b"ab"));
        assert_eq!(blocks.at(12), BlockAt::Missing);
        assert_eq!(blocks.at(20), BlockAt::Missing);
        assert_eq!(blocks.nbytes(), 12);
    }

    #[test]
    fn blocks_behind_the_read_position_are_evicted_first() {
        let mut blocks = Blocks::new(Arc::new(BlockMemory::new(u64::MAX)));
        blocks.request(0, 40, 10);
        blocks.put(0, &[1; 30]);
        blocks.evict(25, 25);
        assert_eq!(blocks.at(0), BlockAt::Missing);
        assert_eq!(blocks.at(10), BlockAt::Missing);
        assert_eq!(blocks.at(25), BlockAt::Arrived(&[1; 5]));
        assert_eq!(blocks.at(30), BlockAt::Requested);
        // requested blocks are never evicted
        blocks.evict(25, 0);
        assert_eq!(blocks.nbytes(), 20);
    }
}
