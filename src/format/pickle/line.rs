//! Arguments that are text up to the end of a line: protocol 0, and GLOBAL.

use crate::error::{Error, Result};

use super::Machine;
use super::heap::Value;
use super::reader::Reader;

/// Longer lines are refused: nothing real comes near.
const MOST: usize = 1 << 20;

/// Takes a line, without its end.
pub(super) fn take(reader: &mut Reader<'_, '_>) -> Result<String> {
    let cursor = reader.settled();
    let what = "a line of the pickle";
    let mut need = 1;
    loop {
        let seen = cursor.peek(need, what)?;
        if let Some(len) = seen.iter().position(|&b| b == b'\n') {
            let line = std::str::from_utf8(&seen[..len]).map(str::to_owned);
            reader.take(len as u64 + 1, what)?;
            return line.map_err(|_| Error::malformed("a line that is not UTF-8"));
        }
        need = seen.len() + 1;
        if need > MOST {
            return Err(Error::malformed("a line without end"));
        }
    }
}

impl Machine<'_, '_> {
    /// A memo number in text form.
    pub(super) fn line_number(&mut self) -> Result<u32> {
        let line = take(&mut self.reader)?;
        line.parse()
            .map_err(|_| Error::malformed("a memo number that is not one"))
    }

    pub(super) fn float_line(&mut self) -> Result<()> {
        let line = take(&mut self.reader)?;
        let number = line
            .trim()
            .parse()
            .map_err(|_| Error::malformed("a number that is not one"))?;
        self.value(Value::Float(number))
    }

    /// Text with `\uXXXX` and `\UXXXXXXXX` in it.
    pub(super) fn unicode_line(&mut self) -> Result<()> {
        let line = take(&mut self.reader)?;
        let mut text = String::with_capacity(line.len());
        let mut rest = line.as_str();
        while let Some((before, after)) = rest.split_once('\\') {
            text.push_str(before);
            let digits = match after.as_bytes().first() {
                Some(b'u') => 4,
                Some(b'U') => 8,
                _ => {
                    text.push('\\');
                    rest = after;
                    continue;
                }
            };
            let code = after
                .get(1..=digits)
                .and_then(|hex| u32::from_str_radix(hex, 16).ok());
            let c = code
                .and_then(char::from_u32)
                .ok_or_else(|| Error::malformed("an escape that is no character"))?;
            text.push(c);
            rest = &after[1 + digits..];
        }
        text.push_str(rest);
        let span = self.heap.add_text(&text)?;
        self.value(Value::Text(span))
    }

    /// A Python 2 string as `repr` writes it.
    pub(super) fn string_line(&mut self) -> Result<()> {
        let line = take(&mut self.reader)?;
        let line = line.trim_end().as_bytes();
        let inner = match line {
            [b'\'', inner @ .., b'\''] | [b'"', inner @ .., b'"'] => inner,
            _ => return Err(Error::malformed("a string without quotes")),
        };
        let bytes =
            unescape(inner).ok_or_else(|| Error::malformed("a string with a broken escape"))?;
        let value = match std::str::from_utf8(&bytes) {
            Ok(text) => Value::Text(self.heap.add_text(text)?),
            Err(_) => Value::Bytes(self.heap.add_bytes(&bytes)?),
        };
        self.value(value)
    }
}

/// Undoes the escapes that `repr` of a byte string writes.
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
            _ => return None,
        });
    }
    Some(out)
}
