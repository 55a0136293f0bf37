//! Text from files, made safe and short; numbers, made readable.

use std::borrow::Cow;
use std::fmt;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The text with everything escaped that a terminal would obey or that would not be seen: control
/// characters, changes of writing direction, invisible characters.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|b| (0x20..0x7f).contains(&b)) || !text.chars().any(hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if hidden(c) {
            out.extend(c.escape_default())
        } else {
            out.push(c)
        }
    }
    Cow::Owned(out)
}

/// As [`clean`], except that line ends and tabs stay.
pub(crate) fn clean_lines(text: &str) -> String {
    let keep = |c: char| matches!(c, '\n' | '\t') || !hidden(c);
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

/// Control and format characters (Unicode's Cc and Cf), line and paragraph separators, fillers.
fn hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}'
            | '\u{115f}' | '\u{1160}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Columns the text takes.
pub(crate) fn width(text: &str) -> usize {
    if text.is_ascii() {
        text.len()
    } else {
        text.width()
    }
}

/// Appends the text, cut at its end if it is wider than `most`.
pub(crate) fn cut_end(out: &mut String, text: &str, most: usize) {
    if width(text) <= most {
        return out.push_str(text);
    }
    out.push_str(front(text, most.saturating_sub(1)));
    out.push('…');
}

/// Appends the text, with its middle left out if it is wider than `most`. The first `keep` columns
/// stay. Of the rest more is kept of the end, and of a dotted name the first number (which layer it
/// is), because these tell names apart.
pub(crate) fn cut_middle(out: &mut String, text: &str, most: usize, keep: usize) {
    if width(text) <= most {
        return out.push_str(text);
    }
    let room = most.saturating_sub(1);
    let number = numbered(text).filter(|_| keep == 0);
    let fits = |from: &usize| width(&text[*from..]) + SHORT <= room;
    let (head, tail) = if let Some(from) =
        number.and_then(|(part, from, _)| [part, from].into_iter().find(fits))
    {
        (front(text, room - width(&text[from..])), &text[from..])
    } else if let Some((part, _, end)) =
        number.filter(|(part, _, end)| width(&text[*part..*end]) + 3 * SHORT <= room)
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

/// Less than this is not worth showing.
const SHORT: usize = 4;

/// The first number in a dotted name: where the part before it begins, where it begins and ends.
fn numbered(text: &str) -> Option<(usize, usize, usize)> {
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

fn front(text: &str, most: usize) -> &str {
    let mut left = most;
    let end = text.char_indices().find(|(_, c)| {
        let width = c.width().unwrap_or(0);
        let over = width > left;
        left = left.saturating_sub(width);
        over
    });
    end.map_or(text, |(at, _)| &text[..at])
}

fn back(text: &str, most: usize) -> &str {
    let mut left = most;
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

/// A number of bytes in binary units: `4.58 GiB`.
pub(crate) struct Bytes(pub(crate) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(
            f,
            self.0,
            1024,
            &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"],
        )
    }
}

/// A number of things in decimal units: `8.03 B`.
pub(crate) struct Count(pub(crate) u64);

impl fmt::Display for Count {
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
    // the next unit begins where two decimals would round up to it
    while unit + 1 < units.len()
        && u128::from(n) * 1000 >= u128::from(one) * (u128::from(base) * 1000 - 5)
    {
        one *= base;
        unit += 1;
    }
    write!(f, "{:.2} {}", n as f64 / one as f64, units[unit])
}

/// A number with its thousands apart: `4,920,734,176`.
pub(crate) struct Exact(pub(crate) u64);

impl fmt::Display for Exact {
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

/// `1 tensor`, `2 tensors`.
pub(crate) fn plural(n: u64, what: &str) -> String {
    format!("{} {what}{}", Exact(n), if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn middle(text: &str, most: usize) -> String {
        let mut out = String::new();
        cut_middle(&mut out, text, most, 0);
        out
    }

    #[test]
    fn numbers_read_well() {
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
                (Bytes(n).to_string(), Count(n).to_string()),
                (bytes.into(), count.into())
            );
        }
        assert_eq!(Exact(4_920_734_176).to_string(), "4,920,734,176");
        assert_eq!(Exact(12).to_string(), "12");
    }

    #[test]
    fn names_are_cut_in_the_middle() {
        assert_eq!(middle("short", 10), "short");
        let name = "model.vision_tower.encoder.layers.31.self_attn.q_proj.weight";
        assert_eq!(
            middle(name, 50),
            "model.vision_tow…layers.31.self_attn.q_proj.weight"
        );
        assert_eq!(middle(name, 40), "model.…layers.31.self_attn.q_proj.weight");
        assert_eq!(middle(name, 25), "…layers.31….q_proj.weight");
        assert_eq!(
            middle("embedding_of_the_tokens.weight", 20),
            "embeddi…okens.weight"
        );
        for most in 1..70 {
            assert!(width(&middle(name, most)) <= most);
            assert!(width(&middle("数値数値数値数値数値", most)) <= most);
        }
    }

    #[test]
    fn nothing_hidden_stays() {
        assert_eq!(
            clean("a\u{1b}[2Jb\u{202e}c\u{200b}\n\u{9b}\r"),
            "a\\u{1b}[2Jb\\u{202e}c\\u{200b}\\n\\u{9b}\\r"
        );
        assert!(matches!(clean("Ünïcödé 数値"), Cow::Borrowed(_)));
        assert_eq!(clean_lines("a\n\tb\u{1b}"), "a\n\tb\\u{1b}");
    }
}
