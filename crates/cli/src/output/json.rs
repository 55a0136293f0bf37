//! JSON output: escaping, and the document of `inspect --json`, which is written checkpoint by checkpoint so that memory
//! does not grow with their number.

use std::io::{self, Write};

use anamnesis::Summary;
use anamnesis::quote::is_hidden;
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};
use serde_json::{Value, json};

use crate::args::InspectArgs;
use crate::failure::Failure;

/// Version of the JSON documents of all verbs. It changes when a field is removed or changes its meaning.
pub(crate) const VERSION: u32 = 1;

/// A started document of `inspect --json`.
pub(crate) struct InspectDocument {
    checkpoints: usize,
    failures: Vec<Failure>,
}

impl InspectDocument {
    pub(crate) fn start(args: &InspectArgs, out: &mut impl Write) -> io::Result<Self> {
        write!(out, "{{\"version\":{VERSION},")?;
        if !args.filter.is_empty() {
            out.write_all(b"\"filter\":")?;
            write_value(
                &args
                    .filter
                    .iter()
                    .map(|f| f.glob().glob())
                    .collect::<Vec<_>>(),
                out,
            )?;
            out.write_all(b",")?;
        }
        out.write_all(b"\"checkpoints\":[")?;
        Ok(Self {
            checkpoints: 0,
            failures: Vec::new(),
        })
    }

    pub(crate) fn add_checkpoint(
        &mut self,
        summary: &Summary,
        out: &mut impl Write,
    ) -> io::Result<()> {
        if self.checkpoints > 0 {
            out.write_all(b",")?;
        }
        self.checkpoints += 1;
        write_value(summary, out)
    }

    pub(crate) fn add_failure(&mut self, failure: Failure) {
        self.failures.push(failure);
    }

    /// `requests`: the counts of `--stats`.
    pub(crate) fn finish(self, requests: Option<Value>, out: &mut impl Write) -> io::Result<()> {
        out.write_all(b"]")?;
        if let Some(requests) = requests {
            out.write_all(b",\"requests\":")?;
            write_value(&requests, out)?;
        }
        if let Some(first) = self.failures.first() {
            // the first failure alone, for scripts that expect one; all of them follow
            out.write_all(b",\"error\":")?;
            write_value(first, out)?;
            out.write_all(b",\"errors\":")?;
            write_value(&self.failures, out)?;
        }
        out.write_all(b"}\n")
    }
}

/// Writes one document and a line feed.
pub(crate) fn write_line(document: &impl Serialize, out: &mut impl Write) -> io::Result<()> {
    write_value(document, out)?;
    out.write_all(b"\n")
}

/// Writes the document of a verb that failed, at once: the message on standard error follows it.
pub(crate) fn write_failure(failure: &Failure, out: &mut impl Write) -> io::Result<()> {
    write_line(&json!({"version": VERSION, "error": failure}), out)?;
    out.flush()
}

/// Writes a value.
pub(crate) fn write_value(value: &impl Serialize, out: &mut impl Write) -> io::Result<()> {
    let mut serializer = Serializer::with_formatter(out, EscapeHidden);
    value.serialize(&mut serializer).map_err(io::Error::from)
}

/// Compact JSON whose strings have every hidden character as `\uXXXX`.
///
/// serde_json escapes U+0000 to U+001F only. DEL, C1 controls and changes of writing direction act on the terminal that
/// the output is shown on, and invisible characters make two names look alike.
struct EscapeHidden;

impl Formatter for EscapeHidden {
    fn write_string_fragment<W: Write + ?Sized>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        // most names are printable ASCII
        if fragment.bytes().all(|b| (0x20..0x7f).contains(&b)) {
            return writer.write_all(fragment.as_bytes());
        }
        let mut start = 0;
        for (at, c) in fragment.char_indices().filter(|(_, c)| is_hidden(*c)) {
            writer.write_all(&fragment.as_bytes()[start..at])?;
            // JSON writes a character beyond U+FFFF as a pair of surrogates
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
            start = at + c.len_utf8();
        }
        writer.write_all(&fragment.as_bytes()[start..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_are_escaped_and_read_back() {
        let text = "a\u{7f}b\u{9b}2J\u{202e}c\u{200b}\u{e0041}\u{1b}\"\\é数";
        let mut out = Vec::new();
        write_value(&json!({ text: [text] }), &mut out).unwrap();
        let written = String::from_utf8(out).unwrap();
        assert!(!written.chars().any(is_hidden), "{written}");
        assert!(
            written.contains("\\udb40\\udc41") && written.contains("é数"),
            "{written}"
        );
        let read: Value = serde_json::from_str(&written).unwrap();
        assert_eq!(read, json!({ text: [text] }));
    }
}
