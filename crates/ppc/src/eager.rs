//! Everything at the first miss: what people do who know no better, and what templates are compared with.

use crate::{Access, Context, Io, Ios, Policy, Prefetch, Wants};

/// Brings every file of the namespace when the first byte is missed, in the order of names; evicts nothing.
#[derive(Debug, Default)]
pub struct Eager {
    all: Option<Ios>,
}

impl Policy for Eager {
    fn wants(&self) -> Wants {
        Wants { prefetch: true, ..Wants::default() }
    }

    fn init(&mut self, context: &Context) -> Result<(), String> {
        let entries = context.namespace.entries().iter().filter(|entry| entry.len > 0);
        let io = |entry: &crate::Entry| Io { path: entry.path.clone(), start: 0, len: entry.len, device: None };
        self.all = Some(entries.map(io).collect::<Vec<_>>().into());
        Ok(())
    }

    fn prefetch(&mut self, _miss: &Access) -> Option<Prefetch> {
        self.all.take().map(|ios| Prefetch { ios, lane: 0 })
    }
}

/// Nothing: the kernel decides as ever. What listening alone costs is measured with it.
#[derive(Debug)]
pub struct Nothing;

impl Policy for Nothing {
    fn wants(&self) -> Wants {
        // it is asked, and has no answer
        Wants { prefetch: true, ..Wants::default() }
    }
}
