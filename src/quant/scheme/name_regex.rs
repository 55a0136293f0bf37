//! The regular expressions that configurations name modules by, compiled once for all names.
//!
//! They are Python's. A list of them becomes one automaton, which reads each name once, however many patterns there are. A transition
//! is made when a name first needs it, and charged then; and a name begins at the state that its prefix in common with the name before
//! has reached. So the names of 70 000 experts cost a few look-ups each. A pattern that Python and the automaton read in different ways
//! (`dialect.rs`) is not understood: it matches nothing here, and is named with the reason.
//!
//! Sources: compressed-tensors `utils/match.py` (`re.match`), GPTQModel `quantization/config.py` (`re.match`), auto-round
//! `inference/convert_model.py` (`re.search`), Quark and ModelOpt (`fnmatch`).

mod dialect;

use std::cell::RefCell;

use hashbrown::HashSet;
use regex_automata::hybrid::LazyStateID;
use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson::{Compiler, Config, NFA, WhichCaptures};
use regex_automata::util::start;
use regex_automata::{Anchored, MatchKind};

use crate::base::error::{Error, Result};
use crate::base::limits::Budget;

const WHAT: &str = "the configured modules";

/// Signs that names of modules do not have.
const SIGNS: &[u8] = b"\\*+?^$()[]{}|";

/// Memory of the states that are kept, in bytes. Beyond it all are dropped and made again, which is charged as steps.
const STATES: usize = 1 << 20;

/// Memory of one pattern, in bytes: repetitions multiply it.
const MAX_PATTERN: usize = 64 << 10;

/// Memory of the syntax tree, for each byte of a pattern.
const TREE: u64 = 1 << 10;

/// How a pattern is written and compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatternKind {
    /// A regular expression, compared as `re.match` does: with the beginning of a name.
    Begins,
    /// A regular expression, compared as `re.search` does: with any part of a name.
    Anywhere,
    /// A pattern of `fnmatch`, for a whole name.
    Glob,
}

/// Patterns of a configuration, each with what it stands for.
pub(crate) struct NamePatterns<'c, T> {
    /// Those that are understood, with their positions among all.
    known: Vec<(usize, T)>,
    automaton: Option<Automaton>,
    unknown: Vec<UnknownPattern<'c, T>>,
}

/// A pattern that is not understood.
pub(crate) struct UnknownPattern<'c, T> {
    position: usize,
    pub(super) meaning: T,
    pub(crate) text: &'c str,
    pub(crate) why: String,
}

/// The first pattern that matches a name, in the order of the configuration.
pub(super) enum FirstMatch<T> {
    Known(T),
    /// None, or one behind a pattern that is not understood.
    Unknown,
    Nothing,
}

impl<T> Default for NamePatterns<'_, T> {
    fn default() -> Self {
        Self {
            known: Vec::new(),
            automaton: None,
            unknown: Vec::new(),
        }
    }
}

impl<'c, T: Copy> NamePatterns<'c, T> {
    /// Compiles patterns, in the order of the configuration.
    pub(crate) fn new(
        patterns: impl Iterator<Item = (&'c str, PatternKind, T)>,
        budget: &Budget,
    ) -> Result<Self> {
        let mut made = Self::default();
        let mut trees = Vec::new();
        let mut kept = budget.nothing();
        let config = Config::new()
            .which_captures(WhichCaptures::None)
            .utf8(false);
        let mut compiler = Compiler::new();
        compiler.configure(config.clone().nfa_size_limit(Some(MAX_PATTERN)));
        for (position, (text, kind, meaning)) in patterns.enumerate() {
            budget.steps(1 + text.len() as u64 / 4, WHAT)?;
            kept.grow(TREE * (text.len() as u64 + 4), WHAT)?;
            let read = dialect::read(text, kind).and_then(|tree| {
                let alone = compiler.build_from_hir(&tree);
                let alone = alone.map_err(|_| "it is too large".to_owned())?;
                Ok((tree, alone))
            });
            match read {
                Ok((tree, alone)) => {
                    budget.memory(4 * alone.memory_usage() as u64, WHAT)?;
                    budget.steps(alone.states().len() as u64 / 8, WHAT)?;
                    budget.push(&mut trees, tree, WHAT)?;
                    budget.push(&mut made.known, (position, meaning), WHAT)?;
                }
                Err(why) => {
                    let pattern = UnknownPattern {
                        position,
                        meaning,
                        text,
                        why,
                    };
                    budget.push(&mut made.unknown, pattern, WHAT)?;
                }
            }
        }
        if !trees.is_empty() {
            compiler.configure(config.nfa_size_limit(None));
            let all = compiler.build_many_from_hir(&trees);
            let all = all.map_err(|error| Error::unsupported(format!("{WHAT}: {error}")))?;
            made.automaton = Some(Automaton::new(all, budget)?);
        }
        Ok(made)
    }

    /// The first pattern that is understood and matches.
    pub(crate) fn first_known(&self, name: &str, budget: &Budget) -> Result<Option<T>> {
        let known = self.first_position(name, budget)?;
        Ok(known.map(|(_, meaning)| meaning))
    }

    /// The first pattern that matches, unless one in front of it is not understood.
    pub(super) fn first(&self, name: &str, budget: &Budget) -> Result<FirstMatch<T>> {
        let known = self.first_position(name, budget)?;
        Ok(match (known, self.unknown.first()) {
            (Some((at, _)), Some(unknown)) if unknown.position < at => FirstMatch::Unknown,
            (Some((_, meaning)), _) => FirstMatch::Known(meaning),
            (None, Some(_)) => FirstMatch::Unknown,
            (None, None) => FirstMatch::Nothing,
        })
    }

    fn first_position(&self, name: &str, budget: &Budget) -> Result<Option<(usize, T)>> {
        let mut first: Option<usize> = None;
        self.each_match(name, budget, &mut |pattern| {
            first = Some(first.map_or(pattern, |first| first.min(pattern)));
        })?;
        Ok(first.map(|pattern| self.known[pattern]))
    }

    /// The patterns that are understood and match none of the names, in their order.
    pub(super) fn unmatched<'n>(
        &self,
        names: impl Iterator<Item = &'n str>,
        budget: &Budget,
    ) -> Result<impl Iterator<Item = T>> {
        let mut matched = Vec::new();
        budget.reserve(&mut matched, self.known.len(), WHAT)?;
        matched.resize(self.known.len(), false);
        for name in names {
            self.each_match(name, budget, &mut |pattern| matched[pattern] = true)?;
        }
        let rows = self.known.iter().zip(matched);
        Ok(rows.filter_map(|((_, meaning), matched)| (!matched).then_some(*meaning)))
    }

