//! In the host: lists that the daemon has already, so that the tail of one is sent as two numbers.

use std::collections::HashMap;

use super::message::{Entry, List, New};

/// Lists that are held at once: lanes take turns, the last is for evictions.
pub(super) const SLOTS: u8 = 65;
/// The slot of evictions.
pub(super) const EVICT: u8 = SLOTS - 1;

/// The slot of a lane.
pub(super) fn slot(lane: u32) -> u8 {
    u8::try_from(lane % u32::from(EVICT)).unwrap_or(0)
}

/// What the daemon has.
#[derive(Debug, Default)]
pub(super) struct Sent {
    paths: HashMap<Vec<u8>, u32>,
    slots: HashMap<u8, Held>,
}

#[derive(Debug)]
struct Held {
    lane: u32,
    generation: u64,
    entries: Vec<Entry>,
}

/// A policy's list: whose it is, and which part is the answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) lane: u32,
    pub(super) slot: u8,
    pub(super) generation: u64,
    pub(super) first: usize,
    pub(super) end: usize,
}

impl Sent {
    /// Whether the daemon has the list, as its generation says; then it need not be read.
    pub(super) fn has(&self, part: &Part, count: usize) -> bool {
        let same = |held: &Held| {
            part.generation != 0
                && (held.generation, held.lane, held.entries.len())
                    == (part.generation, part.lane, count)
        };
        self.slots.get(&part.slot).is_some_and(same)
    }

    /// The number of a path, which goes to `new` if the daemon does not know it.
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

    /// Of a list that the daemon [`has`](Self::has).
    pub(super) fn part(part: &Part) -> List {
        Self::list(part, None, 0)
    }

    /// Of a list that was read; `new` has the paths that came with it.
    pub(super) fn read(&mut self, part: &Part, mut new: New) -> List {
        if let Some(held) = self.slots.get_mut(&part.slot)
            && new.paths.is_empty()
            && held.entries.ends_with(&new.entries)
        {
            let offset = held.entries.len() - new.entries.len();
            if offset == 0 {
                (held.lane, held.generation) = (part.lane, part.generation);
            }
            return Self::list(part, None, offset); // the array of a policy that moved on in it
        }
        // only the answer matters if the next call will not refer to the rest
        let mut part = *part;
        if part.generation == 0 {
            new.entries.truncate(part.end);
            new.entries.drain(..part.first);
            (part.end, part.first) = (part.end - part.first, 0);
        }
        let held = Held {
            lane: part.lane,
            generation: part.generation,
            entries: new.entries.clone(),
        };
        self.slots.insert(part.slot, held);
        Self::list(&part, Some(new), 0)
    }

    fn list(part: &Part, new: Option<New>, offset: usize) -> List {
        let number = |at: usize| u32::try_from(offset + at).unwrap_or(u32::MAX);
        List {
            lane: part.lane,
            slot: part.slot,
            new,
            start: number(part.first),
            end: number(part.end),
        }
    }
}
