//! What the runtime of the page cache warns of, on standard error.

use anamnesis_ppc::Lines;
use tracing::Level;

use crate::output::text::clean;

/// From now on.
pub(crate) fn show() {
    let tell = |_, text: &str| eprintln!("anamnesis: {}", clean(text));
    let _ = tracing::subscriber::set_global_default(Lines::new(Level::WARN, tell)); // nobody else sets one
}
