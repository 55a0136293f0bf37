//! The patterns of names that a verb takes (`--filter`, `--exclude`, `--rule`) and the changes that it makes of them
//! (`--strip-prefix`, `--rename`), and the one rule about both: one that matches no name is a mistake of the caller's, in
//! every verb. It would load, compare or check nothing, or rename nothing, and look like a success.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use anamnesis::template::parallel::{Rule, Rules};
use anamnesis::{ErrorKind, Rename};
use globset::GlobMatcher;

use crate::failure::Failure;

/// Names that are proposed for a pattern without a match.
const PROPOSED: usize = 3;
/// Names that are remembered for proposals. Layers count once, so that these are all of most models.
const REMEMBERED: usize = 4096;
/// The longest name and pattern that are compared for proposals.
const LONGEST: usize = 256;

/// A pattern of an option.
struct NamePattern<'a> {
    option: &'static str,
    text: &'a str,
    matches: Box<dyn Fn(&str) -> bool + Send + Sync + 'a>,
    /// Whether it has matched a name.
    used: AtomicBool,
}

impl<'a> NamePattern<'a> {
    fn of_globs(
        option: &'static str,
        globs: &'a [GlobMatcher],
    ) -> impl Iterator<Item = NamePattern<'a>> {
        globs.iter().map(move |glob| NamePattern {
            option,
            text: glob.glob().glob(),
            matches: Box::new(|name| glob.is_match(name)),
            used: AtomicBool::new(false),
        })
    }

    fn accepts(&self, name: &str) -> bool {
        let accepts = (self.matches)(name);
        // a store for every name would move the line between threads
        if accepts && !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        accepts
    }

    fn is_unused(&self) -> bool {
        !self.used.load(Ordering::Relaxed)
    }
}

/// The filters of a verb, which notice what they have matched. One value is for all models of a run: a pattern for a tensor
/// of one shard is no mistake where several shards are named.
#[derive(Default)]
pub(crate) struct NameFilter<'a> {
    included: Vec<NamePattern<'a>>,
    excluded: Vec<NamePattern<'a>>,
    /// Patterns that choose something other than which tensors are looked at.
    others: Vec<NamePattern<'a>>,
    seen: Mutex<SeenNames>,
}

impl<'a> NameFilter<'a> {
    /// Accepts names that one of `filters` matches; without filters, every name.
    pub(crate) fn new(filters: &'a [GlobMatcher]) -> Self {
        Self {
            included: NamePattern::of_globs("--filter", filters).collect(),
            ..Self::default()
        }
    }

    /// Rejects names that one of `filters` matches.
    pub(crate) fn excluding(mut self, filters: &'a [GlobMatcher]) -> Self {
        self.excluded = NamePattern::of_globs("--exclude", filters).collect();
        self
    }

