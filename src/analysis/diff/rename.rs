//! The caller's renames: a prefix by another one, or a pattern with `*`.

use std::cell::Cell;

/// A rename of A's names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RenameRule {
    from: Box<str>,
    to: Box<str>,
}

impl RenameRule {
    pub(super) fn new(from: &str, to: &str) -> Self {
        Self {
            from: from.into(),
            to: to.into(),
        }
    }

    /// The new name; `None` if the rule is not for this one.
    fn apply(&self, name: &str) -> Option<String> {
        if !self.from.contains('*') {
            return name
                .strip_prefix(&*self.from)
                .map(|rest| [&*self.to, rest].concat());
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

/// The rules of one comparison, which notice what they have matched.
#[derive(Debug, Default)]
pub(super) struct RenameRules<'r>(Vec<(&'r RenameRule, Cell<bool>)>);

impl<'r> RenameRules<'r> {
    pub(super) fn new(rules: &'r [RenameRule]) -> Self {
        Self(rules.iter().map(|rule| (rule, Cell::new(false))).collect())
    }

    /// The name by the first rule that fits, if one does. A rule that another one precedes is used as well.
    pub(super) fn renamed(&self, name: &str) -> Option<String> {
        let mut first = None;
        for (rule, used) in &self.0 {
            if first.is_some() && used.get() {
                continue;
            }
            if let Some(renamed) = rule.apply(name) {
                used.set(true);
                first.get_or_insert(renamed);
            }
        }
        first
    }

    /// The names and patterns of the rules that have matched no name.
    pub(super) fn unused(&self) -> Vec<String> {
        let unused = self.0.iter().filter(|(_, used)| !used.get());
        unused.map(|(rule, _)| rule.from.to_string()).collect()
    }
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
    fn prefixes_and_patterns_rename() {
        let rules = [
            RenameRule::new("model.", ""),
            RenameRule::new("*.attn.*.w", "*.attention.*.weight"),
        ];
        let rules = RenameRules::new(&rules);
        assert_eq!(rules.unused(), ["model.", "*.attn.*.w"]);
        for (name, expected) in [
            ("model.norm.weight", Some("norm.weight")),
            ("h.3.attn.q.w", Some("h.3.attention.q.weight")),
            ("h.3.attn.q.b", None),
            ("lm_head.weight", None),
        ] {
            assert_eq!(rules.renamed(name).as_deref(), expected, "{name}");
        }
        assert!(rules.unused().is_empty());
    }

    #[test]
    fn the_last_star_is_the_rest() {
        assert_eq!(matched("a*b*c", "aXbYbZc"), Some(vec!["X", "YbZ"]));
        assert_eq!(matched("*", ""), Some(vec![""]));
        assert_eq!(matched("ab*ba", "aba"), None);
        assert_eq!(matched("ab*ba", "abba"), Some(vec![""]));
    }
}
