//! Finds earlier occurrences of a token sequence: layers, experts and workers have alike sequences
//! of accesses.

use std::collections::HashMap;

use super::token::Token;

/// How the next tokens are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenStep {
    /// One token, in full.
    Literal,
    /// `count` tokens, the same as those `distance` tokens before.
    Repeat { count: usize, distance: usize },
}

/// The tokens of a template, and where each was last seen.
#[derive(Debug, Default)]
pub(super) struct RepeatFinder {
    numbers: HashMap<Token, u32>,
    tokens: Vec<Token>,
    /// The tokens of the whole template, as indices into `tokens`.
    sequence: Vec<u32>,
    last_one: HashMap<u32, usize>,
    /// The last occurrence of each sequence of four tokens. The last occurrence of a single token
    /// often matches only briefly; four tokens in a row usually begin a longer repeat.
    last_four: HashMap<[u32; 4], usize>,
    /// Number of tokens that are entered in the tables.
    known: usize,
}

impl RepeatFinder {
    /// Appends a token to the sequence.
    pub(super) fn push(&mut self, token: Token) {
        let next =
            u32::try_from(self.tokens.len()).expect("fewer distinct accesses than memory holds");
        let number = *self.numbers.entry(token).or_insert(next);
        if number == next {
            self.tokens.push(token);
        }
        self.sequence.push(number);
    }

    /// Returns the token at this index.
    pub(super) fn token(&self, at: usize) -> &Token {
        &self.tokens[usize::try_from(self.sequence[at]).expect("an index")]
    }

    /// Returns how to write the tokens from `at`, at most up to `end`: the longer of two matches.
    /// Calls must have ascending `at`, each after the tokens of the previous step, so the tables
    /// are filled once and the search is linear.
    pub(super) fn step(&mut self, at: usize, end: usize) -> TokenStep {
        let four = |from: usize| self.sequence[from..].first_chunk::<4>().copied();
        // only tokens before `at` are entered: a match is always of what the reader has already decoded
        for index in self.known..at {
            self.last_one.insert(self.sequence[index], index);
            four(index).and_then(|key| self.last_four.insert(key, index));
        }
        self.known = at;
        let candidates = [
            four(at).and_then(|key| self.last_four.get(&key)),
            self.last_one.get(&self.sequence[at]),
        ];
        let same = |&(a, b): &(usize, usize)| self.sequence[a] == self.sequence[b];
        let length = |from: usize| (at..end).zip(from..).take_while(same).count();
        let matches = candidates
            .into_iter()
            .flatten()
            .map(|&from| (length(from), from));
        // the longest match, and of equal ones the later one, whose distance is the shorter number
        match matches.max() {
            Some((count, from)) => TokenStep::Repeat {
                count,
                distance: at - from,
            },
            None => TokenStep::Literal,
        }
    }
}
