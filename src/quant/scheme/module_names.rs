//! Names and patterns of modules in a configuration, compiled once and matched with each tensor's name.
//!
//! A configuration lists thousands of modules and a checkpoint has thousands of tensors: a comparison of each with each is
//! 130 million for 6 000 tensors and 22 000 entries. Here a name costs time linear in its length. Patterns whose text in
//! front of the first `*` begins the name are compared one by one, and each comparison is charged as steps.

use hashbrown::HashMap;

use crate::base::error::Result;
use crate::base::limits::Budget;

const LIST: &str = "a configuration's list of modules";

/// The keys of lists of modules that are not quantised: each writer has its own.
pub(crate) static SKIPPED_LISTS: &[&str] = &[
    "modules_to_not_convert",
    "ignore",
    "ignored_layers",
    "exclude_modules",
    "llm_int8_skip_modules",
    "exclude",
    "skip_modules",
];

/// The keys of other lists with names of modules, among classes and settings.
pub(crate) static MODULE_LISTS: &[&str] =
    &["targets", "modules_in_block_to_quantize", TENSOR_NAMES];

/// The key of a header in which torchao lists its weights, all of which its reader needs.
pub(crate) const TENSOR_NAMES: &str = "tensor_names";

/// The keys of sections that describe quantisation, in the configuration of a model.
pub(crate) static QUANTISATION_SECTIONS: &[&str] =
    &["quantization_config", "quantization", "compression_config"];

/// The module of a weight: `X` for `X.weight`. A parameter of another name stands for itself.
pub(crate) fn module_of_weight(name: &str) -> &str {
    name.strip_suffix(".weight").unwrap_or(name)
}

/// Sequences of whole dotted components, all of which are searched for at once.
///
/// This is the automaton of Aho and Corasick over components instead of characters: a state is a prefix of an entry, and
/// its fallback is the longest other prefix that ends it.
#[derive(Default)]
pub(super) struct ComponentSequences<'c> {
    /// Numbers of the components that occur. A name is compared by number, so that following a fallback does not hash the
    /// component again.
    numbers: HashMap<&'c str, u32>,
    next: HashMap<(u32, u32), u32>,
    states: Vec<SequenceState>,
}

/// A prefix of an entry. SequenceState 0 is the empty one.
#[derive(Default)]
struct SequenceState {
    parent: u32,
    component: u32,
    depth: u32,
    fallback: u32,
    /// Whether an entry ends here or in a fallback.
    ends: bool,
}

/// Memory of one component: its state, and its entries in the two tables.
const COMPONENT: u64 = 160;

impl<'c> ComponentSequences<'c> {
    pub(super) fn new(
        entries: impl Iterator<Item = &'c str> + Clone,
        budget: &Budget,
    ) -> Result<Self> {
        let mut made = Self::default();
        made.states.push(SequenceState::default());
        for entry in entries {
            let count = entry.bytes().filter(|b| *b == b'.').count() as u64 + 1;
            budget.memory(count * COMPONENT, LIST)?;
            made.add(entry);
        }
        made.link();
        Ok(made)
    }

    fn add(&mut self, entry: &'c str) {
        let mut state = 0;
        for component in entry.split('.') {
            let number = index(self.numbers.len());
            let number = *self.numbers.entry(component).or_insert(number);
            let new = index(self.states.len());
            let next = *self.next.entry((state, number)).or_insert(new);
            if next == new {
                self.states.push(SequenceState {
                    parent: state,
                    component: number,
                    depth: self.states[state as usize].depth + 1,
                    ..SequenceState::default()
                });
            }
            state = next;
        }
        self.states[state as usize].ends = true;
    }

    /// Sets the fallbacks, of shorter prefixes first.
    fn link(&mut self) {
        let mut order: Vec<u32> = (1..index(self.states.len())).collect();
        order.sort_unstable_by_key(|&state| self.states[state as usize].depth);
        for state in order {
            let SequenceState {
                parent, component, ..
            } = self.states[state as usize];
            let fallback = if parent == 0 {
                0
            } else {
                self.after(self.states[parent as usize].fallback, component)
            };
            let ends = self.states[fallback as usize].ends;
            let state = &mut self.states[state as usize];
            state.fallback = fallback;
            state.ends |= ends;
        }
    }

    /// The state after one more component.
    fn after(&self, mut state: u32, component: u32) -> u32 {
        loop {
            if let Some(&next) = self.next.get(&(state, component)) {
                return next;
            }
            if state == 0 {
                return 0;
            }
            state = self.states[state as usize].fallback;
        }
    }

    /// Whether an entry occurs in the name.
    pub(super) fn occur_in(&self, name: &str) -> bool {
        if self.states.len() <= 1 {
            return false;
        }
        let mut state = 0;
        name.split('.').any(|component| {
            state = match self.numbers.get(component) {
                Some(&number) => self.after(state, number),
                None => 0,
            };
            self.states[state as usize].ends
        })
    }
}

/// Numbers below 2³²: each has cost [`COMPONENT`] bytes or more.
fn index(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Patterns with `*`, sorted by the text in front of the first one.
#[derive(Default)]
pub(super) struct PrefixPatterns<'c> {
    rows: Vec<PrefixPattern<'c>>,
}

