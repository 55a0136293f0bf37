//! The opcodes for integers, which can have any length in Python.

use crate::base::error::{Error, Result};
use crate::read::catalog::quote;

use super::value_heap::PickleValue;
use super::{Machine, text_arguments};

impl Machine<'_, '_> {
    /// LONG1 and LONG4: `len` bytes of two's complement, least significant first. An integer beyond 64 bits is kept as
    /// text: in decimal up to 128 bits, then in hexadecimal, because conversion to decimal takes quadratic time.
    pub(super) fn long(&mut self, len: u64) -> Result<()> {
        // two hexadecimal digits per byte; a length beyond the end is refused by `take` below without being charged
        if len > 16 && len <= self.reader.remaining() {
            self.reader
                .budget()
                .memory(len.saturating_mul(2), "a number of the pickle")?;
        }
        let bytes = self.reader.take(len, "a number of the pickle")?;
        let value = if bytes.len() <= 16 {
            let negative = bytes.last().is_some_and(|b| b & 0x80 != 0);
            // a shorter number has its sign in its last byte
            let mut wide = [if negative { 0xff } else { 0 }; 16];
            wide[..bytes.len()].copy_from_slice(bytes);
            let number = i128::from_le_bytes(wide);
            match i64::try_from(number) {
                Ok(number) => PickleValue::Int(number),
                Err(_) => PickleValue::BigInt(self.heap.add_text(&number.to_string())?),
            }
        } else {
            let digit = |nibble: u8| {
                char::from_digit(u32::from(nibble), 16).expect("a nibble is a hexadecimal digit")
            };
            let mut text = String::with_capacity(2 + bytes.len() * 2);
            text.push_str("0x");
            text.extend(
                bytes
                    .iter()
                    .rev()
                    .flat_map(|b| [digit(b >> 4), digit(b & 15)]),
            );
            PickleValue::BigInt(self.heap.add_text(&text)?)
        };
        self.push_value(value)
    }

    /// INT and LONG: an integer as a line of text. Protocol 0 writes truth values as `00` and `01`.
    pub(super) fn int_line(&mut self) -> Result<()> {
        let line = text_arguments::take_line(&mut self.reader)?;
        // Python 2 wrote its long integers as `10L`
        let digits = line.strip_suffix('L').unwrap_or(&line);
        let value = match digits {
            "00" => PickleValue::Bool(false),
            "01" => PickleValue::Bool(true),
            _ => match digits.parse() {
                Ok(number) => PickleValue::Int(number),
                Err(_) if is_whole(digits) => PickleValue::BigInt(self.heap.add_text(digits)?),
                Err(_) => {
                    return Err(Error::malformed(format!(
                        "{} is not an integer",
                        quote(digits)
                    )));
                }
            },
        };
        self.push_value(value)
    }
}

/// Whether a text is an optional minus sign and decimal digits.
fn is_whole(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}
