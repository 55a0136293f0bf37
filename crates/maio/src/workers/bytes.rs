//! The bytes that a process reads: those of its own group, and of no other.

use std::collections::HashMap;

/// How sure a process' group can be; as many accesses to another group's bytes, and a few, change it.
const MOST: i32 = 16;
/// How much surer another group must be than the one that was taken for the process'.
const MORE: i32 = 2;

#[derive(Debug, Default)]
pub(super) struct Bytes(HashMap<u32, Votes>);

#[derive(Debug)]
struct Votes {
    group: usize,
    votes: Vec<i32>,
}

impl Bytes {
    /// The group of a process, of `groups`, when it accesses bytes that `has` says which groups have. `guess` is what
    /// it is taken for until its accesses tell.
    pub(super) fn group(
        &mut self,
        pid: u32,
        guess: usize,
        groups: usize,
        has: impl Fn(usize) -> bool,
    ) -> usize {
        if let Some(votes) = self.0.get(&pid)
            && votes.votes[votes.group] == MOST
            && has(votes.group)
        {
            return votes.group;
        }
        let holders: Vec<bool> = (0..groups).map(has).collect();
        let count = holders.iter().filter(|holds| **holds).count();
        if count == 0 || count == holders.len() {
            return self.0.get(&pid).map_or(guess, |votes| votes.group);
        }
        let taken = |group: usize, all: &HashMap<u32, Votes>| {
            all.iter().any(|(other, votes)| {
                *other != pid && votes.group == group && votes.votes[group] > 0
            })
        };
        if self.0.len() >= super::PROCESSES {
            self.0.clear();
        }
        let mut votes = self.0.remove(&pid).unwrap_or_else(|| Votes {
            group: guess,
            votes: vec![0; holders.len()],
        });
        for (vote, holds) in votes.votes.iter_mut().zip(&holders) {
            *vote = (*vote + if *holds { 1 } else { -1 }).clamp(0, MOST);
        }
        let now = votes.votes[votes.group];
        let best = (0..holders.len())
            .max_by_key(|&g| (votes.votes[g], !taken(g, &self.0), std::cmp::Reverse(g)));
        if let Some(best) =
            best.filter(|&best| votes.votes[best] >= now + if now > 0 { MORE } else { 1 })
        {
            votes.group = best;
        }
        let group = votes.group;
        self.0.insert(pid, votes);
        group
    }
}
