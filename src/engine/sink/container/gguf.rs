//! The form of a GGUF file: keys, descriptions of tensors, and their bytes, aligned.
//!
//! Source: `docs/gguf.md` of ggml; `gguf.cpp` and `llama-gguf-split` of llama.cpp. The first of several files has
//! the keys, and each has its number and the counts of files and of tensors.

use crate::base::error::{Error, Remedy, Result};
use crate::plan::TensorSpec;
use crate::read::catalog::quote;
use crate::read::format::gguf::{
    ALIGNMENT, ALIGNMENT_DEFAULT, NAME_LEN_MAX, PADDING, SPLIT_KEYS, tensor_type,
};

use super::{FileContent, FileForm, FormOptions, HeaderValue, ROOM, ROOM_UNIT, no_dtype};

/// Dimensions that ggml's tensors can have (`GGML_MAX_DIMS`).
const MAX_DIMS: usize = 4;
/// Bytes of a tensor's name, with the zero at its end (`GGML_MAX_NAME`).
pub(crate) const MAX_NAME: usize = 64;
const VERSION: u32 = 3;

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
        let mut bytes = element.number().to_le_bytes().to_vec();
        bytes.extend((items.len() as u64).to_le_bytes());
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

    /// The new value of a key that has this one: a key keeps its type.
    ///
    /// # Errors
    /// If the new value has another type, or is a text that is no value of the type.
    pub(crate) fn replaced_by(&self, key: &str, new: &HeaderValue) -> Result<Self> {
        match new {
            HeaderValue::Text(text) => {
                let value = self.parse_alike(text);
                value.map_err(|e| e.context(&format!("key {}", quote(key))))
            }
            HeaderValue::Gguf(new) if (new.kind, new.element) == (self.kind, self.element) => {
                Ok(new.clone())
            }
            HeaderValue::Gguf(new) => Err(Error::invalid_argument(format!(
                "the key {} has the type {}, and keeps it: {} is another one",
                quote(key),
                self.type_name(),
                new.type_name()
            ))),
        }
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

    pub(crate) fn text(text: &str) -> Self {
        let mut bytes = Vec::with_capacity(8 + text.len());
        push_text(text, &mut bytes);
        Self::stored(GgufType::Text, None, bytes)
    }

    /// Adds type and value.
    fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.kind.number().to_le_bytes());
        out.extend(&self.bytes);
    }
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

fn push_text(text: &str, out: &mut Vec<u8>) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

pub(super) fn check(output: &TensorSpec, _options: &FormOptions) -> Result<()> {
    let refused = |what: String, remedy| {
        let what = format!("tensor {}: {what}", quote(&output.name));
        Err(Error::unsupported(what).with_remedy(remedy))
    };
    if tensor_type(&output.encoding()).is_none() {
        return Err(no_dtype("GGUF", output));
    }
    if output.shape.len() > MAX_DIMS {
        let what = format!(
            "it has {} dimensions; a GGUF has tensors of at most {MAX_DIMS}",
            output.shape.len()
        );
        return refused(what, Remedy::LeaveOut);
    }
    if output.shape.contains(&0) {
        return refused(
            "it has no elements, and a GGUF has no such tensors".into(),
            Remedy::LeaveOut,
        );
    }
    if output.name.len() >= MAX_NAME {
        let what = format!(
            "its name has {} bytes; names in a GGUF have at most {}",
            output.name.len(),
            MAX_NAME - 1
        );
        return refused(what, Remedy::LeaveOutOrRename);
    }
    Ok(())
}

