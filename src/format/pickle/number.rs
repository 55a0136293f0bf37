//! Whole numbers of any length.

use crate::error::{Error, Result};

use super::heap::Value;
use super::{Machine, line};

impl Machine<'_, '_> {
    /// `len` bytes of two's complement, least significant first. Beyond 64 bits the number is kept
    /// as text: decimal up to 128, then hexadecimal (a decimal one takes quadratic time).
    pub(super) fn long(&mut self, len: u64) -> Result<()> {
        if len > 16 && len <= self.reader.remaining() {
            self.reader
                .budget()
                .memory(len.saturating_mul(2), "a number of the pickle")?;
        }
        let bytes = self.reader.take(len, "a number of the pickle")?;
        let value = if bytes.len() <= 16 {
            let negative = bytes.last().is_some_and(|b| b & 0x80 != 0);
            let mut wide = [if negative { 0xff } else { 0 }; 16];
            wide[..bytes.len()].copy_from_slice(bytes);
            let number = i128::from_le_bytes(wide);
            match i64::try_from(number) {
                Ok(number) => Value::Int(number),
                Err(_) => Value::Big(self.heap.add_text(&number.to_string())?),
            }
        } else {
            let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).expect("four bits");
            let mut text = String::with_capacity(2 + bytes.len() * 2);
            text.push_str("0x");
            text.extend(
                bytes
                    .iter()
                    .rev()
                    .flat_map(|b| [digit(b >> 4), digit(b & 15)]),
            );
            Value::Big(self.heap.add_text(&text)?)
        };
        self.value(value)
    }

    /// A number in text form; `00` and `01` are how protocol 0 writes truth values.
    pub(super) fn int_line(&mut self) -> Result<()> {
        let line = line::take(&mut self.reader)?;
        let digits = line.strip_suffix('L').unwrap_or(&line);
        let value = match digits {
            "00" => Value::Bool(false),
            "01" => Value::Bool(true),
            _ => match digits.parse() {
                Ok(number) => Value::Int(number),
                Err(_) if is_whole(digits) => Value::Big(self.heap.add_text(digits)?),
                Err(_) => return Err(Error::malformed("a number that is not one")),
            },
        };
        self.value(value)
    }
}

fn is_whole(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}
