//! Finding what was there before: layers and experts are alike, and so are what two workers read.

use std::collections::HashMap;

use super::token::Token;

/// What is written for the next tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// One token as it is.
    Literal,
    /// `count` tokens, the same as those `distance` tokens before.
    Repeat { count: usize, distance: usize },
}

/// The tokens of a template, and where they were seen last.
#[derive(Debug, Default)]
pub(super) struct Finder {
    numbers: HashMap<Token, u32>,
    tokens: Vec<Token>,
    /// The whole template, as indices into `tokens`.
    sequence: Vec<u32>,
    one: HashMap<u32, usize>,
    /// A longer match begins where four in a row were seen.
    four: HashMap<[u32; 4], usize>,
    /// Places before this one are in the tables.
    known: usize,
}

impl Finder {
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

    /// The token at this place.
    pub(super) fn token(&self, at: usize) -> &Token {
        &self.tokens[usize::try_from(self.sequence[at]).expect("an index")]
    }

    /// What to write at `at`, up to `end`: the longer of two matches. Places are asked for in ascending order, each
    /// behind what the last step wrote, so that finding is linear.
    pub(super) fn step(&mut self, at: usize, end: usize) -> Step {
        let four = |from: usize| self.sequence[from..].first_chunk::<4>().copied();
        for place in self.known..at {
            self.one.insert(self.sequence[place], place);
            four(place).and_then(|key| self.four.insert(key, place));
        }
        self.known = at;
        let candidates = [
            four(at).and_then(|key| self.four.get(&key)),
            self.one.get(&self.sequence[at]),
        ];
        let same = |&(a, b): &(usize, usize)| self.sequence[a] == self.sequence[b];
        let length = |from: usize| (at..end).zip(from..).take_while(same).count();
        let matches = candidates
            .into_iter()
            .flatten()
            .map(|&from| (length(from), from));
        match matches.max() {
            Some((count, from)) => Step::Repeat {
                count,
                distance: at - from,
            },
            None => Step::Literal,
        }
    }
}
