//! Types of tensors by regular expressions, found anywhere in a name; the first one decides.

use std::cell::Cell;

use crate::base::error::{Error, Result};
use crate::base::limits::Budget;
use crate::base::quote::quote;
use crate::quant::scheme::{NamePatterns, PatternKind};

/// Patterns, and the types that they stand for.
pub(super) struct TypePatterns<'p> {
    rows: Vec<TypePattern>,
    /// Each with its place among the rows.
    compiled: NamePatterns<'p, usize>,
    budget: &'p Budget,
}

pub(super) struct TypePattern {
    text: String,
    pub(super) kind: &'static str,
    /// Whether it has decided for a tensor.
    pub(super) used: Cell<bool>,
}

impl<'p> TypePatterns<'p> {
    pub(super) fn new(rows: &'p [(String, &'static str)], budget: &'p Budget) -> Result<Self> {
        let texts = rows.iter().enumerate();
        let texts = texts.map(|(row, (text, _))| (&**text, PatternKind::Anywhere, row));
        let compiled = NamePatterns::new(texts, budget)?;
        if let Some(unknown) = compiled.unknown().first() {
            return Err(Error::invalid_argument(format!(
                "the pattern {} is not understood: {}",
                quote(unknown.text),
                unknown.why
            )));
        }
        let row = |(text, kind): &(String, &'static str)| TypePattern {
            text: text.clone(),
            kind,
            used: Cell::new(false),
        };
        Ok(Self {
            rows: rows.iter().map(row).collect(),
            compiled,
            budget,
        })
    }

    /// The first pattern that a name has.
    pub(super) fn first(&self, name: &str) -> Result<Option<&TypePattern>> {
        let row = self.compiled.first_known(name, self.budget)?;
        Ok(row.map(|row| &self.rows[row]))
    }

    /// A note for each pattern that has decided for no tensor.
    pub(super) fn unused(&self) -> impl Iterator<Item = String> {
        let rows = self.rows.iter().filter(|row| !row.used.get());
        rows.map(|row| format!("the pattern {} decides for no tensor", quote(&row.text)))
    }
}
