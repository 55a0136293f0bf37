//! Identifies a worker by the bytes that its process reads: bytes of its own group and of no other.
//!
//! Each access to bytes that some groups have and others do not is a vote for the former. Votes are
//! bounded, so that a process that is reused for another worker changes its group after some
//! accesses.

use std::collections::HashMap;

/// Largest number of votes for a group. As many accesses to another group's bytes, and [`MIN_LEAD`]
/// more, move the process there.
const MAX_VOTES: i32 = 16;
/// Votes by which another group must lead before the process is moved. It prevents single accesses
/// to shared pages from moving a process back and forth.
const MIN_LEAD: i32 = 2;

#[derive(Debug, Default)]
pub(super) struct BytesRead(HashMap<u32, GroupVotes>);

#[derive(Debug)]
struct GroupVotes {
    group: usize,
    votes: Vec<i32>,
}

impl BytesRead {
    /// Returns the group of a process, among `groups` groups, after an access to bytes of the
    /// groups for which `has` returns true. `guess` is its group until its accesses decide.
    pub(super) fn group(
        &mut self,
        pid: u32,
        guess: usize,
        groups: usize,
        has: impl Fn(usize) -> bool,
    ) -> usize {
        // with all votes for its group, one look-up is enough: the common case of every event
        if let Some(votes) = self.0.get(&pid)
            && votes.votes[votes.group] == MAX_VOTES
            && has(votes.group)
        {
            return votes.group;
        }
        let holders: Vec<bool> = (0..groups).map(has).collect();
        let count = holders.iter().filter(|holds| **holds).count();
        // bytes that all groups read, such as headers, are evidence for none
        if count == 0 || count == holders.len() {
            return self.0.get(&pid).map_or(guess, |votes| votes.group);
        }
        let taken = |group: usize, all: &HashMap<u32, GroupVotes>| {
            all.iter().any(|(other, votes)| {
                *other != pid && votes.group == group && votes.votes[group] > 0
            })
        };
        if self.0.len() >= super::MAX_PROCESSES {
            self.0.clear();
        }
        let mut votes = self.0.remove(&pid).unwrap_or_else(|| GroupVotes {
            group: guess,
            votes: vec![0; holders.len()],
        });
        for (vote, holds) in votes.votes.iter_mut().zip(&holders) {
            *vote = (*vote + if *holds { 1 } else { -1 }).clamp(0, MAX_VOTES);
        }
        let now = votes.votes[votes.group];
        // equal votes go to a group that no other process has, and then to the first
        let best = (0..holders.len())
            .max_by_key(|&g| (votes.votes[g], !taken(g, &self.0), std::cmp::Reverse(g)));
        if let Some(best) =
            best.filter(|&best| votes.votes[best] >= now + if now > 0 { MIN_LEAD } else { 1 })
        {
            votes.group = best;
        }
        let group = votes.group;
        self.0.insert(pid, votes);
        group
    }
}
