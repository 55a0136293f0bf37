//! Warnings of the page-cache runtime on standard error.

use anamnesis_ppc::LineSubscriber;
use tracing::Level;

use crate::text::clean;

/// Installs a `tracing` subscriber that prints warnings and errors.
pub(crate) fn show() {
    let print = |_, text: &str| eprintln!("anamnesis: {}", clean(text));
    let _ = tracing::subscriber::set_global_default(LineSubscriber::new(Level::WARN, print)); // fails only if a subscriber is set, which this command does once
}
