//! The progress bar on standard error, shown only on a terminal and cleared at the end.

use std::io::{self, IsTerminal, Write};

use anamnesis::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};

use crate::messages;

/// Fewer bytes than this take too short a time for a progress bar.
const MIN_BYTES: u64 = 64 << 20;
/// Columns kept free after the bar for the `^C` that terminals echo. Without them the echo wraps to a new line, and
/// clearing the line leaves the bar on the line above.
const ECHO_COLUMNS: u16 = 3;

/// A progress bar over `bytes` bytes, labelled with `activity`. The caller clears it, also after an interrupt.
pub(crate) fn bar(activity: &str, bytes: u64) -> ProgressBar {
    if bytes < MIN_BYTES || messages::are_kept() || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    // more often than this is not seen and costs terminals over a network time
    let target = ProgressDrawTarget::term_like_with_hz(Box::new(Terminal), 15);
    let bar = ProgressBar::with_draw_target(Some(bytes), target).with_message(activity.to_owned());
    let template =
        "{msg} {bar:16} {percent:>3} % of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left";
    bar.set_style(ProgressStyle::with_template(template).expect("a valid template"));
    bar
}

/// The progress callback of a run that is shown on a bar, or passed to the caller of the verb. The run's own total takes the place of the bar's.
pub(crate) fn on(bar: &ProgressBar) -> impl FnMut(Progress) + Send + use<> {
    let bar = bar.clone();
    let listener = messages::listener();
    move |progress| {
        if let Some(listener) = &listener {
            listener(progress);
        }
        bar.set_length(progress.total);
        bar.set_position(progress.done);
    }
}

/// Standard error as a terminal that is [`ECHO_COLUMNS`] narrower than it is.
#[derive(Debug)]
struct Terminal;

impl Terminal {
    /// Writes a cursor movement.
    fn control(times: usize, code: char) -> io::Result<()> {
        if times == 0 {
            Ok(())
        } else {
            write!(io::stderr(), "\x1b[{times}{code}")
        }
    }
}

impl TermLike for Terminal {
    fn width(&self) -> u16 {
        let measured =
            terminal_size::terminal_size_of(io::stderr()).map_or(80, |(width, _)| width.0);
        measured.saturating_sub(ECHO_COLUMNS).max(1)
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        Self::control(n, 'A')
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        Self::control(n, 'B')
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        Self::control(n, 'C')
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        Self::control(n, 'D')
    }

    fn write_line(&self, line: &str) -> io::Result<()> {
        writeln!(io::stderr(), "{line}")
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        io::stderr().write_all(text.as_bytes())
    }

    fn clear_line(&self) -> io::Result<()> {
        self.write_str("\r\x1b[2K")
    }

    fn flush(&self) -> io::Result<()> {
        // standard error is unbuffered
        Ok(())
    }
}
