//! Arguments that are lines of text: arguments of the opcodes of protocol 0, and of GLOBAL and INST.

use crate::base::error::{Error, Result};
use crate::read::catalog::quote;

use super::Machine;
use super::reader::OpcodeReader;
use super::value_heap::PickleValue;

/// Longest line that is read, in bytes. A line is searched for its end before it is charged, so it must be bounded; names
/// of globals and numbers are a few hundred bytes at most.
const LINE_MAX: usize = 1 << 20;

/// Longer lines are charged: no name and no number of a real file is as long.
const NAME_MAX: usize = 4 << 10;

/// Copies of a line: itself, with another one as the name of a global, and without its escapes.
const COPIES: u64 = 3;

/// Reads a line, and returns it without the newline.
pub(super) fn take_line(reader: &mut OpcodeReader<'_, '_>) -> Result<String> {
    let budget = reader.budget();
    let cursor = reader.sync_cursor();
    let what = "a line of the pickle";
    let mut need = 1;
    loop {
        let seen = cursor.peek(need, what)?;
        if let Some(len) = seen.iter().position(|&b| b == b'\n') {
            if len > NAME_MAX {
                budget.memory(COPIES * len as u64, what)?;
            }
            let line = std::str::from_utf8(&seen[..len]).map(str::to_owned);
            // the newline is consumed with the line
            reader.take(len as u64 + 1, what)?;
            return line.map_err(|_| Error::malformed("a line of the pickle is not valid UTF-8"));
        }
        // one byte more than is buffered makes the cursor read another window
        need = seen.len() + 1;
        // before more is read: a file without a newline ends here
        if need > LINE_MAX {
            return Err(Error::malformed(
                "a line of the pickle is longer than 1 MiB",
            ));
        }
    }
}

impl Machine<'_, '_> {
    /// The number of a memo entry as a line of text, for PUT and GET.
    pub(super) fn line_number(&mut self) -> Result<u32> {
        let line = take_line(&mut self.reader)?;
        line.parse()
            .map_err(|_| Error::malformed(format!("{} is not a memo index", quote(&line))))
    }

    pub(super) fn float_line(&mut self) -> Result<()> {
        let line = take_line(&mut self.reader)?;
        let number = line
            .trim()
            .parse()
            .map_err(|_| Error::malformed(format!("{} is not a number", quote(line.trim()))))?;
        self.push_value(PickleValue::Float(number))
    }

    /// UNICODE: text in the encoding `raw-unicode-escape`, with the escapes `\uXXXX` and `\UXXXXXXXX`.
    pub(super) fn unicode_line(&mut self) -> Result<()> {
        let line = take_line(&mut self.reader)?;
        let mut text = String::with_capacity(line.len());
        let mut rest = line.as_str();
        while let Some((before, after)) = rest.split_once('\\') {
            text.push_str(before);
            let digits = match after.as_bytes().first() {
                Some(b'u') => 4,
                Some(b'U') => 8,
                _ => {
                    // in this encoding, any other backslash stands for itself
                    text.push('\\');
                    rest = after;
                    continue;
                }
            };
            let code = after
                .get(1..=digits)
                .and_then(|hex| u32::from_str_radix(hex, 16).ok());
            let c = code.and_then(char::from_u32).ok_or_else(|| {
                Error::malformed("an escape sequence of a string is not a valid character")
            })?;
            text.push(c);
            rest = &after[1 + digits..];
        }
        text.push_str(rest);
        let span = self.heap.add_text(&text)?;
        self.push_value(PickleValue::Text(span))
    }

    /// STRING: a byte string of Python 2 as `repr` writes it.
    pub(super) fn string_line(&mut self) -> Result<()> {
        let line = take_line(&mut self.reader)?;
        let line = line.trim_end().as_bytes();
        let inner = match line {
            [b'\'', inner @ .., b'\''] | [b'"', inner @ .., b'"'] => inner,
            _ => return Err(Error::malformed("the string is not quoted")),
        };
        let bytes = unescape(inner)
            .ok_or_else(|| Error::malformed("invalid escape sequence in a string"))?;
        // a `str` of Python 2 holds text or bytes
        let value = match std::str::from_utf8(&bytes) {
            Ok(text) => PickleValue::Text(self.heap.add_text(text)?),
            Err(_) => PickleValue::Bytes(self.heap.add_bytes(&bytes)?),
        };
        self.push_value(value)
    }
}

/// Decodes the escapes that `repr` writes in a byte string; `None` if one is invalid.
fn unescape(mut inner: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(inner.len());
    while let Some((&first, rest)) = inner.split_first() {
        inner = rest;
        if first != b'\\' {
            out.push(first);
            continue;
        }
        let (&escape, rest) = inner.split_first()?;
        inner = rest;
        out.push(match escape {
            b'\\' | b'\'' | b'"' => escape,
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'x' => {
                let (hex, rest) = inner.split_at_checked(2)?;
                inner = rest;
                u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()?
            }
            // `repr` writes no other escapes, not even octal ones
            _ => return None,
        });
    }
    Some(out)
}
