//! A policy in Rust as a shared library. All files of the namespace form one sequence, ordered by name. At a miss the
//! policy prefetches the rest of the sequence, and evicts what lies more than a fixed distance before the miss.
//!
//! The configuration is this distance in MiB; 64 if it is empty.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use anamnesis_ppc::{
    FileAccess, FileRange, Interests, Policy, PolicyContext, PrefetchRequest, RangeList,
    export_policy,
};

/// Bytes of one entry of the sequence.
const ENTRY: u64 = 1 << 20;

#[derive(Default)]
struct Ahead {
    sequence: Arc<[FileRange]>,
    /// Index of the first entry of each file.
    first: HashMap<Arc<Path>, usize>,
    /// Number of entries before a miss that are not evicted.
    distance: usize,
}

impl Ahead {
    /// The index of the entry that contains a miss.
    fn index_of(&self, miss: &FileAccess) -> Option<usize> {
        let entry = usize::try_from(miss.start / ENTRY).ok()?;
        self.first
            .get(&miss.path)
            .map(|first| (first + entry).min(self.sequence.len()))
    }
}

impl Policy for Ahead {
    fn interests(&self) -> Interests {
        Interests {
            prefetch: true,
            evict: true,
            ..Interests::default()
        }
    }

    fn init(&mut self, context: &PolicyContext) -> Result<(), String> {
        self.distance = match context.config.as_str() {
            "" => 64,
            number => number
                .parse()
                .map_err(|_| format!("the configuration {number:?} is not a number"))?,
        };
        let mut sequence = Vec::new();
        for entry in context.namespace.entries() {
            self.first.insert(Arc::clone(&entry.path), sequence.len());
            let mut start = 0;
            while start < entry.len {
                let len = ENTRY.min(entry.len - start);
                sequence.push(FileRange {
                    path: Arc::clone(&entry.path),
                    start,
                    len,
                    device: None,
                });
                start += len;
            }
        }
        tracing::info!(entries = sequence.len(), "ready");
        self.sequence = sequence.into();
        Ok(())
    }

    fn start(&mut self) -> Vec<PrefetchRequest> {
        vec![PrefetchRequest {
            ranges: RangeList::slice(&self.sequence, 0..self.sequence.len()),
            queue: 0,
        }]
    }

    fn prefetch(&mut self, miss: &FileAccess) -> Option<PrefetchRequest> {
        let at = self.index_of(miss)?;
        Some(PrefetchRequest {
            ranges: RangeList::slice(&self.sequence, at..self.sequence.len()),
            queue: 0,
        })
    }

    fn evict(&mut self, miss: Option<&FileAccess>) -> Option<RangeList> {
        let end = self.index_of(miss?)?.saturating_sub(self.distance);
        Some(RangeList::slice(&self.sequence, 0..end))
    }
}

export_policy!(Ahead::default());
