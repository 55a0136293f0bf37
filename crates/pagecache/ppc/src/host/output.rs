//! Logs the standard output and standard error of a host process.

use std::io::{BufRead, BufReader, PipeReader, Read};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::printable::printable;

/// Limit on the bytes of a line; a longer one is divided.
const MAX_LINE: u64 = 4096;
/// Limit on the lines per second; more are only counted.
const MAX_LINES_PER_SECOND: u32 = 100;

/// Starts a thread that logs all lines until the process and its children have ended. Returns it, unless it could not be started.
pub(super) fn log_lines(from: PipeReader, name: &str) -> Option<JoinHandle<()>> {
    let name = name.to_owned();
    let thread = thread::Builder::new()
        .name("ppc-output".into())
        .stack_size(128 << 10);
    let started = thread.spawn(move || lines(from, |level, line| write(&name, level, line)));
    started
        .inspect_err(|error| tracing::warn!("the output of a policy cannot be logged: {error}"))
        .ok()
}

fn lines(from: impl Read, mut write: impl FnMut(u8, &str)) {
    let mut from = BufReader::new(from);
    let (mut second, mut written, mut omitted) = (Instant::now(), 0, 0u64);
    let mut line = Vec::new();
    loop {
        line.clear();
        // bounded: a line without an end would fill this process's memory
        if !matches!(
            (&mut from).take(MAX_LINE).read_until(b'\n', &mut line),
            Ok(1..)
        ) {
            break;
        }
        if second.elapsed() > Duration::from_secs(1) {
            (second, written) = (Instant::now(), 0);
        }
        written += 1;
        if written > MAX_LINES_PER_SECOND {
            omitted += 1;
            continue;
        }
        if omitted > 0 {
            write(4, &format!("{omitted} lines were omitted"));
            omitted = 0;
        }
        let text = String::from_utf8_lossy(&line);
        let text = printable(text.trim_end());
        match text.as_bytes() {
            [b'<', level @ b'0'..=b'7', b'>', ..] => write(level - b'0', &text[3..]),
            _ => write(6, &text),
        }
    }
    if omitted > 0 {
        write(4, &format!("{omitted} lines were omitted"));
    }
}

fn write(name: &str, level: u8, line: &str) {
    match level {
        0..=3 => tracing::error!(policy = name, "{line}"),
        4 => tracing::warn!(policy = name, "{line}"),
        5 | 6 => tracing::info!(policy = name, "{line}"),
        _ => tracing::debug!(policy = name, "{line}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged(text: &[u8]) -> Vec<(u8, String)> {
        let mut all = Vec::new();
        lines(text, |level, line| all.push((level, line.to_owned())));
        all
    }

    #[test]
    fn lines_are_logged_with_the_level_that_they_start_with() {
        let all = logged(b"one\n<3>two\n<9>three\n\x1b[31m\xff\nno end");
        let entry = |level, text: &str| (level, text.to_owned());
        let replaced = "\u{fffd}[31m\u{fffd}";
        assert_eq!(
            all,
            [
                entry(6, "one"),
                entry(3, "two"),
                entry(6, "<9>three"),
                entry(6, replaced),
                entry(6, "no end")
            ]
        );
    }

    #[test]
    fn long_lines_are_divided_and_many_lines_omitted() {
        let all = logged(&vec![b'x'; 1 << 20]);
        assert!(all.iter().all(|(_, line)| line.len() <= 4096));
        let all = logged("y\n".repeat(10_000).as_bytes());
        assert!(all.len() < 1000, "{}", all.len());
        assert!(all.last().unwrap().1.ends_with("lines were omitted"));
    }
}
