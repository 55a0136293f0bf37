//! Renames of tensors: a whole name, a prefix that ends at a dot, or a pattern with `*`.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::base::error::{Error, Result};
use crate::base::limits::Budget;
use crate::read::catalog::{quote, repeated};

/// A rename of tensors.
///
/// Without `*`, the left side is a whole name, or a prefix at whose end the name has a dot. With `*` it is a pattern of the whole
/// name, and the n-th `*` of the right side, which has no more of them, stands for what the n-th of the left has matched.
///
/// ```
/// use anamnesis::Rename;
///
/// let prefix = Rename::new("model", "net.model");
/// assert_eq!(prefix.apply("model.norm.weight").as_deref(), Some("net.model.norm.weight"));
/// assert_eq!(prefix.apply("models.norm.weight"), None);
/// let pattern = Rename::new("*.mlp.*", "*.ffn.*");
/// assert_eq!(pattern.apply("layers.3.mlp.up").as_deref(), Some("layers.3.ffn.up"));
/// // an empty right side removes the prefix with its dot
/// assert_eq!(Rename::new("state_dict", "").apply("state_dict.w").as_deref(), Some("w"));
/// // a prefix that has its dot removes no other
/// assert_eq!(Rename::new("m.", "").apply("m..lead").as_deref(), Some(".lead"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rename {
    from: Box<str>,
    to: Box<str>,
}

impl Rename {
    /// Names that `from` describes become `to`.
    pub fn new(from: &str, to: &str) -> Self {
        Self {
            from: from.into(),
            to: to.into(),
        }
    }

    /// The left side.
    pub fn from(&self) -> &str {
        &self.from
    }

    /// Refuses a right side that has more `*` than the left one.
    ///
    /// ```
    /// use anamnesis::Rename;
    ///
    /// assert!(Rename::new("*.mlp.*", "*.ffn.*").check().is_ok());
    /// assert!(Rename::new("*.mlp", "*.*.ffn").check().is_err());
    /// ```
    ///
    /// # Errors
    /// If there is no text for the last `*` of the right side.
    pub fn check(&self) -> Result<()> {
        let stars = |text: &str| text.matches('*').count();
        match stars(&self.to) > stars(&self.from) {
            true => Err(Error::invalid_argument(format!(
                "the new name {} has more `*` than {}: each stands for what one of them has matched",
                quote(&self.to),
                quote(&self.from)
            ))),
            false => Ok(()),
        }
    }

    /// The error of a rename that has changed names, of which none is another one behind the renames that follow.
    pub(crate) fn undone(&self) -> Error {
        Error::invalid_argument(format!(
            "no name is another one by {}={}: its sides are equal, or a later rename undoes it",
            quote(&self.from),
            quote(&self.to)
        ))
    }

    /// The new name; `None` if the rename is not for this one.
    pub fn apply(&self, name: &str) -> Option<String> {
        if !self.from.contains('*') {
            let rest = name.strip_prefix(&*self.from)?;
            let has_dot = self.from.ends_with('.');
            if !(rest.is_empty() || rest.starts_with('.') || has_dot) {
                return None;
            }
            let rest = match self.to.is_empty() && !has_dot {
                true => rest.strip_prefix('.').unwrap_or(rest),
                false => rest,
            };
            let new = [&*self.to, rest].concat();
            // a name that is the prefix would be left empty
            return (!new.is_empty()).then_some(new);
        }
        let texts = matched(&self.from, name)?;
        let (mut made, mut texts) = (String::new(), texts.into_iter());
        for (i, piece) in self.to.split('*').enumerate() {
            if i > 0 {
                // more stars than in the pattern stand for nothing
                made.push_str(texts.next().unwrap_or_default());
            }
            made.push_str(piece);
        }
        Some(made)
    }
}

