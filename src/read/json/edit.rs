//! Edits of a JSON text that keep the rest of it byte for byte.
//!
//! Configurations are written by Python's `json`, with its own order, spacing, digits, and the words `NaN` and `Infinity`
//! that JSON does not have (`time_step_limit` of Mamba 2). Parsing and printing would change all of these, or fail. So a
//! text is scanned for the members of its objects, and only what changes is cut out.

use std::borrow::Cow;
use std::ops::Range;

/// One member of an object, as ranges of the text.
#[derive(Clone, Debug)]
pub(crate) struct JsonMember<'t> {
    /// Its name without escapes.
    pub(crate) name: Cow<'t, str>,
    /// From the quote of the name to the end of the value.
    pub(crate) whole: Range<usize>,
    /// The value.
    pub(crate) value: Range<usize>,
}

/// A text that is not JSON, with the byte at which that shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotJson(pub(crate) usize);

/// The members of the object that begins at a byte of a text.
#[derive(Clone, Debug)]
pub(crate) struct JsonMembers<'t> {
    text: &'t str,
    at: usize,
    /// Whether a name, and not a comma, is next.
    is_first: bool,
    ended: bool,
}

impl<'t> JsonMembers<'t> {
    /// The members of the object that begins at `start`, or after blanks; `None` if another value begins there.
    pub(crate) fn of(text: &'t str, start: usize) -> Option<Self> {
        let at = skip_blanks(text, start);
        (text.as_bytes().get(at) == Some(&b'{')).then_some(Self {
            text,
            at: at + 1,
            is_first: true,
            ended: false,
        })
    }

    fn next_member(&mut self) -> Result<Option<JsonMember<'t>>, NotJson> {
        let bytes = self.text.as_bytes();
        let mut at = skip_blanks(self.text, self.at);
        if bytes.get(at) == Some(&b'}') {
            return Ok(None);
        }
        if !self.is_first {
            at = skip_blanks(self.text, expect(bytes, at, b',')?);
        }
        self.is_first = false;
        let start = at;
        let end = skip_text(bytes, at)?;
        let name = &self.text[start + 1..end - 1];
        let name = if name.contains('\\') {
            let whole = &self.text[start..end];
            Cow::Owned(serde_json::from_str(whole).map_err(|_| NotJson(start))?)
        } else {
            Cow::Borrowed(name)
        };
        let at = expect(bytes, skip_blanks(self.text, end), b':')?;
        let value = skip_blanks(self.text, at);
        let end = skip_value(self.text, value)?;
        self.at = end;
        Ok(Some(JsonMember {
            name,
            whole: start..end,
            value: value..end,
        }))
    }
}

impl<'t> Iterator for JsonMembers<'t> {
    type Item = Result<JsonMember<'t>, NotJson>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.next_member().transpose();
        // after an error there is no place to go on from
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

fn skip_blanks(text: &str, at: usize) -> usize {
    let rest = &text.as_bytes()[at..];
    let blank = |b: &&u8| matches!(b, b' ' | b'\t' | b'\n' | b'\r');
    at + rest.iter().take_while(blank).count()
}

fn expect(bytes: &[u8], at: usize, byte: u8) -> Result<usize, NotJson> {
    (bytes.get(at) == Some(&byte))
        .then_some(at + 1)
        .ok_or(NotJson(at))
}

/// The strings that are elements of the array which begins at `start`, as ranges of the text; empty if another value begins
/// there.
pub(crate) fn texts_of_array(text: &str, start: usize) -> Result<Vec<Range<usize>>, NotJson> {
    let bytes = text.as_bytes();
    let (mut at, mut depth, mut found) = (skip_blanks(text, start), 0_usize, Vec::new());
    if bytes.get(at) != Some(&b'[') {
        return Ok(found);
    }
    loop {
        match bytes.get(at) {
            Some(b'[' | b'{') => depth += 1,
            Some(b']' | b'}') => depth -= 1,
            Some(b'"') => {
                let end = skip_text(bytes, at)?;
                if depth == 1 {
                    found.push(at..end);
                }
                at = end;
                continue;
            }
            Some(_) => {}
            None => return Err(NotJson(at)),
        }
        at += 1;
        if depth == 0 {
            return Ok(found);
        }
    }
}

/// The end of the string that begins at `at`.
fn skip_text(bytes: &[u8], at: usize) -> Result<usize, NotJson> {
    let mut at = expect(bytes, at, b'"')?;
    loop {
        match bytes.get(at) {
            Some(b'"') => return Ok(at + 1),
            // an escaped quote does not end the text
            Some(b'\\') => at += 2,
            Some(_) => at += 1,
            None => return Err(NotJson(at.min(bytes.len()))),
        }
    }
}

/// The end of the value that begins at `at`. Brackets are counted, not matched by kind: the value is kept or removed whole,
/// and readers of the result check it.
fn skip_value(text: &str, start: usize) -> Result<usize, NotJson> {
    let bytes = text.as_bytes();
    let (mut at, mut depth) = (start, 0_usize);
    loop {
        match bytes.get(at) {
            Some(b'"') => at = skip_text(bytes, at)?,
            Some(b'{' | b'[') => {
                depth += 1;
                at += 1;
            }
            Some(b'}' | b']') if depth > 0 => {
                depth -= 1;
                at += 1;
            }
            Some(b',' | b':') if depth > 0 => at += 1,
            Some(b' ' | b'\t' | b'\n' | b'\r') if depth > 0 => at += 1,
            // numbers, `true`, `null`, and Python's `NaN`
            Some(b'-' | b'+' | b'.' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z') => {
                let word = bytes[at..].iter();
                at += word
                    .take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'+' | b'.'))
                    .count();
            }
            _ => return Err(NotJson(at.min(bytes.len()))),
        }
        if depth == 0 {
            return Ok(at);
        }
    }
}

