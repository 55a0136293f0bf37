//! The sentences of comments, docstrings and Markdown, for tests about language.

use std::path::Path;

use crate::support::rust_code::{Piece, pieces};

/// A sentence, and the line on which it begins.
pub(super) struct Sentence {
    pub(super) line: usize,
    /// The text on one line. A code span is `` `x` ``, so that names in code are no words.
    pub(super) text: String,
    /// Whether it is the first of a comment of code, where a lower-case word may begin a sentence.
    pub(super) begins_comment: bool,
}

/// A line of prose. `None` ends a paragraph.
type Line = (usize, Option<String>);

/// The sentences of a file, by its extension. Empty for files that are neither code nor Markdown.
pub(super) fn sentences(path: &Path, text: &str) -> Vec<Sentence> {
    let extension = path.extension().unwrap_or_default();
    let lines = match extension.to_str() {
        Some("rs" | "h" | "c") => slash_comments(text),
        Some("py" | "pyi") => python_comments(text),
        Some("sh" | "toml" | "yml") => hash_comments(text),
        Some("md") => (1..)
            .zip(text.lines().map(|line| Some(line.to_owned())))
            .collect(),
        _ => Vec::new(),
    };
    let is_code = extension != "md";
    let mut found = Vec::new();
    for paragraph in paragraphs(lines) {
        split(&paragraph, is_code, &mut found);
    }
    found
}

/// Comments of Rust and C. Two comments are one paragraph if they are on consecutive lines, alone on them, equally far from the
/// margin and equally marked.
fn slash_comments(text: &str) -> Vec<Line> {
    let chars: Vec<char> = text.chars().collect();
    let (mut lines, mut line, mut column, mut previous) = (Vec::new(), 1, 0, None);
    let mut alone = true;
    for (piece, range) in pieces(&chars) {
        let body: String = chars[range].iter().collect();
        if piece == Piece::Comment {
            let mark = &body[..body.len() - body.trim_start_matches(['/', '!', '*']).len()];
            let this = (line, column, mark.to_owned());
            let goes_on = previous.is_some_and(|(last, same, before): (usize, usize, String)| {
                alone && last + 1 == line && same == column && before == mark
            });
            if !goes_on {
                lines.push((line, None));
            }
            for (n, row) in (line..).zip(body.lines()) {
                let row = row.trim_start().trim_start_matches(['/', '!', '*']);
                lines.push((n, Some(row.trim_end_matches("*/").to_owned())));
            }
            previous = Some(this);
        }
        for c in body.chars() {
            if c == '\n' {
                (line, column, alone) = (line + 1, 0, true);
            } else {
                column += 1;
                alone &= c.is_whitespace();
            }
        }
    }
    lines
}

/// Comments of shell and TOML that have a line of their own.
fn hash_comments(text: &str) -> Vec<Line> {
    let line = |line: &str| {
        let line = line.trim_start();
        let comment = line
            .strip_prefix('#')
            .filter(|rest| !rest.starts_with('!'))?;
        Some(comment.to_owned())
    };
    (1..).zip(text.lines().map(line)).collect()
}

/// Comments and docstrings of Python.
fn python_comments(text: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    // the quotes that end the open string, and whether it is a docstring
    let mut open: Option<(&str, bool)> = None;
    let mut last_code = ':';
    for (number, line) in (1..).zip(text.lines()) {
        let mut rest = line;
        let mut has_prose = false;
        loop {
            if let Some((quotes, is_doc)) = open {
                let end = end_of_string(rest, quotes);
                if is_doc {
                    let body = &rest[..end.unwrap_or(rest.len())];
                    lines.push((number, Some(body.to_owned())));
                    has_prose = true;
                }
                let Some(end) = end else {
                    // only strings with three quotes go on
                    open = open.filter(|(quotes, _)| quotes.len() == 3);
                    break;
                };
                if is_doc {
                    lines.push((number, None));
                }
                rest = &rest[end + quotes.len()..];
                (open, last_code) = (None, '"');
            }
            let Some(at) = rest.find(['#', '"', '\'']) else {
                last_code = rest.trim_end().chars().next_back().unwrap_or(last_code);
                break;
            };
            let before = rest[..at].trim();
            if rest[at..].starts_with('#') {
                // a comment behind code does not go on with the one above
                if !before.is_empty() {
                    lines.push((number, None));
                }
                lines.push((number, Some(rest[at + 1..].to_owned())));
                has_prose = true;
                last_code = before.chars().next_back().unwrap_or(last_code);
                break;
            }
            let quotes = ["\"\"\"", "'''", "\"", "'"]
                .into_iter()
                .find(|quotes| rest[at..].starts_with(quotes))
                .unwrap();
            let begins_line = rest.len() == line.len() && ["", "r", "f"].contains(&before);
            // a string that is a statement, not an argument or an element
            let is_doc = begins_line && !"([{,=+".contains(last_code);
            if is_doc {
                lines.push((number, None));
            }
            open = Some((quotes, is_doc));
            rest = &rest[at + quotes.len()..];
        }
        if !has_prose {
            lines.push((number, None));
        }
    }
    lines
}

