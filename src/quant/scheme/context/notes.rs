//! Findings of planning that are no weights: notes for the plan, remarks for the account, and limits that were reached.

use std::collections::HashSet;

use crate::base::error::Result;
use crate::base::limits::text_cost;

use super::Context;

#[derive(Default)]
pub(super) struct Notes {
    list: Vec<String>,
    known: HashSet<String>,
    /// Readings that nothing in the files confirms.
    assumptions: Vec<String>,
}

/// Notes of one plan. Further ones are counted.
const MAX_NOTES: usize = 100;

/// Unknown settings of descriptors that are kept. Weights of one file have the same.
const MAX_REMARKS: usize = 16;

impl Context<'_> {
    /// Adds something that is not known to the account's remarks, once.
    pub(crate) fn remark(&self, text: String) -> Result<()> {
        let mut remarks = self.caches.remarks.borrow_mut();
        if remarks.len() < MAX_REMARKS && !remarks.contains(&text) {
            self.budget.text(text.len(), "the notes of the plan")?;
            remarks.push(text);
        }
        Ok(())
    }

    /// The unknown settings of descriptors so far.
    pub(crate) fn take_remarks(&self) -> Vec<String> {
        std::mem::take(&mut self.caches.remarks.borrow_mut())
    }

    /// Adds a note to the plan; the same text is added once.
    pub(crate) fn note(&self, text: impl Into<String>) {
        let text = text.into();
        // a note concerns the checkpoint; a model has hundreds of weights of one kind
        let mut notes = self.caches.notes.borrow_mut();
        if notes.list.len() > MAX_NOTES || notes.known.contains(&text) {
            return;
        }
        let charged = self.budget.memory(
            2 * text_cost(text.len()) + 2 * size_of::<[String; 2]>() as u64,
            "the notes of the plan",
        );
        if self.sound(charged).is_none() {
            return;
        }
        if notes.list.len() == MAX_NOTES {
            notes.list.push("further notes are left out".to_owned());
            return;
        }
        notes.known.insert(text.clone());
        notes.list.push(text);
    }

    /// Adds a reading that nothing in the files confirms, or that a configuration contradicts: weights have other values if it is wrong. It
    /// is a warning of every verb, unlike a note.
    pub(crate) fn assume(&self, text: impl Into<String>) {
        let text = text.into();
        let mut notes = self.caches.notes.borrow_mut();
        if notes.assumptions.len() >= MAX_REMARKS || notes.assumptions.contains(&text) {
            return;
        }
        let charged = self.budget.text(text.len(), "the notes of the plan");
        if self.sound(charged).is_some() {
            notes.assumptions.push(text);
        }
    }

    /// The assumptions so far.
    pub(crate) fn take_assumptions(&self) -> Vec<String> {
        std::mem::take(&mut self.caches.notes.borrow_mut().assumptions)
    }

    /// The notes so far.
    pub(crate) fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut self.caches.notes.borrow_mut().list)
    }

    /// Keeps the error of a function that returns none, for [`check`](Self::check).
    pub(in crate::quant::scheme) fn sound<T>(&self, made: Result<T>) -> Option<T> {
        made.map_err(|error| self.caches.exhausted.replace(Some(error)))
            .ok()
    }

    /// A limit that has been reached where no error could be returned.
    pub(crate) fn check(&self) -> Result<()> {
        self.caches.exhausted.take().map_or(Ok(()), Err)
    }
}
