//! Warnings of the page-cache runtime on standard error.

use anamnesis::quote::escape;
use anamnesis_ppc::LineSubscriber;
use tracing::Level;

/// Installs a `tracing` subscriber that prints warnings and errors.
pub(crate) fn show() {
    let print = |_, text: &str| eprintln!("anamnesis: {}", escape(text));
    let _ = tracing::subscriber::set_global_default(LineSubscriber::new(Level::WARN, print)); // fails only if a subscriber is set, which this command does once
}
