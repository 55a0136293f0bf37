//! Rows under columns, fitted to the screen.

use std::fmt::{Display, Write as _};
use std::io::{self, Write};

use anstyle::Style;

use super::{BOLD, DIM, Screen, text};

/// How a column may be made narrower.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fit {
    /// Not at all.
    Whole,
    /// By leaving out the middle of its cells: first down to this width, and further only when the
    /// columns that are cut at their end have given what they can.
    Middle(usize),
    /// By cutting the end of its cells.
    End,
    /// Its cells go on lines of their own, below the others.
    Below,
}

/// One column: its head, how it fits, and how it looks.
#[derive(Clone, Copy)]
pub(crate) struct Column {
    pub(crate) head: &'static str,
    pub(crate) right: bool,
    pub(crate) fit: Fit,
    pub(crate) style: Style,
}

impl Column {
    pub(crate) fn left(head: &'static str) -> Self {
        Self {
            head,
            right: false,
            fit: Fit::Whole,
            style: Style::new(),
        }
    }

    pub(crate) fn right(head: &'static str) -> Self {
        Self {
            right: true,
            ..Self::left(head)
        }
    }

    pub(crate) fn fit(self, fit: Fit) -> Self {
        Self { fit, ..self }
    }

    pub(crate) fn style(self, style: Style) -> Self {
        Self { style, ..self }
    }
}

struct Cell {
    end: usize,
    width: usize,
    /// Columns at the front that are not cut.
    keep: usize,
}

/// Cells, row by row. All text lies in one string: twenty thousand rows are two allocations.
pub(crate) struct Table {
    columns: Vec<Column>,
    text: String,
    cells: Vec<Cell>,
    indent: usize,
}

const GAP: usize = 2;
/// No column is cut below this.
const LEAST: usize = 8;

impl Table {
    pub(crate) fn new(columns: Vec<Column>, indent: usize) -> Self {
        Self {
            columns,
            text: String::new(),
            cells: Vec::new(),
            indent,
        }
    }

    /// Adds the next cell. Text from files must have been made clean.
    pub(crate) fn cell(&mut self, content: impl Display) {
        self.cell_after("", content);
    }

    /// Adds the next cell, with a front that is not cut.
    pub(crate) fn cell_after(&mut self, front: &str, content: impl Display) {
        let start = self.text.len();
        self.text.push_str(front);
        let _ = write!(self.text, "{content}"); // a string takes everything
        let width = text::width(&self.text[start..]);
        self.cells.push(Cell {
            end: self.text.len(),
            width,
            keep: text::width(front),
        });
    }

    /// Writes the table; columns that are empty throughout are left out.
    pub(crate) fn print(&self, screen: &Screen, out: &mut impl Write) -> io::Result<()> {
        let widths = self.widths(screen);
        let mut line = String::new();
        self.line(&mut line, &widths, screen, |i| {
            let head = self.columns[i].head;
            (head, head.len(), 0, BOLD.dimmed())
        });
        out.write_all(line.as_bytes())?;
        let mut start = 0;
        for row in self.cells.chunks(self.columns.len()) {
            let first = start;
            line.clear();
            self.line(&mut line, &widths, screen, |i| {
                let from = if i == 0 { first } else { row[i - 1].end };
                (
                    &self.text[from..row[i].end],
                    row[i].width,
                    row[i].keep,
                    self.columns[i].style,
                )
            });
            start = row.last().map_or(start, |cell| cell.end);
            out.write_all(line.as_bytes())?;
        }
        Ok(())
    }

    fn line<'t>(
        &'t self,
        line: &mut String,
        widths: &[usize],
        screen: &Screen,
        cell: impl Fn(usize) -> (&'t str, usize, usize, Style),
    ) {
        let mut pending = self.indent; // spaces are written only before something
        for (i, column) in self.columns.iter().enumerate() {
            let (mut content, mut width, keep, style) = cell(i);
            if column.fit == Fit::Below || widths[i] == 0 {
                continue;
            }
            let mut cut = String::new();
            if width > widths[i] {
                match column.fit {
                    Fit::Middle(_) => text::cut_middle(&mut cut, content, widths[i], keep),
                    _ => text::cut_end(&mut cut, content, widths[i]),
                }
                content = &cut;
                width = text::width(content);
            }
            let free = widths[i].saturating_sub(width);
            let before = if column.right { free } else { 0 };
            if !content.is_empty() {
                line.extend(std::iter::repeat_n(' ', pending + before));
                pending = free - before + GAP;
                let _ = match style {
                    plain if plain.is_plain() => line.write_str(content),
                    style => write!(line, "{}", screen.paint(style, content)),
                };
            } else {
                pending += free + GAP;
            }
        }
        line.push('\n');
        for i in (0..self.columns.len()).filter(|i| self.columns[*i].fit == Fit::Below) {
            let (content, ..) = cell(i);
            if !content.is_empty() && content != self.columns[i].head {
                let _ = writeln!(
                    line,
                    "{:1$}{2}",
                    "",
                    self.indent + GAP,
                    screen.paint(DIM, content)
                );
            }
        }
    }

    /// Widths of the columns; 0 for those without content.
    fn widths(&self, screen: &Screen) -> Vec<usize> {
        let mut widths = vec![0; self.columns.len()];
        for row in self.cells.chunks(self.columns.len()) {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.width.max(*width);
            }
        }
        for (width, column) in widths
            .iter_mut()
            .zip(&self.columns)
            .filter(|(width, _)| **width > 0)
        {
            *width = column.head.len().max(*width);
        }
        let Some(screen) = screen.width else {
            return widths;
        };
        let beside =
            |(width, column): (&usize, &Column)| if column.fit == Fit::Below { 0 } else { *width };
        let shown = widths
            .iter()
            .zip(&self.columns)
            .filter(|pair| beside(*pair) > 0)
            .count();
        let room = screen.saturating_sub(self.indent + GAP * shown.saturating_sub(1));
        let wanted: usize = widths.iter().zip(&self.columns).map(beside).sum();
        let mut over = wanted.saturating_sub(room);
        for round in 0..3 {
            for (width, column) in widths.iter_mut().zip(&self.columns) {
                let least = match (round, column.fit) {
                    (0, Fit::Middle(least)) => least,
                    (1, Fit::End) | (2, Fit::Middle(_)) => LEAST,
                    _ => continue,
                };
                let give = over.min(width.saturating_sub(least));
                *width -= give;
                over -= give;
            }
        }
        widths
    }
}
