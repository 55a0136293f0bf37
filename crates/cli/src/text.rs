//! Shortening of text from files, and formatting of numbers.

use std::fmt;

use anamnesis::quote::is_hidden;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Like [`escape`], but keeps line feeds and tabs.
pub(crate) fn escape_lines(text: &str) -> String {
    let keep = |c: char| matches!(c, '\n' | '\t') || !is_hidden(c);
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if keep(c) {
            out.push(c)
        } else {
            out.extend(c.escape_default())
        }
    }
    out
}

/// `a, b and 3 more`: the first names of a list of any length. `hint` stands behind the number.
pub(crate) fn listed(
    names: impl IntoIterator<Item = impl AsRef<str>>,
    most: usize,
    hint: &str,
) -> String {
    let (mut text, mut count) = (String::new(), 0);
    for name in names {
        if count < most {
            text.push_str(if count > 0 { ", " } else { "" });
            text.push_str(name.as_ref());
        }
        count += 1;
    }
    if count > most {
        let more = ExactCount((count - most) as u64);
        text.push_str(&format!(" and {more} more{hint}"));
    }
    text
}

/// Width of the text in terminal columns.
pub(crate) fn width(text: &str) -> usize {
    // nearly all names: no look-up for each character
    if text.is_ascii() {
        text.len()
    } else {
        text.width()
    }
}

/// Appends the text, with its end omitted if it is wider than `max` columns.
pub(crate) fn cut_end(out: &mut String, text: &str, max: usize) {
    if width(text) <= max {
        return out.push_str(text);
    }
    // one column is the ellipsis's
    out.push_str(front(text, max.saturating_sub(1)));
    out.push('…');
}

/// Appends the text, with its middle omitted if it is wider than `max` columns. The first `keep` columns are kept. Two
/// fifths of the rest go to the start and three fifths to the end. A dotted name keeps its first number, which is the layer:
/// the layer and the end are what distinguishes tensor names.
pub(crate) fn cut_middle(out: &mut String, text: &str, max: usize, keep: usize) {
    if width(text) <= max {
        return out.push_str(text);
    }
    let room = max.saturating_sub(1);
    // a prefix that is kept is a drawing of a tree, in which the layer stands on a line of its own
    let number = first_number(text).filter(|_| keep == 0);
    let fits = |from: &usize| width(&text[*from..]) + MIN_FRAGMENT <= room;
    // with the word before the layer's number if there is room for both
    let (head, tail) = if let Some(from) =
        number.and_then(|(part, from, _)| [part, from].into_iter().find(fits))
    {
        (front(text, room - width(&text[from..])), &text[from..])
    } else if let Some((part, _, end)) =
        number.filter(|(part, _, end)| width(&text[*part..*end]) + 3 * MIN_FRAGMENT <= room)
    // otherwise the layer stands between two ellipses, if the ends keep a fragment each
    {
        out.push('…');
        (
            &text[part..end],
            back(&text[end..], room - 1 - width(&text[part..end])),
        )
    } else {
        let head = front(text, (keep + room.saturating_sub(keep) * 2 / 5).min(room));
        (head, back(&text[head.len()..], room - width(head)))
    };
    out.push_str(head);
    out.push('…');
    out.push_str(tail);
}

/// Escaped text without its middle, if it has more than `most` columns.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    let mut out = String::new();
    cut_middle(&mut out, text, most, most / 2);
    out
}

/// Minimum number of columns of a fragment next to an ellipsis.
const MIN_FRAGMENT: usize = 4;

/// The first numeric component of a dotted name: start of the component before it, its start and its end.
fn first_number(text: &str) -> Option<(usize, usize, usize)> {
    let mut before = 0;
    let mut start = 0;
    for part in text.split('.') {
        if start > 0 && !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()) {
            return Some((before, start, start + part.len()));
        }
        (before, start) = (start, start + part.len() + 1);
    }
    None
}

/// The longest prefix of at most `max` columns.
fn front(text: &str, max: usize) -> &str {
    let mut left = max;
    let end = text.char_indices().find(|(_, c)| {
        let width = c.width().unwrap_or(0);
        let over = width > left;
        left = left.saturating_sub(width);
        over
    });
    end.map_or(text, |(at, _)| &text[..at])
}

/// The longest suffix of at most `max` columns.
fn back(text: &str, max: usize) -> &str {
    let mut left = max;
    let mut from = text.len();
    for (at, c) in text.char_indices().rev() {
        let width = c.width().unwrap_or(0);
        if width > left {
            break;
        }
        left -= width;
        from = at;
    }
    &text[from..]
}