    /// Patterns of `--rule`, which match as [`Rules`] does.
    pub(crate) fn rules(mut self, rules: &'a [(String, Rule)]) -> Self {
        let pattern = |(pattern, _): &'a (String, Rule)| {
            let mut only = Rules::none();
            // any rule but the one of names without a rule
            only.put_first(pattern, Rule::Column);
            NamePattern {
                option: "--rule",
                text: pattern,
                matches: Box::new(move |name| only.rule(name) == Rule::Column),
                used: AtomicBool::new(false),
            }
        };
        self.others = rules.iter().map(pattern).collect();
        self
    }

    /// Whether there is a pattern of `--filter` or `--exclude`.
    pub(crate) fn has_patterns(&self) -> bool {
        !self.included.is_empty() || !self.excluded.is_empty()
    }

    /// Whether there is no pattern of `--filter`.
    pub(crate) fn is_empty(&self) -> bool {
        self.included.is_empty()
    }

    /// Whether the filters select a name.
    pub(crate) fn passes(&self, name: &str) -> bool {
        self.selects(name) && !self.excludes(name)
    }

    /// Whether `--filter` accepts a name.
    pub(crate) fn selects(&self, name: &str) -> bool {
        self.observe(name);
        self.is_empty() || self.included.iter().any(|pattern| pattern.accepts(name))
    }

    /// Whether `--exclude` matches a name.
    pub(crate) fn excludes(&self, name: &str) -> bool {
        self.excluded.iter().any(|pattern| pattern.accepts(name))
    }

    /// Notices a name, whether or not it is selected: a pattern that another one precedes is used as well.
    pub(crate) fn observe(&self, name: &str) {
        if self.patterns().all(|pattern| !pattern.is_unused()) {
            return;
        }
        for pattern in self.patterns().filter(|pattern| pattern.is_unused()) {
            pattern.accepts(name);
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.add(name);
    }

    fn patterns(&self) -> impl Iterator<Item = &NamePattern<'a>> {
        let patterns = self.included.iter().chain(&self.excluded);
        patterns.chain(&self.others)
    }

    /// Refuses the first pattern that has matched none of the names so far, with the names that are most like it.
    ///
    /// # Errors
    ///
    /// A pattern matched nothing; the exit status is 2, as of invalid arguments.
    pub(crate) fn require_matches(&self) -> Result<(), Failure> {
        let Some(pattern) = self.patterns().find(|pattern| pattern.is_unused()) else {
            return Ok(());
        };
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        Err(seen.without_match(pattern.option, pattern.text))
    }
}

/// The failure of a pattern of an option that matches none of these names.
pub(crate) fn without_match<'n>(
    option: &str,
    text: &str,
    names: impl Iterator<Item = &'n str>,
) -> Failure {
    let mut seen = SeenNames::default();
    names.for_each(|name| seen.add(name));
    seen.without_match(option, text)
}

/// The failure of an option that names a key of the metadata which the model has not, as of a pattern without a match; any
/// other failure stays. `keys` are those that it has.
pub(crate) fn of_missing_key<'n>(
    error: anamnesis::Error,
    option: &str,
    keys: impl Iterator<Item = &'n str>,
) -> Failure {
    let ErrorKind::NotFound {
        what: "metadata key",
        name,
    } = error.kind()
    else {
        return Failure::from(error);
    };
    let mut seen = SeenNames::default();
    keys.for_each(|name| seen.add(name));
    let found = seen.found(name, "there are no keys");
    let message = format!("no metadata key is {} of {option}; {found}", quoted(name));
    let help = "correct the key; `anamnesis inspect --metadata` lists all keys";
    Failure::new("not_found", message, help).of_arguments()
}

/// The changes of `--strip-prefix` and `--rename`, in this order, which notice what they have matched. One value is for all
/// models of a run, as of [`NameFilter`].
pub(crate) struct NameChanges<'a> {
    changes: Vec<NameChange<'a>>,
    seen: Mutex<SeenNames>,
}

/// A change of an option.
struct NameChange<'a> {
    option: &'static str,
    /// The text that names have to match.
    text: &'a str,
    to: &'a str,
    rename: Rename,
    used: AtomicBool,
    /// Whether a name that it has changed is another one behind all changes.
    lasts: AtomicBool,
    /// Whether a tensor would have no name.
    leaves_none: AtomicBool,
}

impl<'a> NameChanges<'a> {
    pub(crate) fn new(prefix: Option<&'a str>, renames: &'a [(String, String)]) -> Self {
        let change = |option, text, to| NameChange {
            option,
            text,
            to,
            rename: Rename::new(text, to),
            used: AtomicBool::new(false),
            lasts: AtomicBool::new(false),
            leaves_none: AtomicBool::new(false),
        };
        // people write the prefix with its dot or without
        let prefix = prefix.map(|prefix| prefix.strip_suffix('.').unwrap_or(prefix));
        let prefix = prefix.filter(|prefix| !prefix.is_empty());
        let prefix = prefix.map(|prefix| change("--strip-prefix", prefix, ""));
        let renames = renames.iter();
        let renames = renames.map(|(from, to)| change("--rename", from, to));
        Self {
            changes: prefix.into_iter().chain(renames).collect(),
            seen: Mutex::default(),
        }
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The two sides of each change, for a builder that renames by itself.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.changes.iter().map(|change| (change.text, change.to))
    }

