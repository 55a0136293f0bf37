//! Text from files, made safe to show.
//!
//! Names and metadata come from untrusted files. An escape sequence in one acts on the terminal that shows it, a change
//! of writing direction rewrites the line, and an invisible character makes two names look alike.

use std::borrow::Cow;

/// Characters of a name that a message shows: longer names would hide the rest of the line.
const MAX_CHARS: usize = 120;

/// The text with every [hidden](is_hidden) character as a Rust escape (`\u{1b}`).
///
/// ```
/// use anamnesis::quote::escape;
///
/// assert_eq!(escape("layer\u{202e}.0"), r"layer\u{202e}.0");
/// ```
pub fn escape(text: &str) -> Cow<'_, str> {
    // most names are printable ASCII
    if text.bytes().all(|b| (0x20..0x7f).contains(&b)) || !text.chars().any(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    text.chars().for_each(|c| push_escaped(&mut out, c));
    Cow::Owned(out)
}

/// Whether a terminal acts on the character or shows nothing for it: control and format characters (Unicode categories
/// Cc and Cf), line and paragraph separators, variation selectors and fillers.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}'
            | '\u{890}' | '\u{891}' | '\u{8e2}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Quotes a name for a message: between backticks, escaped, cut after [`MAX_CHARS`].
pub(crate) fn quote(name: &str) -> String {
    let mut out = String::from("`");
    for (i, c) in name.chars().enumerate() {
        // counted in characters, so that the cut is never inside one
        if i == MAX_CHARS {
            out.push('…');
            break;
        }
        push_escaped(&mut out, c);
    }
    out.push('`');
    out
}

fn push_escaped(out: &mut String, c: char) {
    if is_hidden(c) {
        out.extend(c.escape_default());
    } else {
        out.push(c);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_are_escaped() {
        assert_eq!(
            escape("a\u{1b}[2Jb\u{202e}c\u{200b}\n\u{9b}\r\u{7f}"),
            "a\\u{1b}[2Jb\\u{202e}c\\u{200b}\\n\\u{9b}\\r\\u{7f}"
        );
        assert!(matches!(escape("Ünïcödé 数値"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_quoted_name_is_short_and_has_no_hidden_character() {
        let quoted = quote(&"\u{feff}x".repeat(1000));
        assert!(
            quoted.starts_with("`\\u{feff}x") && quoted.ends_with("…`"),
            "{quoted}"
        );
        assert!(quoted.len() < 1000 && !quoted.chars().any(is_hidden));
    }
}
