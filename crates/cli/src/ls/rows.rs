//! The models as JSON lines and as comma-separated values.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use anamnesis::ModelEntry;
use anamnesis::quote::escape;

use super::RowWriter;
use crate::exit::RunError;
use crate::output::{Screen, Stdout, json};

/// The names of the columns, which are the fields of a line of `--json`.
pub(super) const COLUMNS: [&str; 11] = [
    "path",
    "format",
    "architecture",
    "parameters",
    "dtype",
    "quantisation",
    "nbytes",
    "context",
    "files",
    "error",
    "note",
];

/// The longest that a line waits in the buffer: the reader of a pipe may work on it meanwhile.
const PATIENCE: Duration = Duration::from_millis(100);

/// One object per line. A document of all would be complete at the end only, and a tree may have a hundred thousand models.
#[derive(Default)]
pub(super) struct JsonRows {
    flushed: Option<Instant>,
}

impl RowWriter for JsonRows {
    fn add(&mut self, model: &ModelEntry, out: &mut Stdout) -> Result<(), RunError> {
        json::write_line(model, out)?;
        flush_in_time(&mut self.flushed, out)?;
        Ok(())
    }

    fn finish(&mut self, _: &mut Stdout) -> Result<(), RunError> {
        Ok(())
    }
}

fn flush_in_time(flushed: &mut Option<Instant>, out: &mut Stdout) -> io::Result<()> {
    if flushed.is_none_or(|last| last.elapsed() > PATIENCE) {
        out.flush()?;
        *flushed = Some(Instant::now());
    }
    Ok(())
}

/// Values separated by commas (RFC 4180), with a header.
pub(super) struct CsvRows {
    /// Whether names are escaped, as on every terminal.
    terminal: bool,
    flushed: Option<Instant>,
}

impl CsvRows {
    pub(super) fn start(screen: &Screen, out: &mut impl Write) -> io::Result<Self> {
        writeln!(out, "{}", COLUMNS.join(","))?;
        Ok(Self {
            terminal: screen.terminal,
            flushed: None,
        })
    }

    fn cell(&self, text: &str, out: &mut impl Write) -> io::Result<()> {
        let text = match self.terminal {
            true => escape(text),
            false => text.into(),
        };
        if !text.contains(['"', ',', '\n', '\r']) {
            return out.write_all(text.as_bytes());
        }
        write!(out, "\"{}\"", text.replace('"', "\"\""))
    }
}

impl RowWriter for CsvRows {
    fn add(&mut self, model: &ModelEntry, out: &mut Stdout) -> Result<(), RunError> {
        let number = |n: Option<u64>| n.map(|n| n.to_string());
        let cells: [Option<String>; 11] = [
            Some(model.path_text()),
            model.format.map(str::to_owned),
            model.architecture.clone(),
            number(model.parameters),
            model.dtype.clone(),
            model.quantisation.clone(),
            number(model.nbytes),
            number(model.context),
            number(model.files),
            model.error_text(),
            model.note.clone(),
        ];
        for (i, cell) in cells.iter().enumerate() {
            if i > 0 {
                out.write_all(b",")?;
            }
            self.cell(cell.as_deref().unwrap_or_default(), out)?;
        }
        out.write_all(b"\n")?;
        flush_in_time(&mut self.flushed, out)?;
        Ok(())
    }

    fn finish(&mut self, _: &mut Stdout) -> Result<(), RunError> {
        Ok(())
    }
}
