//! The caller's renames of A's names: the first that fits a name counts.

use std::cell::Cell;

use crate::read::rename::Rename;

/// The rules of one comparison, which notice what they have matched.
#[derive(Debug, Default)]
pub(super) struct RenameRules<'r>(Vec<(&'r Rename, Cell<bool>)>);

impl<'r> RenameRules<'r> {
    pub(super) fn new(rules: &'r [Rename]) -> Self {
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
        unused.map(|(rule, _)| rule.from().to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_and_patterns_rename() {
        let rules = [
            Rename::new("model.", ""),
            Rename::new("*.attn.*.w", "*.attention.*.weight"),
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
}
