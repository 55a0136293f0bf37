//! A parser for the Python literals of a header: strings, integers, truth values, tuples and lists inside one dict.
//!
//! Nothing is evaluated: an operator, a call or a name is an error, with its offset.

use std::fmt;
use std::ops::Range;

use super::header_error::{HeaderError, Result};

/// Largest depth of nested brackets, which bounds the recursion. A structured dtype takes two per level.
const DEPTH: u32 = 40;

/// A parsed literal.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::read::format) enum Literal {
    Text(String),
    Number(u64),
    Bool(bool),
    None,
    Tuple(Vec<Literal>),
    List(Vec<Literal>),
}

/// The literal in the form of Python 3, which `ast.literal_eval` reads: headers of Python 2 have numbers as `10L`.
impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // recursion is bounded by the depth that the parser allows
        let items = |f: &mut fmt::Formatter<'_>, items: &[Literal]| {
            items.iter().enumerate().try_for_each(|(i, item)| {
                let comma = if i > 0 { ", " } else { "" };
                write!(f, "{comma}{item}")
            })
        };
        match self {
            Self::Text(text) => {
                f.write_str("'")?;
                for c in text.chars() {
                    match c {
                        '\\' | '\'' => write!(f, "\\{c}")?,
                        c if c.is_control() => write!(f, "\\x{:02x}", u32::from(c))?,
                        c => write!(f, "{c}")?,
                    }
                }
                f.write_str("'")
            }
            Self::Number(n) => write!(f, "{n}"),
            Self::Bool(b) => f.write_str(if *b { "True" } else { "False" }),
            Self::None => f.write_str("None"),
            Self::Tuple(parts) => {
                f.write_str("(")?;
                items(f, parts)?;
                f.write_str(if parts.len() == 1 { ",)" } else { ")" })
            }
            Self::List(parts) => {
                f.write_str("[")?;
                items(f, parts)?;
                f.write_str("]")
            }
        }
    }
}

/// One `key: value` of a dict, with the byte range of the value in the text.
#[derive(Debug)]
pub(super) struct DictEntry {
    pub(super) key: String,
    pub(super) value: Literal,
    pub(super) span: Range<usize>,
}

/// Parses a text that is one dict with text keys, followed by blanks only (numpy pads the header with spaces).
pub(super) fn dict(text: &str) -> Result<Vec<DictEntry>> {
    let mut parser = Parser { text, pos: 0 };
    parser.blanks();
    if !parser.eat(b'{') {
        return Err(parser.error("the header is not a dict"));
    }
    let mut entries = Vec::new();
    loop {
        parser.blanks();
        if parser.eat(b'}') {
            break;
        }
        let at = parser.pos;
        // keys are parsed at depth 1 like values, so that brackets in a key cannot recurse further
        let Literal::Text(key) = parser.value(1)? else {
            return Err(HeaderError::malformed(
                at,
                "a key of the header is not a string",
            ));
        };
        parser.blanks();
        if !parser.eat(b':') {
            return Err(parser.error("expected `:` after a key"));
        }
        parser.blanks();
        let start = parser.pos;
        let value = parser.value(1)?;
        entries.push(DictEntry {
            key,
            value,
            span: start..parser.pos,
        });
        parser.blanks();
        // a trailing comma is allowed: numpy writes one
        if !parser.eat(b',') && parser.peek() != Some(b'}') {
            return Err(parser.error("expected `,` or `}`"));
        }
    }
    parser.blanks();
    if parser.pos < text.len() {
        return Err(parser.error("unexpected text after the dict"));
    }
    Ok(entries)
}

struct Parser<'t> {
    text: &'t str,
    /// Byte offset, always at a character boundary.
    pos: usize,
}

impl<'t> Parser<'t> {
    fn error(&self, what: &str) -> HeaderError {
        HeaderError::malformed(self.pos, what)
    }

