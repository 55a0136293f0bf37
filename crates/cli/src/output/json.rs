//! The document of `inspect --json`, written checkpoint by checkpoint so that memory does not grow with their number.

use std::io::{self, Write};

use anamnesis::Summary;
use serde::Serialize;

use crate::args::InspectArgs;
use crate::exit::Failure;

/// Version of the JSON documents of all verbs. It changes when a field is removed or changes its meaning.
pub(crate) const VERSION: u32 = 1;

/// A started document of `inspect --json`.
pub(crate) struct InspectDocument {
    checkpoints: usize,
    failures: Vec<Failure>,
}

impl InspectDocument {
    pub(crate) fn start(args: &InspectArgs, out: &mut impl Write) -> io::Result<Self> {
        write!(out, "{{\"version\":{VERSION},")?;
        if !args.filter.is_empty() {
            out.write_all(b"\"filter\":")?;
            write_value(
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

    pub(crate) fn add_checkpoint(
        &mut self,
        summary: &Summary,
        out: &mut impl Write,
    ) -> io::Result<()> {
        if self.checkpoints > 0 {
            out.write_all(b",")?;
        }
        self.checkpoints += 1;
        write_value(summary, out)
    }

    pub(crate) fn add_failure(&mut self, failure: Failure) {
        self.failures.push(failure);
    }

    pub(crate) fn finish(self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(b"]")?;
        if let Some(first) = self.failures.first() {
            // the first failure alone, for scripts that expect one; all of them follow
            out.write_all(b",\"error\":")?;
            write_value(first, out)?;
            out.write_all(b",\"errors\":")?;
            write_value(&self.failures, out)?;
        }
        out.write_all(b"}\n")
    }
}

fn write_value(value: &impl Serialize, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer(out, value).map_err(io::Error::from)
}
