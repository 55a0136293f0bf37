//! Text of a policy for the log.

/// The text with control characters replaced: a policy must not write control sequences to the terminal that shows the
/// log.
pub(super) fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}