impl Rename {
    /// The new names of a list, by rules that are applied one after the other to each.
    ///
    /// ```
    /// use anamnesis::Rename;
    ///
    /// let rules = [Rename::new("model", ""), Rename::new("norm.*", "final_norm.*")];
    /// let names = Rename::apply_all(&rules, &["model.norm.weight", "lm_head.weight"])?;
    /// assert_eq!(names, ["final_norm.weight", "lm_head.weight"]);
    /// assert!(Rename::apply_all(&rules, &["lm_head.weight"]).is_err());
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    ///
    /// # Errors
    /// A rule that is for none of the names, one that [`check`](Self::check) refuses, and two equal new names.
    pub fn apply_all(rules: &[Self], names: &[impl AsRef<str>]) -> Result<Vec<String>> {
        rules.iter().try_for_each(Self::check)?;
        let renames = Renames::new(rules);
        let new: Vec<String> = names
            .iter()
            .map(|name| renames.apply(name.as_ref()))
            .collect();
        renames.check_used()?;
        match repeated(new.iter().map(String::as_str)) {
            Some(name) => Err(Error::invalid_argument(format!(
                "rename: two tensors would be called {}",
                quote(name)
            ))),
            None => Ok(new),
        }
    }
}

/// Renames that are applied one after the other, and notice which of them have renamed something.
#[derive(Debug, Default)]
pub(crate) struct Renames {
    rules: Vec<AppliedRename>,
}

/// A rename, and what has become of it.
#[derive(Debug)]
struct AppliedRename {
    rule: Rename,
    /// Whether it has renamed something.
    used: AtomicBool,
    /// Whether a name that it has renamed is another one behind all renames.
    changed: AtomicBool,
}

