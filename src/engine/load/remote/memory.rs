//! The memory of one request: a part of a pool buffer that one or two reads fill.

use std::time::{Duration, Instant};

use zeropool::BufferPart;

use crate::base::sync::Mutex;

/// A part of a buffer, which bytes are copied into in file order, whichever read they are from: two reads of the same range
/// have the same bytes.
pub(super) struct RequestMemory(Mutex<Filling>);

struct Filling {
    /// `None` once it was filled and taken, or the request was given up.
    part: Option<BufferPart>,
    /// Offset of its first byte in the file.
    start: u64,
    needed: usize,
    filled: usize,
    started: Instant,
    /// When the first bytes arrived.
    first: Option<Instant>,
    /// When the last bytes arrived.
    last: Instant,
}

/// The fate of bytes that arrived.
#[derive(Debug, PartialEq)]
pub(super) enum Copied {
    /// This many were new, and others are missing.
    More(usize),
    /// This many were new, and none are missing.
    Full(usize),
    /// No bytes are needed any more, or these are not those that follow.
    Refused,
}

impl RequestMemory {
    pub(super) fn new(part: BufferPart, start: u64, needed: usize) -> Self {
        let now = Instant::now();
        Self(Mutex::new(Filling {
            part: Some(part),
            start,
            needed,
            filled: 0,
            started: now,
            first: None,
            last: now,
        }))
    }

    /// Copies bytes that begin at this offset of the file.
    pub(super) fn copy(&self, start: u64, bytes: &[u8]) -> Copied {
        let mut filling = self.0.lock();
        let Filling { needed, filled, .. } = *filling;
        let Some(begin) = start.checked_sub(filling.start) else {
            return Copied::Refused;
        };
        // those in front were copied from another read
        let known = (filled as u64).checked_sub(begin);
        let (Some(known), Some(part)) = (known, &mut filling.part) else {
            return Copied::Refused;
        };
        let known = usize::try_from(known).map_or(bytes.len(), |known| known.min(bytes.len()));
        let new = &bytes[known..];
        let n = new.len().min(needed - filled);
        part[filled..filled + n].copy_from_slice(&new[..n]);
        if n > 0 {
            filling.filled += n;
            let now = Instant::now();
            filling.first.get_or_insert(now);
            filling.last = now;
        }
        if filling.filled == needed {
            Copied::Full(n)
        } else {
            Copied::More(n)
        }
    }

    /// Makes memory from `from` on resident, up to `len` bytes, unless bytes have arrived: pages that are touched for the first
    /// time take longer than the bytes that are copied to them, and nothing else is to be done while an answer is awaited.
    /// Returns where the next call goes on; `None` if there is nothing left.
    pub(super) fn prepare(&self, from: usize, len: usize) -> Option<usize> {
        let mut filling = self.0.lock();
        let needed = filling.needed;
        if filling.filled > 0 || from >= needed {
            return None;
        }
        touch(&mut filling.part.as_mut()?[..needed], from, len)
    }

    /// The part, if it is full. Nothing is copied to it any more.
    pub(super) fn take_full(&self) -> Option<BufferPart> {
        let mut filling = self.0.lock();
        if filling.filled < filling.needed {
            return None;
        }
        filling.part.take()
    }

    /// Releases the memory. Nothing is copied to it any more.
    pub(super) fn give_up(&self) {
        let part = self.0.lock().part.take();
        drop(part); // without the lock
    }

    /// Bytes that have arrived.
    pub(super) fn filled(&self) -> usize {
        self.0.lock().filled
    }

    /// How long nothing has arrived.
    pub(super) fn silence(&self) -> Duration {
        self.0.lock().last.elapsed()
    }

    /// How long the first bytes took, if they have arrived.
    pub(super) fn first_byte(&self) -> Option<Duration> {
        let filling = self.0.lock();
        Some(filling.first?.saturating_duration_since(filling.started))
    }
}

/// Writes to one byte of each page from `from` on, up to `len` bytes. Returns where the next call goes on; `None` at the end.
pub(super) fn touch(memory: &mut [u8], from: usize, len: usize) -> Option<usize> {
    const PAGE: usize = 4096;
    let end = from.saturating_add(len).min(memory.len());
    for byte in memory[from..end].iter_mut().step_by(PAGE) {
        // kept: the write is never read
        *std::hint::black_box(byte) = 0;
    }
    (end < memory.len()).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zeropool::BufferPool;

    fn memory(len: usize, needed: usize) -> RequestMemory {
        let mut part = BufferPool::new().get(len).split(len).remove(0);
        part.fill(9);
        RequestMemory::new(part, 100, needed)
    }

    #[test]
    fn two_reads_fill_one_memory() {
        let memory = memory(10, 8);
        assert_eq!(memory.copy(100, b"abc"), Copied::More(3));
        // the second read began later, and overtakes the first
        assert_eq!(memory.copy(103, b"de"), Copied::More(2));
        assert_eq!(memory.copy(103, b"d"), Copied::More(0));
        assert!(memory.take_full().is_none() && memory.first_byte().is_some());
        assert_eq!(memory.copy(104, b"efghijkl"), Copied::Full(3));
        assert_eq!(memory.take_full().unwrap()[..], *b"abcdefgh\x09\x09");
        assert_eq!(memory.copy(105, b"fgh"), Copied::Refused);
    }

    #[test]
    fn bytes_of_other_places_are_refused() {
        let memory = memory(10, 10);
        for start in [0, 99, 101, u64::MAX] {
            assert_eq!(memory.copy(start, b"abc"), Copied::Refused, "{start}");
        }
        assert_eq!(memory.filled(), 0);
        memory.give_up();
        assert_eq!(memory.copy(100, b"a"), Copied::Refused);
    }

    #[test]
    fn memory_is_prepared_until_bytes_arrive() {
        let memory = memory(20_000, 20_000);
        assert_eq!(memory.prepare(0, 8192), Some(8192));
        assert_eq!(memory.prepare(8192, 8192), Some(16_384));
        assert_eq!(memory.prepare(16_384, 8192), None);
        assert_eq!(memory.copy(100, &[5; 10_000]), Copied::More(10_000));
        assert_eq!(memory.prepare(0, 8192), None);
        assert_eq!(memory.copy(10_100, &[5; 10_000]), Copied::Full(10_000));
        assert!(memory.take_full().unwrap().iter().all(|byte| *byte == 5));
    }
}
