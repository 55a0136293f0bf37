//! Where a page shows what a check names: stored tensors by their names, and weights by the tensors that hold their codes.

use std::collections::HashMap;

use anamnesis::Summary;

use super::columns::TensorColumns;

pub(super) struct ShownNames<'s> {
    /// By the name of a stored tensor, its number in the page.
    tensors: HashMap<&'s str, u32>,
    /// By the name of a quantised weight, the tensor that holds its codes.
    codes: HashMap<&'s str, &'s str>,
}

impl<'s> ShownNames<'s> {
    pub(super) fn new(summary: &'s Summary, shown: &TensorColumns) -> Self {
        let names = shown.rows().iter().map(|row| &*summary.tensors[*row].name);
        let weights = summary.weights.iter();
        Self {
            tensors: names.zip(0..).collect(),
            codes: weights
                .filter_map(|weight| Some((&*weight.name, &*weight.parts.first()?.name)))
                .collect(),
        }
    }

    /// The number of a tensor or weight among the tensors of the page.
    pub(super) fn tensor(&self, name: &str) -> Option<u32> {
        let name = self.codes.get(name).copied().unwrap_or(name);
        self.tensors.get(name).copied()
    }
}
