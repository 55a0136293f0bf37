//! `--json`: one document, written as the checkpoints come.

use std::io::{self, Write};

use anamnesis::Summary;
use serde::Serialize;

use crate::args::Inspect;
use crate::exit::Failure;

/// The document's layout. It changes when a field changes its meaning or goes away.
pub(crate) const VERSION: u32 = 1;

/// A document that has been begun.
pub(crate) struct Document {
    checkpoints: usize,
    failures: Vec<Failure>,
}

impl Document {
    pub(crate) fn begin(args: &Inspect, out: &mut impl Write) -> io::Result<Self> {
        write!(out, "{{\"version\":{VERSION},")?;
        if !args.filter.is_empty() {
            out.write_all(b"\"filter\":")?;
            value(
                &args
                    .filter
                    .iter()
                    .map(|f| f.glob().glob())
                    .collect::<Vec<_>>(),
                out,
            )?;
            out.write_all(b",")?;
        }
        out.write_all(b"\"checkpoints\":[")?;
        Ok(Self {
            checkpoints: 0,
            failures: Vec::new(),
        })
    }

    pub(crate) fn checkpoint(&mut self, summary: &Summary, out: &mut impl Write) -> io::Result<()> {
        if self.checkpoints > 0 {
            out.write_all(b",")?;
        }
        self.checkpoints += 1;
        value(summary, out)
    }

    pub(crate) fn failure(&mut self, failure: Failure) {
        self.failures.push(failure);
    }

    pub(crate) fn end(self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(b"]")?;
        if let Some(first) = self.failures.first() {
            out.write_all(b",\"error\":")?;
            value(first, out)?;
            out.write_all(b",\"errors\":")?;
            value(&self.failures, out)?;
        }
        out.write_all(b"}\n")
    }
}

fn value(value: &impl Serialize, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer(out, value).map_err(io::Error::from)
}
