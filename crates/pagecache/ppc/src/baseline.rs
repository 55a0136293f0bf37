//! Two baseline policies: prefetch everything at the first miss, and do nothing.

use std::sync::Arc;

use crate::{
    FileAccess, FileEntry, Interests, Namespace, Policy, PolicyContext, PrefetchRequest, RangeList,
};

/// Prefetches all files of the namespace at the first miss, in the order of their names. Files that are created later
/// are prefetched at the first miss after their creation. Evicts nothing.
///
/// Template-driven policies are compared with this one: it needs no knowledge of the model.
#[derive(Debug, Default)]
pub struct EagerPolicy {
    namespace: Option<Arc<Namespace>>,
    /// The state of the directory at the last prefetch.
    prefetched: Option<Arc<Namespace>>,
    /// All files that are not prefetched yet.
    pending: Option<RangeList>,
    queue: u32,
}

impl Policy for EagerPolicy {
    fn interests(&self) -> Interests {
        Interests {
            prefetch: true,
            ..Interests::default()
        }
    }

    fn init(&mut self, context: &PolicyContext) -> Result<(), String> {
        self.files_changed(context)
    }

    fn files_changed(&mut self, context: &PolicyContext) -> Result<(), String> {
        let prefetched = self.prefetched.as_ref();
        let unchanged =
            |entry: &FileEntry| prefetched.is_some_and(|then| then.get(&entry.path) == Some(entry));
        let pending: RangeList = context
            .namespace
            .entries()
            .iter()
            // an empty range would be an invalid answer
            .filter(|entry| entry.len > 0 && !unchanged(entry))
            .map(|entry| entry.whole())
            .collect::<Vec<_>>()
            .into();
        self.pending = Some(pending).filter(|ranges| !ranges.is_empty());
        self.namespace = Some(Arc::clone(&context.namespace));
        Ok(())
    }

    fn prefetch(&mut self, _miss: &FileAccess) -> Option<PrefetchRequest> {
        let ranges = self.pending.take()?;
        self.prefetched.clone_from(&self.namespace);
        // a queue of its own, as a new list for the same queue would interrupt the one in progress
        let queue = self.queue;
        self.queue += 1;
        Some(PrefetchRequest { ranges, queue })
    }
}

/// Prefetches and evicts nothing, so that the kernel's own read-ahead and reclaim apply. Measures what event delivery
/// alone costs.
#[derive(Debug)]
pub struct NoopPolicy;

impl Policy for NoopPolicy {
    fn interests(&self) -> Interests {
        // misses are delivered although the default `prefetch` ignores them: their delivery is what is measured
        Interests {
            prefetch: true,
            ..Interests::default()
        }
    }
}