pub(super) fn lay_out(content: &FileContent<'_>) -> Result<FileForm> {
    let too_long = || Error::unsupported("the file takes more than 2⁶⁴ bytes");
    let alignment = match content.options.alignment {
        0 => ALIGNMENT_DEFAULT,
        alignment => alignment,
    };
    let (file, files) = content.file;
    let mut keys: Vec<(&str, GgufValue)> = Vec::new();
    let mut stated = alignment == ALIGNMENT_DEFAULT;
    if file == 0 {
        for (key, value) in content.metadata {
            if key == PADDING || SPLIT_KEYS.contains(&&**key) {
                continue;
            }
            let value = match value {
                _ if key == ALIGNMENT => {
                    stated = true;
                    aligned(alignment)
                }
                HeaderValue::Text(text) => GgufValue::text(text),
                HeaderValue::Gguf(value) => value.clone(),
            };
            keys.push((key, value));
        }
    }
    if let Some((key, _)) = keys.iter().find(|(key, _)| key.len() as u64 > NAME_LEN_MAX) {
        let what = format!(
            "the key {} of the metadata has {} bytes; keys in a GGUF have at most {NAME_LEN_MAX}",
            quote(key),
            key.len()
        );
        return Err(Error::invalid_argument(what));
    }
    if !stated {
        keys.push((ALIGNMENT, aligned(alignment)));
    }
    if files > 1 {
        keys.extend(split_keys(file, files, content.outputs.len())?);
    }
    let mut descriptions = Vec::new();
    let (mut start, mut placed, mut pads) = (0_u64, Vec::new(), Vec::new());
    for (number, output, nbytes) in content.each() {
        push_text(&output.name, &mut descriptions);
        let rank = u32::try_from(output.shape.len()).expect("checked before");
        descriptions.extend(rank.to_le_bytes());
        for size in output.shape.iter().rev() {
            descriptions.extend(size.to_le_bytes());
        }
        let kind = tensor_type(&output.encoding()).expect("checked before");
        descriptions.extend(kind.to_le_bytes());
        descriptions.extend(start.to_le_bytes());
        placed.push((number, start));
        let end = start.checked_add(nbytes).ok_or_else(too_long)?;
        start = end
            .checked_next_multiple_of(alignment.into())
            .ok_or_else(too_long)?;
        // also behind the last one: ggml reads the whole section
        pads.push((end, start - end));
    }
    let count = content.numbers.len() as u64;
    let mut head = header(&keys, count, &descriptions);
    if content.options.room {
        // the filler's own entry, empty
        let empty = 8 + PADDING.len() as u64 + 4 + 8;
        let unit = (ROOM_UNIT as u64).max(alignment.into());
        let base = head.len() as u64 + empty;
        let room = (base + ROOM as u64).next_multiple_of(unit) - base;
        let spaces = " ".repeat(usize::try_from(room).expect("less than the unit and the room"));
        keys.push((PADDING, GgufValue::text(&spaces)));
        head = header(&keys, count, &descriptions);
    }
    let data = (head.len() as u64).next_multiple_of(alignment.into());
    // a file without tensors has no data section
    if count > 0 {
        head.resize(usize::try_from(data).map_err(|_| too_long())?, 0);
    }
    let gap = |(at, len): (u64, u64)| (data + at, vec![0; usize::try_from(len).expect("padding")]);
    let pads = pads.into_iter().filter(|(_, len)| *len > 0);
    Ok(FileForm {
        nbytes: (head.len() as u64)
            .checked_add(start)
            .ok_or_else(too_long)?,
        head,
        outputs: placed
            .into_iter()
            .map(|(number, at)| (number, data + at))
            .collect(),
        tensor_bytes: content.tensor_bytes,
        gaps: pads.map(gap).collect(),
    })
}

fn aligned(alignment: u32) -> GgufValue {
    GgufValue::stored(GgufType::U32, None, alignment.to_le_bytes().to_vec())
}

/// The keys of a file among several.
fn split_keys(file: usize, files: usize, tensors: usize) -> Result<[(&'static str, GgufValue); 3]> {
    let many = |_| Error::unsupported(format!("{files} files; a split has at most 65535"));
    let short = |number: usize| u16::try_from(number).map_err(many);
    let tensors = i32::try_from(tensors)
        .map_err(|_| Error::unsupported(format!("{tensors} tensors are too many for a split")))?;
    let [no, count, total] = SPLIT_KEYS;
    let value = |kind, bytes: Vec<u8>| GgufValue::stored(kind, None, bytes);
    Ok([
        (
            no,
            value(GgufType::U16, short(file)?.to_le_bytes().to_vec()),
        ),
        (
            count,
            value(GgufType::U16, short(files)?.to_le_bytes().to_vec()),
        ),
        (total, value(GgufType::I32, tensors.to_le_bytes().to_vec())),
    ])
}

fn header(keys: &[(&str, GgufValue)], tensors: u64, descriptions: &[u8]) -> Vec<u8> {
    let mut head = b"GGUF".to_vec();
    head.extend(VERSION.to_le_bytes());
    head.extend(tensors.to_le_bytes());
    head.extend((keys.len() as u64).to_le_bytes());
    for (key, value) in keys {
        push_text(key, &mut head);
        value.write(&mut head);
    }
    head.extend(descriptions);
    head
}
