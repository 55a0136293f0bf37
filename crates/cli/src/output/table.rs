//! Tables whose columns are narrowed to fit the screen.

use std::fmt::{Display, Write as _};
use std::io::{self, Write};

use anstyle::Style;

use super::{BOLD, DIM, Screen};
use crate::text;

/// How a column is narrowed when the table is wider than the screen.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColumnFit {
    /// Never.
    Whole,
    /// By omitting the middle of its cells: down to this width first, and further only after the columns with [`ColumnFit::End`]
    /// have reached their minimum.
    Middle(usize),
    /// By cutting the end of its cells.
    End,
    /// Its cells are printed on lines of their own, below their row.
    Below,
}

/// A column: heading, alignment, narrowing and style.
#[derive(Clone, Copy)]
pub(crate) struct Column {
    pub(crate) heading: &'static str,
    pub(crate) right_aligned: bool,
    pub(crate) fit: ColumnFit,
    pub(crate) style: Style,
}

impl Column {
    pub(crate) fn left(heading: &'static str) -> Self {
        Self {
            heading,
            right_aligned: false,
            fit: ColumnFit::Whole,
            style: Style::new(),
        }
    }

    pub(crate) fn right(heading: &'static str) -> Self {
        Self {
            right_aligned: true,
            ..Self::left(heading)
        }
    }

    pub(crate) fn fit(self, fit: ColumnFit) -> Self {
        Self { fit, ..self }
    }

    pub(crate) fn style(self, style: Style) -> Self {
        Self { style, ..self }
    }
}

struct Cell {
    end: usize,
    width: usize,
    /// Width of the prefix that is never omitted.
    prefix_width: usize,
}

/// A table, filled cell by cell in row order. The text of all cells is in one string, so that a table of twenty thousand
/// rows needs two growing allocations instead of one per cell.
pub(crate) struct Table {
    columns: Vec<Column>,
    text: String,
    cells: Vec<Cell>,
    indent: usize,
}

/// Spaces between columns.
const GAP: usize = 2;
/// Minimum width of a narrowed column.
// below this a cut cell shows nothing that tells it from its neighbours
const MIN_WIDTH: usize = 8;

impl Table {
    pub(crate) fn new(columns: Vec<Column>, indent: usize) -> Self {
        Self {
            columns,
            text: String::new(),
            cells: Vec::new(),
            indent,
        }
    }

    /// Adds the next cell. Text from files must have passed [`anamnesis::quote::escape`].
    pub(crate) fn cell(&mut self, content: impl Display) {
        self.cell_with_prefix("", content);
    }

    /// Adds the next cell, with a prefix that is never omitted.
    pub(crate) fn cell_with_prefix(&mut self, prefix: &str, content: impl Display) {
        let start = self.text.len();
        self.text.push_str(prefix);
        let _ = write!(self.text, "{content}"); // writing to a string cannot fail
        let width = text::width(&self.text[start..]);
        self.cells.push(Cell {
            end: self.text.len(),
            width,
            prefix_width: text::width(prefix),
        });
    }

    /// Number of rows, without the headings.
    pub(crate) fn rows(&self) -> usize {
        self.cells.len() / self.columns.len()
    }

    /// Removes the rows behind the first ones.
    pub(crate) fn truncate(&mut self, rows: usize) {
        self.cells.truncate(rows * self.columns.len());
        self.text
            .truncate(self.cells.last().map_or(0, |cell| cell.end));
    }

