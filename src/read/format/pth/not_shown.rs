//! Values of a pickle that are neither tensors nor metadata: they are counted, never dropped in silence.

use crate::read::catalog::quote;

/// Counts of the values that are neither tensors nor shown in the metadata.
#[derive(Default)]
pub(super) struct NotShown {
    /// The kinds of objects, and how many there are.
    counts: Vec<(&'static str, u64)>,
    /// The name of the first one, quoted.
    first: String,
}

impl NotShown {
    pub(super) fn count(&mut self, what: &'static str, name: &str) {
        if self.counts.is_empty() {
            self.first = quote(name);
        }
        match self.counts.iter_mut().find(|(other, _)| *other == what) {
            Some((_, n)) => *n += 1,
            None => self.counts.push((what, 1)),
        }
    }

    /// One line, for any number of values: a line per value would hide other warnings.
    pub(super) fn warning(&self) -> Option<String> {
        let total: u64 = self.counts.iter().map(|(_, n)| n).sum();
        let counts: Vec<_> = self
            .counts
            .iter()
            .map(|(what, n)| format!("{what}: {n}"))
            .collect();
        let counts = counts.join(", ");
        (total > 0).then(|| {
            format!(
                "values that are not tensors and cannot be shown: {total} ({counts}; the first is {})",
                self.first
            )
        })
    }
}
