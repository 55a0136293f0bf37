//! Everything at the first miss: what people do who know no better, and what templates are compared with.

use std::sync::Arc;

use crate::{Access, Context, Ios, Namespace, Policy, Prefetch, Wants};

/// Brings every file of the namespace when the first byte is missed, in the order of names, and those that come later at
/// the first miss after that; evicts nothing.
#[derive(Debug, Default)]
pub struct Eager {
    namespace: Option<Arc<Namespace>>,
    /// What was brought is as it was then.
    brought: Option<Arc<Namespace>>,
    all: Option<Ios>,
    lane: u32,
}

impl Policy for Eager {
    fn wants(&self) -> Wants {
        Wants {
            prefetch: true,
            ..Wants::default()
        }
    }

    fn init(&mut self, context: &Context) -> Result<(), String> {
        self.renew(context)
    }

    fn renew(&mut self, context: &Context) -> Result<(), String> {
        let brought = self.brought.as_ref();
        let old =
            |entry: &crate::Entry| brought.is_some_and(|then| then.get(&entry.path) == Some(entry));
        let entries = context
            .namespace
            .entries()
            .iter()
            .filter(|entry| entry.len > 0 && !old(entry));
        let all: Ios = entries
            .map(|entry| entry.whole())
            .collect::<Vec<_>>()
            .into();
        (self.all, self.namespace) = (
            Some(all).filter(|all| !all.is_empty()),
            Some(Arc::clone(&context.namespace)),
        );
        Ok(())
    }

    fn prefetch(&mut self, _miss: &Access) -> Option<Prefetch> {
        let ios = self.all.take()?;
        self.brought.clone_from(&self.namespace);
        // what came later does not end what is being brought
        let lane = self.lane;
        self.lane += 1;
        Some(Prefetch { ios, lane })
    }
}

/// Nothing: the kernel decides as ever. What listening alone costs is measured with it.
#[derive(Debug)]
pub struct Nothing;

impl Policy for Nothing {
    fn wants(&self) -> Wants {
        // it is asked, and has no answer
        Wants {
            prefetch: true,
            ..Wants::default()
        }
    }
}
