//! The values of keys, with their types.

use crate::base::error::{Error, Result};
use crate::base::quote::quote;

/// The type of a value in a GGUF: of a key, or of the elements of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GgufType {
    /// Unsigned, 8 bits.
    U8,
    /// Signed, 8 bits.
    I8,
    /// Unsigned, 16 bits.
    U16,
    /// Signed, 16 bits.
    I16,
    /// Unsigned, 32 bits.
    U32,
    /// Signed, 32 bits.
    I32,
    /// A float of 32 bits.
    F32,
    /// True or false.
    Bool,
    /// A text.
    Text,
    /// An array; elements have a type of their own.
    Array,
    /// Unsigned, 64 bits.
    U64,
    /// Signed, 64 bits.
    I64,
    /// A float of 64 bits.
    F64,
}

impl GgufType {
    /// In the order of their numbers in files.
    const ALL: [(Self, &'static str); 13] = [
        (Self::U8, "u8"),
        (Self::I8, "i8"),
        (Self::U16, "u16"),
        (Self::I16, "i16"),
        (Self::U32, "u32"),
        (Self::I32, "i32"),
        (Self::F32, "f32"),
        (Self::Bool, "bool"),
        (Self::Text, "str"),
        (Self::Array, "array"),
        (Self::U64, "u64"),
        (Self::I64, "i64"),
        (Self::F64, "f64"),
    ];

    /// The type of this name: `u8` to `i64`, `f32`, `f64`, `bool`, `str`.
    pub fn from_name(name: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(_, known)| *known == name)?;
        (found.0 != Self::Array).then_some(found.0)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    pub(crate) fn from_number(number: u32) -> Option<Self> {
        let number = usize::try_from(number).ok()?;
        Self::ALL.get(number).map(|(found, _)| *found)
    }

    pub(crate) fn number(self) -> u32 {
        self as u32
    }
}

/// A value with its type, as it is written: little endian.
#[derive(Clone, Debug, PartialEq)]
pub struct GgufValue {
    kind: GgufType,
    /// The type of the elements of an array.
    element: Option<GgufType>,
    bytes: Vec<u8>,
}

impl GgufValue {
    /// A value of these bytes, which its type and element type describe.
    pub(crate) fn stored(kind: GgufType, element: Option<GgufType>, bytes: Vec<u8>) -> Self {
        Self {
            kind,
            element,
            bytes,
        }
    }

    /// Its type.
    pub(crate) fn kind(&self) -> GgufType {
        self.kind
    }

    /// A number or a text.
    ///
    /// # Errors
    /// If the text is no value of the type.
    pub fn parse(kind: GgufType, text: &str) -> Result<Self> {
        let mut bytes = Vec::new();
        push(kind, text, &mut bytes)?;
        Ok(Self::stored(kind, None, bytes))
    }

    /// An array, whose elements are given as a JSON array.
    ///
    /// ```
    /// use anamnesis::sink::{GgufType, GgufValue};
    ///
    /// assert!(GgufValue::parse_array(GgufType::I32, "[1, -2, 3]").is_ok());
    /// assert!(GgufValue::parse_array(GgufType::U8, "[1, -2, 3]").is_err());
    /// ```
    ///
    /// # Errors
    /// If the text is no such array, or an element is no value of the type.
    pub fn parse_array(element: GgufType, text: &str) -> Result<Self> {
        let items: Vec<serde_json::Value> = serde_json::from_str(text)
            .map_err(|_| Error::invalid_argument(format!("{} is no JSON array", quote(text))))?;
        let mut bytes = array_head(element, items.len());
        for item in items {
            let text = match &item {
                serde_json::Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            push(element, &text, &mut bytes)?;
        }
        Ok(Self::stored(GgufType::Array, Some(element), bytes))
    }

    /// A value of a type that is given by name: one of [`GgufType`], or `[TYPE]` for an array, whose elements are given as a JSON
    /// array. `None` if there is no type of this name.
    ///
    /// ```
    /// use anamnesis::sink::{GgufType, GgufValue};
    ///
    /// let one = GgufValue::parse_named("u8", "7").expect("a type");
    /// assert_eq!(one?, GgufValue::parse(GgufType::U8, "7")?);
    /// assert!(GgufValue::parse_named("[str]", r#"["a"]"#).is_some_and(|list| list.is_ok()));
    /// assert!(GgufValue::parse_named("word", "7").is_none());
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    pub fn parse_named(name: &str, text: &str) -> Option<Result<Self>> {
        let element = name
            .strip_prefix('[')
            .and_then(|name| name.strip_suffix(']'));
        Some(match element {
            Some(element) => Self::parse_array(GgufType::from_name(element)?, text),
            None => Self::parse(GgufType::from_name(name)?, text),
        })
    }

    /// A value of the same type as this one.
    pub(crate) fn parse_alike(&self, text: &str) -> Result<Self> {
        match (self.kind, self.element) {
            (GgufType::Array, Some(element)) => Self::parse_array(element, text),
            (kind, _) => Self::parse(kind, text),
        }
    }

    /// Its number, if it is a `u32`.
    pub(crate) fn as_u32(&self) -> Option<u32> {
        let is_u32 = self.kind == GgufType::U32;
        let bytes = is_u32.then_some(&*self.bytes)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }

    /// Whether both have one type.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        (self.kind, self.element) == (other.kind, other.element)
    }