    /// Writes the table. Columns without content are omitted.
    pub(crate) fn print(&self, screen: &Screen, out: &mut impl Write) -> io::Result<()> {
        let widths = self.widths(screen);
        let mut line = String::new();
        self.line(&mut line, &widths, screen, |i| {
            let heading = self.columns[i].heading;
            (heading, heading.len(), 0, BOLD.dimmed())
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
                    row[i].prefix_width,
                    self.columns[i].style,
                )
            });
            start = row.last().map_or(start, |cell| cell.end);
            out.write_all(line.as_bytes())?;
        }
        Ok(())
    }

    /// Appends one row. `cell` gives the content, width, prefix width and style of a column's cell.
    fn line<'t>(
        &'t self,
        line: &mut String,
        widths: &[usize],
        screen: &Screen,
        cell: impl Fn(usize) -> (&'t str, usize, usize, Style),
    ) {
        // spaces are written only before content, so that no line has trailing ones
        let mut pending = self.indent;
        for (i, column) in self.columns.iter().enumerate() {
            let (mut content, mut width, prefix_width, style) = cell(i);
            if column.fit == ColumnFit::Below || widths[i] == 0 {
                continue;
            }
            let mut cut = String::new();
            if width > widths[i] && screen.width.is_some() {
                match column.fit {
                    ColumnFit::Middle(_) => {
                        text::cut_middle(&mut cut, content, widths[i], prefix_width)
                    }
                    _ => text::cut_end(&mut cut, content, widths[i]),
                }
                content = &cut;
                width = text::width(content);
            }
            let free = widths[i].saturating_sub(width);
            let before = if column.right_aligned { free } else { 0 };
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
        for i in (0..self.columns.len()).filter(|i| self.columns[*i].fit == ColumnFit::Below) {
            let (content, ..) = cell(i);
            // the heading of a column below has no row to stand over
            if !content.is_empty() && content != self.columns[i].heading {
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

    /// Widths of the columns; 0 for columns without content. Wider cells are cut on a screen, and written in full where
    /// lines are unlimited.
    ///
    /// Three passes narrow them until the table fits: [`ColumnFit::Middle`] columns to their preferred minimum, [`ColumnFit::End`]
    /// columns to [`MIN_WIDTH`], then [`ColumnFit::Middle`] columns to [`MIN_WIDTH`].
    fn widths(&self, screen: &Screen) -> Vec<usize> {
        let mut widths: Vec<usize> = (0..self.columns.len())
            .map(|i| {
                let column = self.cells.iter().skip(i).step_by(self.columns.len());
                aligned_width(column.map(|cell| cell.width).collect())
            })
            .collect();
        for (width, column) in widths
            .iter_mut()
            .zip(&self.columns)
            .filter(|(width, _)| **width > 0)
        {
            *width = column.heading.len().max(*width);
        }
        let Some(screen) = screen.width else {
            // without a screen nothing is cut
            return widths;
        };
        let inline_width = |(width, column): (&usize, &Column)| {
            if column.fit == ColumnFit::Below {
                0
            } else {
                *width
            }
        };
        let shown = widths
            .iter()
            .zip(&self.columns)
            .filter(|pair| inline_width(*pair) > 0)
            .count();
        let room = screen.saturating_sub(self.indent + GAP * shown.saturating_sub(1));
        let wanted: usize = widths.iter().zip(&self.columns).map(inline_width).sum();
        let mut over = wanted.saturating_sub(room);
        // the middle and end of names distinguish them, so that they give up width last
        for pass in 0..3 {
            for (width, column) in widths.iter_mut().zip(&self.columns) {
                let min = match (pass, column.fit) {
                    (0, ColumnFit::Middle(preferred)) => preferred,
                    (1, ColumnFit::End) | (2, ColumnFit::Middle(_)) => MIN_WIDTH,
                    _ => continue,
                };
                let give = over.min(width.saturating_sub(min));
                *width -= give;
                over -= give;
            }
        }
        widths
    }
}

/// Bytes of padding that a column may have in any case, and per row.
const FREE_PADDING: usize = 16 << 10;
const FREE_PADDING_PER_ROW: usize = 32;

/// The width to which a column is padded: its widest cell's, unless padding would exceed the column's content by more than
/// [`FREE_PADDING`].
///
/// Without this limit one name of 1 MB next to 20 000 short ones would be padded to 20 GB.
fn aligned_width(mut widths: Vec<usize>) -> usize {
    let content: usize = widths.iter().sum();
    let allowed = content + FREE_PADDING + FREE_PADDING_PER_ROW * widths.len();
    // nearly every table fits its widest cell, and is not sorted
    let widest = widths.iter().copied().max().unwrap_or(0);
    if widest.saturating_mul(widths.len()).saturating_sub(content) <= allowed {
        return widest;
    }
    widths.sort_unstable();
    // the cells below a width need `width * their number - their content` of padding; the widest one that fits is found
    // from the widest cell down, which leaves out one more cell at each step
    let mut below = content;
    for (count, width) in (0..widths.len()).zip(&widths).rev() {
        below -= width;
        if width.saturating_mul(count).saturating_sub(below) <= allowed {
            // a width of 0 would omit the column
            return (*width).max(usize::from(content > 0));
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_linear_in_the_content() {
        assert_eq!(aligned_width(vec![]), 0);
        assert_eq!(aligned_width(vec![3, 80, 5]), 80);
        // names of a model, one of them long: aligned
        let names = (0..20_000).map(|i| 40 + i % 50).collect::<Vec<_>>();
        assert_eq!(aligned_width(names.clone()), 89);
        // one name of 1 MB: the others are aligned, the long one overflows
        assert_eq!(aligned_width([names, vec![1 << 20]].concat()), 89);
        for shares in [1, 7, 1000] {
            let widths: Vec<usize> = (0..20_000)
                .map(|i| if i % 20_000 < shares { 100_000 } else { 1 })
                .collect();
            let width = aligned_width(widths.clone());
            let padding: usize = widths.iter().map(|w| width.saturating_sub(*w)).sum();
            let content: usize = widths.iter().sum();
            assert!(padding <= content + FREE_PADDING + FREE_PADDING_PER_ROW * widths.len());
        }
    }
}
