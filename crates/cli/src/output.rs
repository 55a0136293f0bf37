//! The output of the verbs: tables, trees, JSON and progress bars.

pub(crate) mod coverage;
pub(crate) mod json;
pub(crate) mod metadata;
pub(crate) mod overview;
pub(crate) mod progress;
pub(crate) mod table;
pub(crate) mod tensors;

pub(crate) mod tree;

use std::fmt;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use anstyle::{AnsiColor, Style};

use crate::args::Color;

/// Standard output, locked and buffered, or memory in its place. All output of a verb goes through this one writer.
pub(crate) struct Stdout(Destination);

enum Destination {
    Locked(BufWriter<StdoutLock<'static>>),
    Kept(Vec<u8>),
}

impl Stdout {
    pub(crate) fn lock() -> Self {
        // locked once: no other thread of the command writes to standard output
        let locked = BufWriter::with_capacity(64 << 10, io::stdout().lock());
        Self(Destination::Locked(locked))
    }

    /// Memory, for a caller of the verb.
    pub(crate) fn kept() -> Self {
        Self(Destination::Kept(Vec::new()))
    }

    /// The bytes that were written to memory.
    pub(crate) fn into_kept(self) -> Vec<u8> {
        match self.0 {
            Destination::Locked(_) => Vec::new(),
            Destination::Kept(bytes) => bytes,
        }
    }

    fn writer(&mut self) -> &mut dyn Write {
        match &mut self.0 {
            Destination::Locked(locked) => locked,
            Destination::Kept(bytes) => bytes,
        }
    }

    /// Flushes the buffer and returns the error of a failed write.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.writer().flush()
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer().flush()
    }
}

/// The width and colours of standard output.
pub(crate) struct Screen {
    /// Number of columns; `None` for unlimited lines.
    pub(crate) width: Option<usize>,
    /// Number of lines of a terminal.
    pub(crate) height: Option<usize>,
    pub(crate) terminal: bool,
    color: bool,
}

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const DTYPE: Style = AnsiColor::Cyan.on_default();
pub(crate) const WARNING: Style = AnsiColor::Yellow.on_default();
pub(crate) const REFUSED: Style = AnsiColor::Red.on_default();

impl Screen {
    /// Detects the width and colours. The environment variable `COLUMNS` overrides the terminal's width and applies
    /// without a terminal as well.
    pub(crate) fn new(color: Color) -> Self {
        let terminal = io::stdout().is_terminal();
        // tests and scripts set it to fix the layout
        let columns = std::env::var("COLUMNS")
            .ok()
            .and_then(|c| c.parse().ok())
            .filter(|c| *c > 0);
        let measured = terminal.then(terminal_size::terminal_size).flatten();
        Self {
            // no limit in a file or a pipe: cut text would be lost to a later search
            width: columns.or_else(|| measured.map(|(width, _)| usize::from(width.0))),
            height: measured.map(|(_, height)| usize::from(height.0)),
            terminal,
            color: match color {
                Color::Always => true,
                Color::Never => false,
                Color::Auto => {
                    // respects NO_COLOR, CLICOLOR and CI as other programs do
                    anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never
                }
            },
        }
    }

    /// The text in this style, or unstyled without colours.
    pub(crate) fn paint<T: fmt::Display>(&self, style: Style, text: T) -> Painted<T> {
        Painted {
            style: if self.color { style } else { Style::new() },
            text,
        }
    }
}

/// A value that is displayed in a style.
pub(crate) struct Painted<T> {
    style: Style,
    text: T,
}

impl<T: fmt::Display> fmt::Display for Painted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let style = self.style;
        write!(f, "{style}{}{style:#}", self.text)
    }
}