fn end_of_string(text: &str, quotes: &str) -> Option<usize> {
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with(quotes) {
            return Some(at);
        }
        let c = text[at..].chars().next()?;
        at += c.len_utf8();
        if c == '\\' {
            at += text[at..].chars().next().map_or(0, char::len_utf8);
        }
    }
    None
}

/// Paragraphs, list items, headings and cells of tables, without blocks of code.
fn paragraphs(lines: Vec<Line>) -> Vec<Vec<(usize, String)>> {
    let (mut found, mut current, mut in_code) = (Vec::new(), Vec::new(), false);
    for (number, line) in lines {
        let text = line.as_deref().map(str::trim);
        let is_fence = text.is_some_and(|text| text.starts_with("```"));
        in_code ^= is_fence;
        let item = text.and_then(|text| {
            let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
            let marks: &[&str] = match rest.len() == text.len() {
                true => &["- ", "* "],
                false => &[". "],
            };
            marks.iter().find_map(|mark| rest.strip_prefix(mark))
        });
        let heading = text.and_then(|text| text.strip_prefix('#'));
        let row = text.and_then(|text| text.strip_prefix('|'));
        match text {
            _ if is_fence => found.push(std::mem::take(&mut current)),
            Some(_) if in_code => {}
            None | Some("") => found.push(std::mem::take(&mut current)),
            Some(text) => {
                if item.or(heading).or(row).is_some() || text.starts_with("<!--") {
                    found.push(std::mem::take(&mut current));
                }
                if let Some(row) = row {
                    let cells = row.split('|').map(|cell| vec![(number, cell.into())]);
                    found.extend(cells);
                } else if let Some(heading) = heading {
                    found.push(vec![(number, heading.trim_start_matches('#').into())]);
                } else {
                    current.push((number, item.unwrap_or(text).to_owned()));
                }
            }
        }
        // the end of a comment ends its block of code too
        in_code &= line.is_some();
    }
    found.push(current);
    found.retain(|paragraph| !paragraph.is_empty());
    found
}

/// Splits after a full stop, question mark, exclamation mark or colon that a capital letter follows.
fn split(paragraph: &[(usize, String)], is_code: bool, found: &mut Vec<Sentence>) {
    let mut sentence = Sentence {
        line: paragraph[0].0,
        text: String::new(),
        begins_comment: is_code,
    };
    let mut in_span = false;
    for (line, text) in paragraph {
        for word in text.split_whitespace() {
            let begins = word
                .trim_start_matches(['"', '(', '*', '_', '['])
                .starts_with(|c: char| c.is_uppercase() || c == '`');
            let ended = sentence
                .text
                .trim_end_matches([')', '"', '*', '_'])
                .ends_with(['.', '!', '?', ':']);
            if begins && ended && !in_span {
                let next = Sentence {
                    line: *line,
                    text: String::new(),
                    begins_comment: false,
                };
                found.push(std::mem::replace(&mut sentence, next));
            }
            if sentence.text.is_empty() {
                sentence.line = *line;
            } else if !in_span {
                sentence.text.push(' ');
            }
            for c in word.chars() {
                if c == '`' {
                    sentence.text.push_str(if in_span { "x`" } else { "`" });
                    in_span = !in_span;
                } else if !in_span {
                    sentence.text.push(c);
                }
            }
        }
    }
    if !sentence.text.is_empty() {
        found.push(sentence);
    }
}

#[test]
fn sentences_are_those_of_comments_and_not_of_code() {
    let texts = |path: &str, text: &str| -> Vec<(usize, String)> {
        sentences(Path::new(path), text)
            .into_iter()
            .map(|sentence| (sentence.line, sentence.text))
            .collect()
    };
    let rust = "//! One `a. B` two.\n//! Three\n//! ```\n//! Code. Code.\n//! ```\n\nlet a = \"// no\"; // four\n// five\n";
    let expected = [(1, "One `x` two."), (2, "Three"), (7, "four"), (8, "five")];
    assert_eq!(
        texts("a.rs", rust),
        expected.map(|(n, s)| (n, s.to_owned()))
    );
    let python = "\"\"\"One.\n\nTwo: Three.\"\"\"\n# four\n# five\nx = f(\n    \"six # no\", 'seven')  # eight\n";
    let expected = [
        (1, "One."),
        (3, "Two:"),
        (3, "Three."),
        (4, "four five"),
        (7, "eight"),
    ];
    assert_eq!(
        texts("a.py", python),
        expected.map(|(n, s)| (n, s.to_owned()))
    );
    let markdown = "# One\nTwo (see [a](b)). Three\n- four\n  goes on\n\n| five | six |\n";
    let expected = [
        (1, " One"),
        (2, "Two (see [a](b))."),
        (2, "Three"),
        (3, "four goes on"),
        (6, "five"),
        (6, "six"),
    ];
    assert_eq!(
        texts("a.md", markdown),
        expected.map(|(n, s)| (n, s.trim().to_owned()))
    );
}