/// Memory of the text that [`without_python_numbers`] makes; 0 if it makes none.
pub(crate) fn python_numbers_cost(text: &str) -> u64 {
    // `NaN` grows to `null`, and the text doubles as it grows
    if has_python_numbers(text) {
        3 * text.len() as u64
    } else {
        0
    }
}

fn has_python_numbers(text: &str) -> bool {
    text.contains("NaN") || text.contains("Infinity")
}

/// The text with the words `NaN` and `Infinity`, which Python writes and JSON does not have, replaced by `null`.
pub(crate) fn without_python_numbers(text: &str) -> Cow<'_, str> {
    if !has_python_numbers(text) {
        return Cow::Borrowed(text);
    }
    let bytes = text.as_bytes();
    let (mut out, mut kept, mut at) = (String::with_capacity(text.len()), 0, 0);
    while at < bytes.len() {
        if bytes[at] == b'"' {
            // a text without its last quote is an error of the parser
            at = skip_text(bytes, at).unwrap_or(bytes.len());
            continue;
        }
        let rest = &bytes[at..];
        let word = [&b"-Infinity"[..], b"Infinity", b"NaN"];
        if let Some(word) = word.into_iter().find(|word| rest.starts_with(word)) {
            out.push_str(&text[kept..at]);
            out.push_str("null");
            at += word.len();
            kept = at;
        } else {
            at += 1;
        }
    }
    out.push_str(&text[kept..]);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Result<Vec<(String, String)>, NotJson> {
        JsonMembers::of(text, 0)
            .expect("an object")
            .map(|member| member.map(|m| (m.name.into_owned(), text[m.value].to_owned())))
            .collect()
    }

    #[test]
    fn members_are_found_with_their_values() {
        let text = r#" { "a" : 1e-05, "b":{"c":[1,"}",{}]} ,"\u0064":-Infinity, "e\"":"x\\" }"#;
        let found = names(text).unwrap();
        let expected = [
            ("a", "1e-05"),
            ("b", r#"{"c":[1,"}",{}]}"#),
            ("d", "-Infinity"),
            ("e\"", r#""x\\""#),
        ];
        assert_eq!(found, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
        assert_eq!(names("{}").unwrap(), []);
        assert!(JsonMembers::of("[1]", 0).is_none());
        assert!(JsonMembers::of("", 0).is_none());
    }

    #[test]
    fn damaged_texts_end_in_an_error() {
        let whole = r#"{"a": [1, {"b": "c\""}], "d": NaN}"#;
        assert!(names(whole).is_ok());
        for end in 1..whole.len() {
            assert!(names(&whole[..end]).is_err(), "{}", &whole[..end]);
        }
        for text in [
            "{a:1}",
            r#"{"a" 1}"#,
            r#"{"a":1 "b":2}"#,
            r#"{"a":}"#,
            r#"{"a":1,}"#,
            r#"{,"a":1}"#,
        ] {
            assert!(names(text).is_err(), "{text}");
        }
    }

    #[test]
    fn words_of_python_become_null() {
        let text = r#"{"a": [0.0, Infinity, -Infinity, NaN], "NaN": "Infinity"}"#;
        let expected = r#"{"a": [0.0, null, null, null], "NaN": "Infinity"}"#;
        assert_eq!(without_python_numbers(text), expected);
        assert!(matches!(without_python_numbers("[1]"), Cow::Borrowed(_)));
        assert_eq!(without_python_numbers("[NaN, \"NaN"), "[null, \"NaN");
    }
}