    /// Calls `each` with the position among those that are understood of every pattern that matches a name.
    fn each_match(&self, name: &str, budget: &Budget, each: &mut dyn FnMut(usize)) -> Result<()> {
        match &self.automaton {
            Some(automaton) => automaton.each_match(name, budget, each),
            None => Ok(()),
        }
    }

    /// The patterns that are not understood.
    pub(crate) fn unknown(&self) -> &[UnknownPattern<'c, T>] {
        &self.unknown
    }
}

/// Whether a text has a sign of a regular expression, which no name of a module has.
pub(super) fn is_pattern(text: &str) -> bool {
    text.bytes().any(|byte| SIGNS.contains(&byte))
}

/// An automaton of patterns that match a whole name.
struct Automaton {
    dfa: DFA,
    last: RefCell<LastName>,
}

/// The states that the last name has gone through.
struct LastName {
    cache: Cache,
    /// How often the states were dropped. A state is valid until then.
    clears: usize,
    name: Vec<u8>,
    /// The state before each byte, and the last. None once states were dropped.
    states: Vec<LazyStateID>,
    /// Transitions that have been made, by the class of their byte.
    made: HashSet<(LazyStateID, u8)>,
}

impl LastName {
    /// Forgets the states if they were dropped: their numbers are of others then.
    fn forget_dropped(&mut self) {
        if self.cache.clear_count() != self.clears {
            self.clears = self.cache.clear_count();
            self.states.clear();
            self.made.clear();
        }
    }
}

impl Automaton {
    fn new(patterns: NFA, budget: &Budget) -> Result<Self> {
        let failed = |error| Error::unsupported(format!("{WHAT}: {error}"));
        let config = DFA::config()
            .match_kind(MatchKind::All)
            .cache_capacity(STATES)
            .skip_cache_capacity_check(true);
        let least = config.get_minimum_cache_capacity(&patterns);
        let capacity = least.map_err(failed)?.max(STATES);
        budget.memory(2 * capacity as u64, WHAT)?;
        let dfa = DFA::builder().configure(config).build_from_nfa(patterns);
        let dfa = dfa.map_err(failed)?;
        let last = LastName {
            cache: dfa.create_cache(),
            clears: 0,
            name: Vec::new(),
            states: Vec::new(),
            made: HashSet::new(),
        };
        Ok(Self {
            dfa,
            last: RefCell::new(last),
        })
    }

    /// Calls `each` with every pattern that matches.
    fn each_match(&self, name: &str, budget: &Budget, each: &mut dyn FnMut(usize)) -> Result<()> {
        let (dfa, name) = (&self.dfa, name.as_bytes());
        let last = &mut *self.last.borrow_mut();
        budget.steps(1 + name.len() as u64 / 64, WHAT)?;
        if last.name.capacity() < name.len() {
            budget.memory(8 * name.len() as u64, WHAT)?;
        }
        let same = last.name.iter().zip(name).take_while(|(a, b)| a == b);
        let same = same.count().min(last.states.len().saturating_sub(1));
        last.name.clear();
        last.name.extend_from_slice(name);
        last.states.truncate(same + 1);
        // never fails: no byte ends a search, and states are dropped as often as need be
        let lost = |error: &dyn std::fmt::Display| Error::unsupported(format!("{WHAT}: {error}"));
        let mut state = match last.states.last() {
            Some(&state) => state,
            None => {
                let begin = start::Config::new().anchored(Anchored::Yes);
                let state = dfa.start_state(&mut last.cache, &begin);
                let state = state.map_err(|error| lost(&error))?;
                last.states.push(state);
                state
            }
        };
        // work on a transition that is not made yet: all patterns may be at any of their places
        let work = 1 + dfa.get_nfa().states().len() as u64 / 8;
        for &byte in &name[same..] {
            let transition = (state, dfa.byte_classes().get(byte));
            if !last.made.contains(&transition) {
                budget.steps(work, WHAT)?;
                if last.made.len() == last.made.capacity() {
                    let more = last.made.len().max(64) as u64;
                    budget.memory(4 * more * size_of_val(&transition) as u64, WHAT)?;
                }
                last.made.insert(transition);
            }
            let next = dfa.next_state(&mut last.cache, state, byte);
            state = next.map_err(|error| lost(&error))?;
            last.forget_dropped();
            if !last.states.is_empty() {
                last.states.push(state);
            }
            if state.is_dead() {
                return Ok(());
            }
        }
        let end = dfa.next_eoi_state(&mut last.cache, state);
        let end = end.map_err(|error| lost(&error))?;
        last.forget_dropped();
        if !end.is_match() {
            return Ok(());
        }
        let found = dfa.match_len(&last.cache, end);
        budget.steps(found as u64 / 64, WHAT)?;
        (0..found).for_each(|at| each(dfa.match_pattern(&last.cache, end, at).as_usize()));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
