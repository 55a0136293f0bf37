//! Messages of the page-cache runtime, and of its policies, on standard error.

use anamnesis::quote::{escape, shown_text};
use anamnesis_ppc::LineSubscriber;
use tracing::Level;

use crate::args::LogLevel;

/// Installs a `tracing` subscriber that prints warnings and errors.
pub(crate) fn show() {
    show_from(LogLevel::Warn);
}

/// Installs a `tracing` subscriber that prints messages of this level and more severe ones.
pub(crate) fn show_from(level: LogLevel) {
    let level = match level {
        LogLevel::Error => Level::ERROR,
        LogLevel::Warn => Level::WARN,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
        LogLevel::Trace => Level::TRACE,
    };
    let print = |_, text: &str| eprintln!("anamnesis: {}", escape(&shown_text(text)));
    let _ = tracing::subscriber::set_global_default(LineSubscriber::new(level, print)); // fails only if a subscriber is set, which this command does once
}