    /// The name of its type, which [`parse_named`](Self::parse_named) reads.
    pub(crate) fn type_name(&self) -> String {
        match self.element {
            Some(element) => format!("[{}]", element.name()),
            None => self.kind.name().to_owned(),
        }
    }

    /// The value without its type: little endian.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// A text.
    pub(crate) fn text(text: &str) -> Self {
        let mut bytes = Vec::with_capacity(8 + text.len());
        push_text(text, &mut bytes);
        Self::stored(GgufType::Text, None, bytes)
    }

    /// An unsigned number of 32 bits, as llama.cpp's counts are.
    pub(crate) fn u32(number: u32) -> Self {
        Self::stored(GgufType::U32, None, number.to_le_bytes().to_vec())
    }

    /// A signed number of 32 bits.
    pub(crate) fn i32(number: i32) -> Self {
        Self::stored(GgufType::I32, None, number.to_le_bytes().to_vec())
    }

    /// A float of 32 bits.
    pub(crate) fn f32(number: f32) -> Self {
        Self::stored(GgufType::F32, None, number.to_le_bytes().to_vec())
    }

    /// True or false.
    pub(crate) fn flag(flag: bool) -> Self {
        Self::stored(GgufType::Bool, None, vec![flag.into()])
    }

    /// An array of texts.
    pub(crate) fn texts<'t>(texts: impl ExactSizeIterator<Item = &'t str>) -> Self {
        let mut bytes = array_head(GgufType::Text, texts.len());
        for text in texts {
            push_text(text, &mut bytes);
        }
        Self::stored(GgufType::Array, Some(GgufType::Text), bytes)
    }

    /// An array of floats.
    pub(crate) fn floats(numbers: &[f32]) -> Self {
        let mut bytes = array_head(GgufType::F32, numbers.len());
        bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        Self::stored(GgufType::Array, Some(GgufType::F32), bytes)
    }

    /// An array of flags.
    pub(crate) fn flags(flags: &[bool]) -> Self {
        let mut bytes = array_head(GgufType::Bool, flags.len());
        bytes.extend(flags.iter().map(|flag| u8::from(*flag)));
        Self::stored(GgufType::Array, Some(GgufType::Bool), bytes)
    }

    /// An array of signed numbers.
    pub(crate) fn integers(numbers: &[i32]) -> Self {
        let mut bytes = array_head(GgufType::I32, numbers.len());
        bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        Self::stored(GgufType::Array, Some(GgufType::I32), bytes)
    }

    /// An array of bytes.
    pub(crate) fn octets(octets: &[u8]) -> Self {
        let mut bytes = array_head(GgufType::U8, octets.len());
        bytes.extend(octets);
        Self::stored(GgufType::Array, Some(GgufType::U8), bytes)
    }

    /// Adds type and value.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.kind.number().to_le_bytes());
        out.extend(&self.bytes);
    }
}

/// The type of the elements of an array, and their number.
fn array_head(element: GgufType, len: usize) -> Vec<u8> {
    let mut bytes = element.number().to_le_bytes().to_vec();
    bytes.extend((len as u64).to_le_bytes());
    bytes
}

/// Adds the bytes of a value that is given as text.
fn push(kind: GgufType, text: &str, out: &mut Vec<u8>) -> Result<()> {
    macro_rules! number {
        ($type:ty) => {
            out.extend(
                text.parse::<$type>()
                    .map_err(|_| {
                        Error::invalid_argument(format!(
                            "{} is no value of the type {}",
                            quote(text),
                            kind.name()
                        ))
                    })?
                    .to_le_bytes(),
            )
        };
    }
    match kind {
        GgufType::U8 => number!(u8),
        GgufType::I8 => number!(i8),
        GgufType::U16 => number!(u16),
        GgufType::I16 => number!(i16),
        GgufType::U32 => number!(u32),
        GgufType::I32 => number!(i32),
        GgufType::U64 => number!(u64),
        GgufType::I64 => number!(i64),
        GgufType::F32 => {
            number!(f32);
            check_finite(text, kind, text.parse().is_ok_and(f32::is_infinite))?;
        }
        GgufType::F64 => {
            number!(f64);
            check_finite(text, kind, text.parse().is_ok_and(f64::is_infinite))?;
        }
        GgufType::Bool => match text {
            "true" | "1" => out.push(1),
            "false" | "0" => out.push(0),
            _ => {
                let what = format!("{} is neither true nor false", quote(text));
                return Err(Error::invalid_argument(what));
            }
        },
        GgufType::Text => push_text(text, out),
        GgufType::Array => {
            let what = "an array is given with the type of its elements";
            return Err(Error::invalid_argument(what));
        }
    }
    Ok(())
}

/// Refuses digits that have become infinity. `inf` is a number that is written as such.
fn check_finite(text: &str, kind: GgufType, is_infinite: bool) -> Result<()> {
    match is_infinite && text.contains(|c: char| c.is_ascii_digit()) {
        true => Err(Error::invalid_argument(format!(
            "{} is larger than any {}",
            quote(text),
            kind.name()
        ))),
        false => Ok(()),
    }
}

/// Adds the length of a text and the text.
pub(crate) fn push_text(text: &str, out: &mut Vec<u8>) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}
