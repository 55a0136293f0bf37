//! A policy in Rust, as a shared library: all files of the namespace, by name, are one long row; from the miss to the
//! row's end everything is brought, and what lies more than a distance before the miss is let go.
//!
//! The configuration is how many pieces of 1 MiB stay before the miss, 64 if it is empty.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use anamnesis_ppc::{Access, Context, Io, Ios, Policy, Prefetch, Wants, export_policy};

const PIECE: u64 = 1 << 20;

#[derive(Default)]
struct Ahead {
    row: Arc<[Io]>,
    /// Where in the row each file begins.
    first: HashMap<Arc<Path>, usize>,
    stay: usize,
}

impl Ahead {
    fn at(&self, miss: &Access) -> Option<usize> {
        let piece = usize::try_from(miss.start / PIECE).ok()?;
        self.first
            .get(&miss.path)
            .map(|first| (first + piece).min(self.row.len()))
    }
}

impl Policy for Ahead {
    fn wants(&self) -> Wants {
        Wants {
            prefetch: true,
            evict: true,
            ..Wants::default()
        }
    }

    fn init(&mut self, context: &Context) -> Result<(), String> {
        self.stay = match context.config.as_str() {
            "" => 64,
            number => number
                .parse()
                .map_err(|_| format!("{number:?} is no number of pieces"))?,
        };
        let mut row = Vec::new();
        for entry in context.namespace.entries() {
            self.first.insert(Arc::clone(&entry.path), row.len());
            let mut start = 0;
            while start < entry.len {
                let len = PIECE.min(entry.len - start);
                row.push(Io {
                    path: Arc::clone(&entry.path),
                    start,
                    len,
                    device: None,
                });
                start += len;
            }
        }
        tracing::info!(pieces = row.len(), "ready");
        self.row = row.into();
        Ok(())
    }

    fn start(&mut self) -> Vec<Prefetch> {
        vec![Prefetch {
            ios: Ios::of(&self.row, 0..self.row.len()),
            lane: 0,
        }]
    }

    fn prefetch(&mut self, miss: &Access) -> Option<Prefetch> {
        let at = self.at(miss)?;
        Some(Prefetch {
            ios: Ios::of(&self.row, at..self.row.len()),
            lane: 0,
        })
    }

    fn evict(&mut self, miss: Option<&Access>) -> Option<Ios> {
        let end = self.at(miss?)?.saturating_sub(self.stay);
        Some(Ios::of(&self.row, 0..end))
    }
}

export_policy!(Ahead::default());