/// Text wrapped at spaces to lines of `columns` columns, of which all but the first are indented. `None` is for unlimited lines.
pub(crate) fn wrap(text: &str, columns: Option<usize>, indent: usize) -> String {
    let Some(room) = columns.map(|columns| columns.saturating_sub(indent)) else {
        return text.to_owned();
    };
    let mut out = String::with_capacity(text.len() + 64);
    let mut used = 0;
    for word in text.split(' ') {
        let width = width(word);
        // a word that is wider than the line has a line of its own and is not cut: it may be a path to copy
        if used > 0 && used + 1 + width > room {
            out.push_str(&format!("\n{:indent$}", ""));
            used = 0;
        } else if used > 0 {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += width;
    }
    out
}

/// Displays a number of bytes in binary units: `4.58 GiB`.
pub(crate) struct ByteSize(pub(crate) u64);

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(
            f,
            self.0,
            1024,
            &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"],
        )
    }
}

/// Displays a count in decimal units: `8.03 B`.
pub(crate) struct ShortCount(pub(crate) u64);

impl fmt::Display for ShortCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.0, 1000, &["", "K", "M", "B", "T", "Qa", "Qi"])
    }
}

fn scaled(f: &mut fmt::Formatter<'_>, n: u64, base: u64, units: &[&str]) -> fmt::Result {
    if n < base {
        return if units[0].is_empty() {
            write!(f, "{n}")
        } else {
            write!(f, "{n} {}", units[0])
        };
    }
    let mut unit = 1;
    let mut one = base;
    // moves to the next unit where two decimals would round up to 1024.00 or 1000.00 of this one
    while unit + 1 < units.len()
        // in integers, so that the boundary, 1023.995, is exact
        && u128::from(n) * 1000 >= u128::from(one) * (u128::from(base) * 1000 - 5)
    {
        one *= base;
        unit += 1;
    }
    write!(f, "{:.2} {}", n as f64 / one as f64, units[unit])
}

/// Displays a number with thousands separators: `4,920,734,176`.
pub(crate) struct ExactCount(pub(crate) u64);

impl fmt::Display for ExactCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (i, digit) in digits.chars().enumerate() {
            if i > 0 && (digits.len() - i).is_multiple_of(3) {
                f.write_str(",")?;
            }
            write!(f, "{digit}")?;
        }
        Ok(())
    }
}

/// A count with its noun: `1 tensor`, `2 tensors`.
pub(crate) fn plural(n: u64, what: &str) -> String {
    format!("{} {what}{}", ExactCount(n), if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_middle_cut(text: &str, max: usize) -> String {
        let mut out = String::new();
        cut_middle(&mut out, text, max, 0);
        out
    }

    #[test]
    fn sizes_and_counts_are_printed_with_units_or_separators() {
        for (n, bytes, count) in [
            (0, "0 B", "0"),
            (999, "999 B", "999"),
            (1023, "1023 B", "1.02 K"),
            (1024, "1.00 KiB", "1.02 K"),
            (1_048_575, "1.00 MiB", "1.05 M"),
            (8_030_261_248, "7.48 GiB", "8.03 B"),
            (u64::MAX, "16.00 EiB", "18.45 Qi"),
        ] {
            assert_eq!(
                (ByteSize(n).to_string(), ShortCount(n).to_string()),
                (bytes.into(), count.into())
            );
        }
        assert_eq!(ExactCount(4_920_734_176).to_string(), "4,920,734,176");
        assert_eq!(ExactCount(12).to_string(), "12");
    }

    #[test]
    fn cut_middle_keeps_both_ends_within_the_width() {
        assert_eq!(with_middle_cut("short", 10), "short");
        let name = "model.vision_tower.encoder.layers.31.self_attn.q_proj.weight";
        assert_eq!(
            with_middle_cut(name, 50),
            "model.vision_tow…layers.31.self_attn.q_proj.weight"
        );
        assert_eq!(
            with_middle_cut(name, 40),
            "model.…layers.31.self_attn.q_proj.weight"
        );
        assert_eq!(with_middle_cut(name, 25), "…layers.31….q_proj.weight");
        assert_eq!(
            with_middle_cut("embedding_of_the_tokens.weight", 20),
            "embeddi…okens.weight"
        );
        for max in 1..70 {
            assert!(width(&with_middle_cut(name, max)) <= max);
            assert!(width(&with_middle_cut("数値数値数値数値数値", max)) <= max);
        }
    }

    #[test]
    fn line_feeds_and_tabs_are_kept_in_lines() {
        assert_eq!(escape_lines("a\n\tb\u{1b}"), "a\n\tb\\u{1b}");
    }
}
