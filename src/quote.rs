//! Names from files, as error messages show them.

/// Characters of a name that a message shows: longer names would hide the rest of the line.
const MAX_CHARS: usize = 120;

/// Quotes a name for a message: between backticks, control characters escaped, cut after [`MAX_CHARS`].
///
/// Names come from untrusted files. An escape sequence or a right-to-left override in one could
/// otherwise rewrite what a terminal shows.
pub(crate) fn quote(name: &str) -> String {
    let mut out = String::from("`");
    for (i, c) in name.chars().enumerate() {
        // counted in characters, so that the cut is never inside one
        if i == MAX_CHARS {
            out.push('…');
            break;
        }
        if c.is_control() || c == '\u{202e}' {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out.push('`');
    out
}