impl Renames {
    pub(crate) fn new(rules: &[Rename]) -> Self {
        let rules = rules.iter().cloned();
        Self {
            rules: rules.map(AppliedRename::new).collect(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The new name, and notices which rules it is by.
    pub(crate) fn apply(&self, name: &str) -> String {
        let new = self.applied(name, |rename| rename.used.store(true, Ordering::Relaxed));
        if new != name {
            self.applied(name, |rename| {
                rename.changed.store(true, Ordering::Relaxed);
            });
        }
        new
    }

    /// The new name.
    pub(crate) fn preview(&self, name: &str) -> String {
        self.applied(name, |_| {})
    }

    fn applied(&self, name: &str, notice: impl Fn(&AppliedRename)) -> String {
        let mut current = name.to_owned();
        for rename in &self.rules {
            if let Some(new) = rename.rule.apply(&current) {
                notice(rename);
                current = new;
            }
        }
        current
    }

    /// Refuses a rule that has renamed nothing, or nothing in the end.
    ///
    /// # Errors
    /// The first such rule.
    pub(crate) fn check_used(&self) -> Result<()> {
        let is_set = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        for AppliedRename {
            rule,
            used,
            changed,
        } in &self.rules
        {
            if !is_set(used) {
                let what = format!("no tensor is renamed by {}", quote(rule.from()));
                return Err(Error::invalid_argument(what));
            }
            if !is_set(changed) {
                return Err(rule.undone());
            }
        }
        Ok(())
    }

    /// Whether two rules are for each other's names, as the rules of a swap are: the second then finds what the first has renamed, too.
    pub(crate) fn swap(&self) -> bool {
        let mut rules = self.rules.iter().enumerate();
        rules.any(|(i, first)| {
            let mut later = self.rules[i + 1..].iter();
            later.any(|second| {
                first.rule.from == second.rule.to && first.rule.to == second.rule.from
            })
        })
    }
}

impl AppliedRename {
    fn new(rule: Rename) -> Self {
        Self {
            rule,
            used: AtomicBool::new(false),
            changed: AtomicBool::new(false),
        }
    }
}

/// The new names of all tensors of a checkpoint, by which names of modules and weights are renamed too.
#[derive(Debug)]
pub(crate) struct RenamedTensors<'r> {
    /// Old and new names, sorted by the old ones.
    names: Vec<(&'r str, String)>,
    renames: &'r Renames,
}

impl<'r> RenamedTensors<'r> {
    pub(crate) fn new(names: impl Iterator<Item = &'r str>, renames: &'r Renames) -> Self {
        let mut names: Vec<_> = names.map(|name| (name, renames.preview(name))).collect();
        names.sort();
        Self { names, renames }
    }

    /// The new name of a tensor; `None` if it stays, or there is none of this name.
    pub(crate) fn tensor(&self, name: &str) -> Option<String> {
        let at = self
            .names
            .binary_search_by_key(&name, |(old, _)| old)
            .ok()?;
        let new = &self.names[at].1;
        (new != name).then(|| new.clone())
    }

    /// The new name of a tensor, or of a module or weight that tensors are named after, or would be. `None` if it stays: nothing of
    /// the checkpoint has the name, or its tensors do not keep one.
    ///
    /// # Errors
    /// A limit on work: a configuration may have any number of names, and each is compared with all tensors below it.
    pub(crate) fn renamed(&self, name: &str, budget: &Budget) -> Result<Option<String>> {
        Ok(match self.found(name, budget)? {
            FoundName::Renamed(new) => Some(new),
            // a module without tensors of its own, such as one that was fused with others; a word without a dot may be a setting
            FoundName::None if name.contains('.') => {
                let new = self.renames.preview(name);
                (new != name).then_some(new)
            }
            FoundName::None | FoundName::Stays => None,
        })
    }

    /// Like [`renamed`](Self::renamed), for a name that may be of anything: tensors must have it, or be named after it.
    ///
    /// # Errors
    /// The errors of [`renamed`](Self::renamed).
    pub(crate) fn renamed_tensor(&self, name: &str, budget: &Budget) -> Result<Option<String>> {
        let found = self.found(name, budget)?;
        // torchao's parts: `a._weight_scale` of `a.weight`, and `_w_scale` of `w`
        let (front, last) = match name.rfind('.') {
            Some(dot) => name.split_at(dot + 1),
            None => ("", name),
        };
        if let (FoundName::None, FoundName::Renamed(new)) =
            (&found, self.found(&[front, "_", last].concat(), budget)?)
        {
            let (front, last) = match new.rfind('.') {
                Some(dot) => new.split_at(dot + 1),
                None => ("", &*new),
            };
            if let Some(last) = last.strip_prefix('_') {
                return Ok(Some([front, last].concat()));
            }
        }
        // a weight of a module whose tensors are its parts
        if let (FoundName::None, Some((module, rest))) = (&found, name.rsplit_once('.'))
            && let FoundName::Renamed(new) = self.found(module, budget)?
        {
            return Ok(Some([&new, ".", rest].concat()));
        }
        Ok(match found {
            FoundName::Renamed(new) => Some(new),
            FoundName::None | FoundName::Stays => None,
        })
    }

    /// The new key and value of metadata by which a name that is not stored shares the values of a tensor that is, as
    /// `safetensors.torch.save_model` writes them. `None` if they are something else, or stay.
    pub(crate) fn alias(&self, left_out: &str, tensor: &str) -> Option<(String, String)> {
        let is_tensor = |name: &str| {
            let found = self.names.binary_search_by_key(&name, |(old, _)| old);
            found.is_ok()
        };
        if !is_tensor(tensor) || is_tensor(left_out) {
            return None;
        }
        // a word without a dot may be a key of another meaning
        let key = match left_out.contains('.') {
            true => self.renames.preview(left_out),
            false => left_out.to_owned(),
        };
        let value = self.renames.preview(tensor);
        (key != left_out || value != tensor).then_some((key, value))
    }

    /// Old and new names of the tensors.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.names.iter().map(|(old, new)| (*old, &**new))
    }

    /// A name that two tensors would have.
    pub(crate) fn twice(&self) -> Option<&str> {
        repeated(self.names.iter().map(|(_, new)| &**new))
    }

    fn found(&self, name: &str, budget: &Budget) -> Result<FoundName> {
        let first = self.names.partition_point(|(old, _)| *old < name);
        let below = self.names[first..]
            .iter()
            .take_while(|(old, _)| old.starts_with(name));
        let mut found: Option<&str> = None;
        for (old, new) in below {
            budget.steps(1 + name.len() as u64 / 64, "the names in a configuration")?;
            let rest = &old[name.len()..];
            if !rest.is_empty() && !rest.starts_with(['.', '_']) {
                continue;
            }
            match new.strip_suffix(rest) {
                Some(stem) if found.is_none_or(|known| known == stem) => found = Some(stem),
                _ => return Ok(FoundName::Stays),
            }
        }
        Ok(match found {
            Some(new) if new == name => FoundName::Stays,
            Some(new) => FoundName::Renamed(new.to_owned()),
            None => FoundName::None,
        })
    }
}

/// The outcome of looking for the tensors of a name.
enum FoundName {
    /// No tensor has it, or is named after it.
    None,
    /// It stays, or its tensors do not keep one.
    Stays,
    Renamed(String),
}

/// The texts that the stars of a pattern stand for: each as short as the rest allows, the last one the rest.
fn matched<'n>(pattern: &str, name: &'n str) -> Option<Vec<&'n str>> {
    let mut pieces = pattern.split('*');
    let mut rest = name.strip_prefix(pieces.next()?)?;
    let mut texts = Vec::new();
    let mut pieces = pieces.peekable();
    while let Some(piece) = pieces.next() {
        let at = if pieces.peek().is_none() {
            // the last piece is the end of the name, not its first occurrence
            rest.len()
                .checked_sub(piece.len())
                .filter(|_| rest.ends_with(piece))?
        } else {
            rest.find(piece)?
        };
        texts.push(&rest[..at]);
        rest = &rest[at + piece.len()..];
    }
    Some(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_end_at_dots_and_patterns_are_whole_names() {
        let cases = [
            ("model", "m", "model.norm", Some("m.norm")),
            ("model", "m", "model", Some("m")),
            ("model", "m", "model_b.norm", None),
            ("model.", "", "model.norm", Some("norm")),
            ("model", "", "model", None),
            ("a.*.w", "b.*", "a.x.y.w", Some("b.x.y")),
            ("a.*.w", "b.*", "a.x.y.w.z", None),
            ("*", "net.*", "w", Some("net.w")),
        ];
        for (from, to, name, expected) in cases {
            let found = Rename::new(from, to).apply(name);
            assert_eq!(found.as_deref(), expected, "{from}={to} {name}");
        }
    }

    #[test]
    fn the_last_star_is_the_rest() {
        assert_eq!(matched("a*b*c", "aXbYbZc"), Some(vec!["X", "YbZ"]));
        assert_eq!(matched("*", ""), Some(vec![""]));
        assert_eq!(matched("ab*ba", "aba"), None);
        assert_eq!(matched("ab*ba", "abba"), Some(vec![""]));
    }

    #[test]
    fn modules_are_renamed_as_all_of_their_tensors_are() {
        let renames = Renames::new(&[
            Rename::new("m", "n"),
            Rename::new("*.a.weight", "*.b.weight"),
        ]);
        let names = ["m.a.weight", "m.a.weight_scale", "m.c.weight", "m.c.bias"];
        let tensors = RenamedTensors::new(names.into_iter(), &renames);
        let budget = Budget::new(crate::base::limits::Limits::default());
        let renamed = |name| tensors.renamed(name, &budget).unwrap();
        assert_eq!(renamed("m.c").as_deref(), Some("n.c"));
        assert_eq!(renamed("m.d").as_deref(), Some("n.d"));
        // its two tensors are of two modules now
        assert_eq!(renamed("m.a"), None);
        assert_eq!(renamed("Linear"), None);
        assert!(renames.check_used().is_err());
        names.iter().for_each(|name| drop(renames.apply(name)));
        assert!(renames.check_used().is_ok() && !renames.swap());
    }

    #[test]
    fn a_rename_that_is_undone_is_refused() {
        for (renames, is_swap) in [
            (&[("a", "b"), ("b", "a")][..], true),
            (&[("a", "a")], false),
            (&[("a", "c"), ("c", "d"), ("d", "a")], false),
        ] {
            let rules: Vec<_> = renames.iter().map(|(a, b)| Rename::new(a, b)).collect();
            let renames = Renames::new(&rules);
            assert_eq!(renames.apply("a.w"), "a.w");
            assert!(renames.check_used().is_err());
            assert_eq!(renames.swap(), is_swap);
        }
        // the third name of a swap
        let rules = [("a", "c"), ("b", "a"), ("c", "b")].map(|(a, b)| Rename::new(a, b));
        let renames = Renames::new(&rules);
        assert_eq!((&*renames.apply("a"), &*renames.apply("b")), ("b", "a"));
        assert!(renames.check_used().is_ok() && !renames.swap());
    }
}