    /// The changed name.
    pub(crate) fn apply(&self, name: &str) -> String {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.add(name);
        drop(seen);
        let mut changed = name.to_owned();
        let mut applied = Vec::new();
        for change in &self.changes {
            if let Some(new) = change.rename.apply(&changed) {
                change.used.store(true, Ordering::Relaxed);
                applied.push(&change.lasts);
                changed = new;
            } else if changed == change.text {
                change.leaves_none.store(true, Ordering::Relaxed);
            }
        }
        if changed != name {
            let lasting = applied.into_iter();
            lasting.for_each(|lasts| lasts.store(true, Ordering::Relaxed));
        }
        changed
    }

    /// Refuses the first change that has matched none of the names so far, with the names that are most like it, and one after which
    /// all names are as they were.
    ///
    /// # Errors
    ///
    /// The error of [`NameFilter::require_matches`].
    pub(crate) fn require_matches(&self) -> Result<(), Failure> {
        let mut changes = self.changes.iter();
        let Some(unused) = changes.find(|change| !change.used.load(Ordering::Relaxed)) else {
            return self.require_lasting();
        };
        if unused.leaves_none.load(Ordering::Relaxed) {
            let (text, option) = (quoted(unused.text), unused.option);
            let what = format!("the tensor {text} would have no name by {option}");
            let help = "give it a name behind the `=`";
            return Err(Failure::new("invalid_argument", what, help));
        }
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        Err(seen.without_match(unused.option, unused.text))
    }

    /// Refuses a change that later ones undo: a name is then as it was, without a word.
    fn require_lasting(&self) -> Result<(), Failure> {
        let mut changes = self.changes.iter();
        let undone = changes.find(|change| {
            change.used.load(Ordering::Relaxed) && !change.lasts.load(Ordering::Relaxed)
        });
        let Some(undone) = undone else { return Ok(()) };
        let (text, option) = (quoted(undone.text), undone.option);
        let what = format!(
            "no name is another one by {option} of {text}: its sides are equal, or a later rename undoes it"
        );
        let help = "leave both out; to swap two names, take a third: --rename A=C --rename B=A --rename C=B";
        Err(Failure::new("invalid_argument", what, help))
    }
}

/// A name in a message, which is escaped where it is printed.
fn quoted(name: &str) -> String {
    format!("`{name}`")
}

/// Names for proposals.
#[derive(Default)]
struct SeenNames {
    names: Vec<Box<str>>,
    /// Names without their numbers: one layer stands for all.
    forms: HashSet<Box<str>>,
    /// The first name.
    first: Option<Box<str>>,
    /// Whether there is another name.
    several: bool,
}

impl SeenNames {
    fn add(&mut self, name: &str) {
        match &self.first {
            Some(first) => self.several |= **first != *name,
            None => self.first = Some(name.into()),
        }
        if self.names.len() == REMEMBERED || name.len() > LONGEST {
            return;
        }
        let mut form = String::with_capacity(name.len());
        for c in name.chars() {
            let c = if c.is_ascii_digit() { '0' } else { c };
            if c != '0' || !form.ends_with('0') {
                form.push(c);
            }
        }
        if self.forms.insert(form.into()) {
            self.names.push(name.into());
        }
    }

    /// The names that are nearest to one that is missing; the text `none` where there are no names.
    fn found(&self, text: &str, none: &str) -> String {
        let nearest: Vec<String> = self.nearest(text).map(quoted).collect();
        match &nearest[..] {
            [] if self.first.is_none() => none.to_owned(),
            [] => "all names are longer than any pattern".to_owned(),
            [one] if self.several => format!("the nearest name is {one}"),
            [one] => format!("the only name is {one}"),
            several => format!("the nearest names are {}", several.join(", ")),
        }
    }

