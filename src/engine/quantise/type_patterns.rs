//! Types of tensors by regular expressions, found anywhere in a name; the first one decides.

use std::cell::Cell;

use crate::base::error::Result;
use crate::base::limits::Budget;
use crate::base::quote::quote;
use crate::quant::scheme::{NamePatterns, PatternKind};

use super::about_pattern;

/// Patterns, and the types that they stand for.
pub(super) struct TypePatterns<'p> {
    rows: Vec<TypePattern<'p>>,
    budget: &'p Budget,
}

struct TypePattern<'p> {
    text: &'p str,
    kind: &'static str,
    compiled: NamePatterns<'p, ()>,
    /// Whether a name has it.
    used: Cell<bool>,
}

impl<'p> TypePatterns<'p> {
    pub(super) fn new(rows: &'p [(String, &'static str)], budget: &'p Budget) -> Result<Self> {
        let row = |(text, kind): &'p (String, &'static str)| {
            let pattern = std::iter::once((&**text, PatternKind::Anywhere, ()));
            let compiled = NamePatterns::new(pattern, budget)?;
            match compiled.unknown().first() {
                Some(unknown) => Err(about_pattern(
                    text,
                    &format!("is not understood: {}", unknown.why),
                )),
                None => Ok(TypePattern {
                    text,
                    kind,
                    compiled,
                    used: Cell::new(false),
                }),
            }
        };
        Ok(Self {
            rows: rows.iter().map(row).collect::<Result<_>>()?,
            budget,
        })
    }

    /// The type of the first pattern that a name has.
    pub(super) fn first(&self, name: &str) -> Option<&'static str> {
        let matches = |row: &&TypePattern<'_>| {
            // an exhausted budget is an error of planning, which asks for more right after this
            let found = row.compiled.first_known(name, self.budget);
            matches!(found, Ok(Some(())))
        };
        let row = self.rows.iter().find(matches)?;
        row.used.set(true);
        Some(row.kind)
    }

    /// A note for each pattern that has decided for no tensor.
    pub(super) fn unused(&self) -> impl Iterator<Item = String> {
        let rows = self.rows.iter().filter(|row| !row.used.get());
        rows.map(|row| format!("the pattern {} decides for no tensor", quote(row.text)))
    }
}