struct PrefixPattern<'c> {
    before: &'c str,
    behind: &'c str,
    /// Position in the configuration.
    position: usize,
    /// The nearest earlier row whose `before` begins this one's.
    shorter: Option<usize>,
}

impl<'c> PrefixPatterns<'c> {
    /// Compiles patterns with their positions. Those without `*` are left out.
    pub(super) fn new(
        patterns: impl Iterator<Item = (usize, &'c str)>,
        budget: &Budget,
    ) -> Result<Self> {
        let mut rows = Vec::new();
        for (position, pattern) in patterns {
            let Some((before, behind)) = pattern.split_once('*') else {
                continue;
            };
            let row = PrefixPattern {
                before,
                behind,
                position,
                shorter: None,
            };
            budget.push(&mut rows, row, LIST)?;
        }
        rows.sort_unstable_by_key(|row| (row.before, row.position));
        // rows whose `before` begins the current row's, the longest last
        let _open = budget.temporary((2 * rows.len() * size_of::<usize>()) as u64, LIST)?;
        let mut open: Vec<usize> = Vec::new();
        for row in 0..rows.len() {
            while let Some(&last) = open.last()
                && !rows[row].before.starts_with(rows[last].before)
            {
                open.pop();
            }
            rows[row].shorter = open.last().copied();
            open.push(row);
        }
        Ok(Self { rows })
    }

    /// The position of the first pattern, as the configuration orders them, for which `fits` is true. It is called with
    /// the rest of the name behind the prefix and the rest of the pattern behind its first `*`.
    pub(super) fn first(
        &self,
        name: &str,
        budget: &Budget,
        fits: impl Fn(&str, &str) -> bool,
    ) -> Result<Option<usize>> {
        // rows that begin the name are this one, or those that its chain of shorter rows leads to
        let mut at = self
            .rows
            .partition_point(|row| row.before <= name)
            .checked_sub(1);
        let mut found: Option<usize> = None;
        while let Some(row) = at {
            let row = &self.rows[row];
            at = row.shorter;
            let mut cost = 1 + row.before.len() as u64 / 64;
            if let Some(rest) = name.strip_prefix(row.before) {
                let pieces = row.behind.bytes().filter(|b| *b == b'*').count() + 1;
                cost += (pieces as u64 * rest.len() as u64 + row.behind.len() as u64) / 64;
                budget.steps(cost, LIST)?;
                if fits(rest, row.behind) {
                    found = Some(found.map_or(row.position, |first| first.min(row.position)));
                }
            } else {
                budget.steps(cost, LIST)?;
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::limits::Limits;

    fn budget() -> Budget {
        Budget::new(Limits::default())
    }

    /// Whether `entry` occurs in `name` as whole components, by the definition.
    fn occurs(entry: &str, name: &str) -> bool {
        let (entry, name): (Vec<_>, Vec<_>) =
            (entry.split('.').collect(), name.split('.').collect());
        name.windows(entry.len()).any(|window| window == entry)
    }

    /// The most components of a name.
    const COMPONENTS: usize = if cfg!(miri) { 2 } else { 5 };

    /// Every name of components `a` and `b`, and the empty component.
    fn names() -> Vec<String> {
        let mut names = vec![String::new()];
        let mut all = Vec::new();
        for _ in 0..COMPONENTS {
            names = names
                .iter()
                .flat_map(|name| ["a", "b", ""].map(|next| format!("{name}.{next}")))
                .collect();
            all.extend(names.iter().map(|name| name[1..].to_owned()));
        }
        all
    }

    #[test]
    fn component_sequences_match_as_comparing_each_with_each() {
        let lists: [&[&str]; 6] = [
            &["a"],
            &["a.a.b", "a.b"],
            &["b.a", "a.a.a", "b.b"],
            &["a.b.a.b", "b.a.b.b"],
            &[".a", "b."],
            &["c", "a.c", "c.a"],
        ];
        for list in lists {
            let compiled = ComponentSequences::new(list.iter().copied(), &budget()).unwrap();
            for name in names() {
                let expected = list.iter().any(|entry| occurs(entry, &name));
                assert_eq!(compiled.occur_in(&name), expected, "{list:?} {name}");
            }
        }
        let none = ComponentSequences::new(std::iter::empty(), &budget()).unwrap();
        assert!(!none.occur_in("a"));
    }

    #[test]
    fn prefix_patterns_match_as_comparing_each_with_each() {
        let patterns = ["b*", "a.*", "a*b", "*", "a.b*a", "a.b.*", "b.b.b*", "a*"];
        for skip in 0..patterns.len() {
            let list = &patterns[skip..];
            let budget = budget();
            let compiled = PrefixPatterns::new(list.iter().copied().enumerate(), &budget).unwrap();
            for name in names() {
                let expected = list.iter().position(|pattern| {
                    let (before, behind) = pattern.split_once('*').unwrap();
                    name.strip_prefix(before)
                        .is_some_and(|rest| rest.contains(behind))
                });
                let found = compiled
                    .first(&name, &budget, |rest, behind| rest.contains(behind))
                    .unwrap();
                assert_eq!(found, expected, "{list:?} {name}");
            }
        }
    }
}