    fn without_match(&self, option: &str, text: &str) -> Failure {
        let found = self.found(text, "there are no tensors");
        let is_name = self.names.iter().any(|name| **name == *text);
        let text = quoted(text);
        let message = format!("no tensor matches {text} of {option}; {found}");
        let help = match is_name {
            // characters of patterns in the name
            true => {
                "put a `\\` before each of `*?[]{}` and of `\\` that stands for itself in the name"
            }
            false => "correct the pattern; `anamnesis inspect` lists all names",
        };
        Failure::new("no_match", message, help).of_arguments()
    }

    /// The names that are most like a pattern, nearest first.
    fn nearest(&self, pattern: &str) -> impl Iterator<Item = &str> {
        let pattern: String = pattern.chars().take(LONGEST).collect();
        let names = self.names.iter();
        let mut rows: Vec<(usize, &str)> = names
            .map(|name| (distance(&pattern, name), &**name))
            .collect();
        // stable: equally near names in file order
        rows.sort_by_key(|(distance, _)| *distance);
        rows.into_iter().take(PROPOSED).map(|(_, name)| name)
    }
}

/// How many characters of a name have to be inserted, removed or replaced until a pattern matches it. `*` and `?` match as in
/// patterns; other special characters count as themselves, which is enough for a proposal.
fn distance(pattern: &str, name: &str) -> usize {
    let name: Vec<char> = name.chars().collect();
    let mut row: Vec<usize> = (0..=name.len()).collect();
    for p in pattern.chars() {
        let mut diagonal = row[0];
        row[0] += usize::from(p != '*');
        for (i, n) in name.iter().enumerate() {
            let (above, left) = (row[i + 1], row[i]);
            row[i + 1] = match p {
                '*' => above.min(left),
                _ => {
                    let replaced = diagonal + usize::from(p != '?' && p != *n);
                    replaced.min(above + 1).min(left + 1)
                }
            };
            diagonal = above;
        }
    }
    row[name.len()]
}

#[cfg(test)]
mod tests {
    use globset::Glob;

    use super::*;

    #[test]
    fn distances_are_zero_where_a_pattern_matches() {
        for (pattern, name, expected) in [
            ("*.down_proj.*", "layers.0.mlp.down_proj.weight", 0),
            ("*.down_porj.*", "layers.0.mlp.down_proj.weight", 2),
            ("lm_head", "lm_head.weight", 7),
            ("h?ad", "head", 0),
            ("", "abc", 3),
            ("*", "", 0),
            ("ab", "", 2),
        ] {
            assert_eq!(distance(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn every_pattern_needs_a_match() {
        let globs = |texts: &[&str]| -> Vec<GlobMatcher> {
            let compiled = texts.iter().map(|text| Glob::new(text).unwrap());
            compiled.map(|glob| glob.compile_matcher()).collect()
        };
        let (include, exclude) = (globs(&["a.*", "*.w"]), globs(&["*.b"]));
        let filter = NameFilter::new(&include).excluding(&exclude);
        assert!(filter.passes("a.w") && !filter.passes("c.x"));
        // no name was excluded so far
        assert!(filter.require_matches().is_err());
        assert!(!filter.passes("a.b"));
        assert!(filter.require_matches().is_ok());
        // characters of a name that patterns have a meaning for
        let same = globs(&[r"w\z"]);
        let filter = NameFilter::new(&same);
        assert!(!filter.passes(r"w\z"));
        let failure = filter.require_matches().unwrap_err();
        assert!(format!("{failure:?}").contains("put a `"), "{failure:?}");
        // the second of two that match the same name
        let filter = NameFilter::new(&include);
        assert!(filter.passes("a.w"));
        assert!(filter.require_matches().is_ok());
    }
}
