//! Host side of the list transfer: sends a policy's list once, and later answers as ranges of it.
//!
//! A policy that follows a template answers every miss with "from entry *n* to the end" of the same array, which may
//! have 65 536 entries. Sending it each time would make a miss as expensive as the array is long, so both sides keep
//! the last list of each *slot*, and an answer carries a slot and two indices:
//!
//! 1. `SentLists` (here) remembers per slot which entries it sent, and of which queue and generation.
//! 2. If the policy's generation promises that the array is unchanged ([`SentLists::has`]), the array is not read, and the
//!    answer is its range ([`SentLists::part`]). If the array was read and turns out to be a suffix of the entries that were
//!    sent, the answer is a range with an offset. Otherwise the entries are sent, and replace the entries of the slot.
//! 3. [`ReceivedLists`](super::received_lists::ReceivedLists) (the daemon) replaces the slot's list whenever entries arrive, and
//!    resolves the range against it.
//!
//! Invariant: after each answer the slot's list has the same entries on both sides. It holds because answers are
//! processed in order on one connection, and both sides replace a slot's list exactly when an answer carries entries.
//! The daemon does not rely on it: slot, indices and path numbers are checked, so a host that breaks it gets an error
//! and is ended.
//!
//! Queues share 64 slots by number modulo 64; two queues in one slot only cost resending. Evictions have a slot of
//! their own. Paths are numbered likewise: each is sent once.

use std::collections::HashMap;

use super::message::{NewList, WireList, WireRange};

/// Number of slots: 64 for prefetch queues, and one for evictions.
pub(super) const SLOTS: u8 = 65;
/// The slot of eviction lists.
pub(super) const EVICT: u8 = SLOTS - 1;

/// The slot of a prefetch queue.
pub(super) fn slot(queue: u32) -> u8 {
    u8::try_from(queue % u32::from(EVICT)).unwrap_or(0)
}

/// The paths and lists that the daemon has received.
#[derive(Debug, Default)]
pub(super) struct SentLists {
    paths: HashMap<Vec<u8>, u32>,
    slots: HashMap<u8, SentList>,
}

#[derive(Debug)]
struct SentList {
    queue: u32,
    generation: u64,
    entries: Vec<WireRange>,
}

/// Identity of a policy's list, and the range `first..end` of its entries that is the answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListPart {
    pub(super) queue: u32,
    pub(super) slot: u8,
    pub(super) generation: u64,
    pub(super) first: usize,
    pub(super) end: usize,
}

impl SentLists {
    /// Whether the daemon has this list: the generation is not 0 and equals the generation of the slot's list, and so do
    /// queue and length.
    pub(super) fn has(&self, part: &ListPart, count: usize) -> bool {
        let same = |held: &SentList| {
            part.generation != 0
                && (held.generation, held.queue, held.entries.len())
                    == (part.generation, part.queue, count)
        };
        self.slots.get(&part.slot).is_some_and(same)
    }

    /// The number of a path, which is appended to `new` if the daemon has not received it.
    pub(super) fn path(&mut self, path: &[u8], new: &mut Vec<Vec<u8>>) -> Result<u32, String> {
        if let Some(&number) = self.paths.get(path) {
            return Ok(number);
        }
        let number =
            u32::try_from(self.paths.len()).map_err(|_| "more than 2^32 different paths")?;
        self.paths.insert(path.to_vec(), number);
        new.push(path.to_vec());
        Ok(number)
    }

    /// The answer for a list that the daemon [`has`](Self::has).
    pub(super) fn part(part: &ListPart) -> WireList {
        Self::list(part, None, 0)
    }

    /// The answer for a list whose entries were read from the policy; `new` holds them and the paths that are new.
    pub(super) fn read(&mut self, part: &ListPart, mut new: NewList) -> WireList {
        if let Some(held) = self.slots.get_mut(&part.slot)
            && new.paths.is_empty()
            // a policy without generations usually advances in one array: a comparison in memory is cheaper than
            // sending the rest of it at every miss
            && held.entries.ends_with(&new.entries)
        {
            let offset = held.entries.len() - new.entries.len();
            if offset == 0 {
                (held.queue, held.generation) = (part.queue, part.generation);
            }
            return Self::list(part, None, offset); // the policy advanced `ios` within its array
        }
        // without a generation no later answer can refer to the entries outside of this answer
        let mut part = *part;
        if part.generation == 0 {
            new.entries.truncate(part.end);
            new.entries.drain(..part.first);
            (part.end, part.first) = (part.end - part.first, 0);
        }
        let held = SentList {
            queue: part.queue,
            generation: part.generation,
            entries: new.entries.clone(),
        };
        self.slots.insert(part.slot, held);
        Self::list(&part, Some(new), 0)
    }

    fn list(part: &ListPart, new: Option<NewList>, offset: usize) -> WireList {
        let number = |at: usize| u32::try_from(offset + at).unwrap_or(u32::MAX);
        WireList {
            queue: part.queue,
            slot: part.slot,
            new,
            start: number(part.first),
            end: number(part.end),
        }
    }
}
