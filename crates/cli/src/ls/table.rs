//! The models as a table that fits the terminal.

use std::io::Write;
use std::time::{Duration, Instant};

use anamnesis::quote::escape;
use anamnesis::{ModelEntry, Remedy};

use super::RowWriter;
use crate::exit::RunError;
use crate::output::table::{Column, ColumnFit, Table};
use crate::output::{DTYPE, REFUSED, Screen, Stdout};
use crate::remedies::remedy_text;
use crate::text::{ByteSize, ExactCount, ShortCount, wrap};

/// Rows of one table: widths need all of them, and a tree may have any number.
const ROWS: usize = 4096;
/// The longest that rows wait for others on a terminal.
const PATIENCE: Duration = Duration::from_secs(2);
/// The narrowest screen with all columns. On others, the format and the context are left out.
const WIDE: usize = 120;
/// Columns in front of an error below its path, where a screen has not room for all of it.
const INDENT: usize = 2;

/// Tables of the models, each with as many as are known at its time.
pub(super) struct TableRows {
    screen: Screen,
    table: Table,
    rows: usize,
    began: Instant,
}

impl TableRows {
    pub(super) fn new(screen: Screen) -> Self {
        Self {
            table: empty(&screen),
            screen,
            rows: 0,
            began: Instant::now(),
        }
    }
}

fn is_wide(screen: &Screen) -> bool {
    screen.width.is_none_or(|width| width >= WIDE)
}

fn empty(screen: &Screen) -> Table {
    // half of a wide screen: the ends of paths say which models they are
    let least = screen.width.map_or(0, |width| (width / 2).max(28));
    let mut columns = vec![Column::left("path").fit(ColumnFit::Middle(least))];
    if is_wide(screen) {
        columns.push(Column::left("format"));
    }
    columns.extend([
        Column::left("architecture").fit(ColumnFit::End),
        Column::right("parameters"),
        Column::left("stored as").fit(ColumnFit::End).style(DTYPE),
        Column::right("size"),
    ]);
    if is_wide(screen) {
        columns.push(Column::right("context"));
    }
    let fit = match screen.width {
        None => ColumnFit::End,
        Some(_) => ColumnFit::Below,
    };
    columns.push(Column::left("error or note").fit(fit).style(REFUSED));
    Table::new(columns, 0)
}

impl RowWriter for TableRows {
    fn add(&mut self, model: &ModelEntry, out: &mut Stdout) -> Result<(), RunError> {
        let wide = is_wide(&self.screen);
        let text = |text: Option<&str>| escape(text.unwrap_or_default()).into_owned();
        let table = &mut self.table;
        table.cell(escape(&model.path_text()));
        if wide {
            table.cell(model.format.unwrap_or_default());
        }
        table.cell(text(model.architecture.as_deref()));
        table.cell(shown(model.parameters, ShortCount));
        // the label says more than the dtype of most bytes
        let stored = model.quantisation.as_ref().or(model.dtype.as_ref());
        table.cell(text(stored.map(String::as_str)));
        table.cell(shown(model.nbytes, ByteSize));
        if wide {
            table.cell(shown(model.context, ExactCount));
        }
        let error = problem(model);
        let error = text(error.as_deref());
        table.cell(wrap(&error, self.screen.width, INDENT));
        self.rows += 1;
        let is_late = self.screen.terminal && self.began.elapsed() > PATIENCE;
        if self.rows == ROWS || is_late {
            self.finish(out)?;
            out.flush()?;
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut Stdout) -> Result<(), RunError> {
        if self.rows > 0 {
            let table = std::mem::replace(&mut self.table, empty(&self.screen));
            table.print(&self.screen, out)?;
        }
        (self.rows, self.began) = (0, Instant::now());
        Ok(())
    }
}

/// A number, or nothing.
fn shown<T: std::fmt::Display>(number: Option<u64>, form: fn(u64) -> T) -> String {
    number.map_or(String::new(), |number| form(number).to_string())
}

/// Why a model cannot be opened, or is not what it seems, and what to do about an interrupted edit.
fn problem(model: &ModelEntry) -> Option<String> {
    let remedy = model.error.as_ref().and_then(anamnesis::Error::remedy);
    let remedy = remedy.filter(|remedy| *remedy == Remedy::RecoverEdit);
    let parts = [
        model.error_text(),
        model.note.clone(),
        remedy.map(remedy_text),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}