    fn rest(&self) -> &'t str {
        &self.text[self.pos..]
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.pos).copied()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.pos += usize::from(found);
        found
    }

    /// Advances over the ASCII bytes that satisfy `is`, and returns them.
    fn run(&mut self, is: fn(&u8) -> bool) -> &'t str {
        let n = self
            .rest()
            .bytes()
            .take_while(|b| b.is_ascii() && is(b))
            .count();
        let run = &self.rest()[..n];
        self.pos += n;
        run
    }

    fn blanks(&mut self) {
        self.run(|b| matches!(b, b' ' | b'\t' | b'\n' | b'\r' | 0x0c));
    }

    /// Parses a value at nesting `depth`. Together with `items`, this is the only recursion.
    fn value(&mut self, depth: u32) -> Result<Literal> {
        match self.peek() {
            Some(quote @ (b'\'' | b'"')) => self.string(quote).map(Literal::Text),
            Some(b'0'..=b'9') => self.number(),
            Some(b'-') => Err(self.error("a negative number is not allowed")),
            Some(b'(') => {
                let (mut items, comma) = self.items(b')', depth)?;
                // in Python, `(3)` is the number 3, and `(3,)` is a tuple
                Ok(if items.len() == 1 && !comma {
                    items.remove(0)
                } else {
                    Literal::Tuple(items)
                })
            }
            Some(b'[') => Ok(Literal::List(self.items(b']', depth)?.0)),
            Some(b'A'..=b'Z' | b'a'..=b'z' | b'_') => {
                let at = self.pos;
                match self.run(|b| b.is_ascii_alphanumeric() || *b == b'_') {
                    // the three names that `ast.literal_eval` accepts, which numpy reads headers with
                    "True" => Ok(Literal::Bool(true)),
                    "False" => Ok(Literal::Bool(false)),
                    "None" => Ok(Literal::None),
                    _ => Err(HeaderError::malformed(
                        at,
                        "found a name; only literals are allowed, nothing is evaluated",
                    )),
                }
            }
            Some(_) => Err(self.error("not a Python literal")),
            None => Err(self.error("the header ends inside the dict")),
        }
    }

    /// Parses the items of a bracket up to `close`, and returns whether a comma occurred.
    fn items(&mut self, close: u8, depth: u32) -> Result<(Vec<Literal>, bool)> {
        if depth >= DEPTH {
            return Err(self.error("nested too deeply for a dtype or a shape"));
        }
        self.pos += 1;
        let (mut items, mut comma) = (Vec::new(), false);
        loop {
            self.blanks();
            if self.eat(close) {
                return Ok((items, comma));
            }
            items.push(self.value(depth + 1)?);
            self.blanks();
            if self.eat(b',') {
                comma = true;
            } else if self.peek() != Some(close) {
                return Err(self.error(if self.peek().is_none() {
                    "the header ends inside a bracket"
                } else {
                    "expected `,` or a closing bracket"
                }));
            }
        }
    }

    fn number(&mut self) -> Result<Literal> {
        let at = self.pos;
        let digits = self.run(u8::is_ascii_digit);
        // `010` is 8 in Python 2 and an error in Python 3
        if digits.len() > 1 && digits.starts_with('0') {
            return Err(HeaderError::malformed(at, "a number has leading zeros"));
        }
        let number = digits
            .parse()
            .map_err(|_| HeaderError::malformed(at, "a number exceeds 64 bits"))?;
        if !self.eat(b'L') {
            self.eat(b'l'); // Python 2 wrote its long integers `10L`
        }
        match self.peek() {
            Some(b'.' | b'e' | b'E' | b'j' | b'x' | b'o' | b'b' | b'_') => {
                Err(HeaderError::malformed(at, "not an integer literal"))
            }
            _ => Ok(Literal::Number(number)),
        }
    }

    fn string(&mut self, quote: u8) -> Result<String> {
        let start = self.pos;
        self.pos += 1;
        let mut out = String::new();
        loop {
            let Some(c) = self.rest().chars().next() else {
                return Err(HeaderError::malformed(start, "unterminated string"));
            };
            self.pos += c.len_utf8();
            match c {
                // a raw newline ends a string in Python too
                '\n' | '\r' | '\0' => {
                    return Err(HeaderError::malformed(start, "unterminated string"));
                }
                '\\' => self.escape(&mut out)?,
                c if c == char::from(quote) => return Ok(out),
                c => out.push(c),
            }
        }
    }

    fn escape(&mut self, out: &mut String) -> Result<()> {
        let Some(c) = self.rest().chars().next() else {
            return Err(self.error("unterminated string"));
        };
        if c.is_digit(8) {
            let digits = self
                .rest()
                .bytes()
                .take(3)
                .take_while(|b| (b'0'..=b'7').contains(b))
                .count();
            return self.code(digits, 8, out);
        }
        self.pos += c.len_utf8();
        match c {
            '\\' | '\'' | '"' => out.push(c),
            'n' => out.push('\n'),
            'r' => out.push('\r'),
            't' => out.push('\t'),
            'a' => out.push('\x07'),
            'b' => out.push('\x08'),
            'f' => out.push('\x0c'),
            'v' => out.push('\x0b'),
            // a backslash before a newline continues the string
            '\n' => {}
            'x' => return self.code(2, 16, out),
            'u' => return self.code(4, 16, out),
            'U' => return self.code(8, 16, out),
            // Python keeps unknown escapes as text; numpy never writes one
            _ => return Err(self.error("unsupported escape sequence")),
        }
        Ok(())
    }

    /// Appends the character whose code is written by the next `n` digits.
    fn code(&mut self, n: usize, radix: u32, out: &mut String) -> Result<()> {
        let digits = self
            .rest()
            .get(..n)
            // `from_str_radix` alone would accept a sign
            .filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        let number = digits.and_then(|d| u32::from_str_radix(d, radix).ok());
        let c = number
            .and_then(char::from_u32)
            .ok_or_else(|| self.error("escape sequence is not a valid character"))?;
        self.pos += n;
        out.push(c);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
