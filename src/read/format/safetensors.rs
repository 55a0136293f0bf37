//! safetensors, the tensor file format of Hugging Face.
//!
//! Specification: the format description of huggingface/safetensors, and its reader (`tensor.rs`, 0.8).
//!
//! | bytes | content |
//! |---|---|
//! | 8 | length of the header, `u64`, little endian; at most 100 000 000 |
//! | length | JSON: `{"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, …, "__metadata__": {…}}` |
//! | … | the data section, which `data_offsets` refer to |
//!
//! Refused, as by that reader: holes, overlaps, and bytes after the last tensor, so that a file cannot hide data.
//! Refused beyond it: a name that occurs twice, because parsers differ in which of the two they keep.

use std::fmt;

use serde::Deserialize;
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use super::{Format, Head};
use crate::base::error::{Error, Result};
use crate::base::kernel::Dtype;
use crate::base::limits::{Budget, text_cost};
use crate::read::catalog::metadata::Value;
use crate::read::catalog::{
    ByteRange, Catalog, Encoding, ExtraField, Shape, TensorInfo, elements, quote,
};
use crate::read::json::{JsonReader, Pairs, StringPairs, Text};
use crate::read::source::cursor::Cursor;

/// The safetensors format.
pub static FORMAT: Format = Format {
    name: "safetensors",
    extensions: &["safetensors"],
    probe,
    read,
};

/// The key under which files that this library has made name the plan that made them.
pub(crate) const PLAN_ID_KEY: &str = "anamnesis.plan";

/// Longest header in bytes: the `safetensors` crate, which defines the format, reads no longer one (`HeaderTooLarge`).
pub(crate) const MAX_HEADER: u64 = 100_000_000;

/// The dtypes that the specification names. Frequent ones come first, because lookup is linear.
const DTYPES: [Dtype; 22] = [
    Dtype::F32,
    Dtype::F16,
    Dtype::BF16,
    Dtype::I64,
    Dtype::I32,
    Dtype::U8,
    Dtype::F8_E4M3,
    Dtype::I8,
    Dtype::BOOL,
    Dtype::F4,
    Dtype::F6_E2M3,
    Dtype::F6_E3M2,
    Dtype::F8_E5M2,
    Dtype::F8_E8M0,
    Dtype::F8_E4M3FNUZ,
    Dtype::F8_E5M2FNUZ,
    Dtype::I16,
    Dtype::U16,
    Dtype::U32,
    Dtype::C64,
    Dtype::F64,
    Dtype::U64,
];

/// The format has no magic number, so a plausible header length followed by a JSON object is recognised.
fn probe(head: &Head<'_>) -> bool {
    let Some((len, text)) = head.bytes.split_first_chunk::<8>() else {
        return false;
    };
    let len = u64::from_le_bytes(*len);
    // a length that exceeds the file is what eight bytes of another format usually look like; a stream has no length
    // yet
    let fits = head.len.is_none_or(|file| len <= file - 8);
    len <= MAX_HEADER && fits && text.trim_ascii_start().starts_with(b"{")
}

fn read(cursor: &mut Cursor<'_>, _: Head<'_>) -> Result<Catalog> {
    let budget = cursor.budget();
    let len = u64::from_le_bytes(cursor.array("the header's length")?);
    if len > MAX_HEADER {
        return Err(Error::malformed(format!(
            "the header has {len} bytes; the format allows at most {MAX_HEADER}"
        ))
        .at(0));
    }
    // one read of the announced size instead of one per window
    cursor.expect(len);
    let at = cursor.pos();
    let data_at = at + len;
    // borrowed from a mapped file; otherwise charged, because the length is the file's
    let text = cursor.take_long(len, "the header")?;
    let text = std::str::from_utf8(text)
        .map_err(|e| Error::malformed("the header is not UTF-8").at(at + e.valid_up_to() as u64))?;
    let mut catalog = parse(text, data_at, budget).map_err(|e| match e.offset() {
        Some(_) => e,
        None => e.at(at),
    })?;
    catalog.detail("header_nbytes", Value::U64(len));
    Ok(catalog)
}

/// Parses the header text. Offsets of errors count from the beginning of the file.
fn parse(text: &str, data_at: u64, budget: &Budget) -> Result<Catalog> {
    let reader = JsonReader::new(budget, "the header");
    let mut header = Header {
        tensors: Vec::new(),
        metadata: None,
        extra_fields: Vec::new(),
        data_at,
        budget,
        reader: &reader,
    };
    // a visitor that appends rows is 3.9 times faster than the reference, whose `#[serde(flatten)]` buffers every
    // entry first (experiment 7 of docs/perf-experiments.md); serde_json accepts exactly the JSON that the reference
    // accepts
    reader.parse(text, &mut header, |e| {
        Error::malformed(format!("header: {e}")).at(8 + offset_of(text, &e))
    })?;
    let mut catalog = Catalog::new(FORMAT.name);
    catalog.empty_metadata = header.metadata.as_ref().is_some_and(Vec::is_empty);
    let metadata = header.metadata.unwrap_or_default();
    catalog.metadata.reserve(metadata.len(), budget)?;
    for (key, value) in metadata {
        catalog.metadata.push(key, Value::Text(value));
    }
    catalog.tensors = header.tensors;
    catalog.extra_fields = header.extra_fields;
    // the tensors must cover the data section without holes or overlaps
    // empty tensors sort before a tensor at the same offset
    let by_place = |t: &TensorInfo| (t.bytes.start, t.bytes.len);
    // the reference's writer stores tensors in this order, so the sort is for files of other writers
    if !catalog.tensors.is_sorted_by_key(by_place) {
        // a stable sort copies through memory of the same size
        let _copy = budget.temporary(
            size_of_val(&*catalog.tensors) as u64,
            "the order of the tensors",
        )?;
        catalog.tensors.sort_by_key(by_place);
    }
    let mut end = data_at;
    for tensor in &catalog.tensors {
        if tensor.bytes.start != end {
            let what = if tensor.bytes.start > end {
                "leaves a gap after"
            } else {
                "overlaps the tensor before it, which ends at"
            };
            return Err(Error::malformed(format!(
                "tensor {} {what} byte {end}",
                quote(&tensor.name)
            ))
            .at(tensor.bytes.start));
        }
        end = tensor.bytes.end();
    }
    // `Catalog::check_extent` compares it with the length of the file: bytes after the last tensor could hide data,
    // and the reference refuses them too
    catalog.exact_end = Some(end);
    Ok(catalog)
}

/// The byte offset of a JSON error, which gives line and column.
fn offset_of(text: &str, error: &serde_json::Error) -> u64 {
    let line: usize = text
        .split_inclusive('\n')
        .take(error.line().saturating_sub(1))
        .map(str::len)
        .sum();
    (line + error.column().saturating_sub(1)).min(text.len()) as u64
}

/// The header while it is parsed.
struct Header<'a> {
    tensors: Vec<TensorInfo>,
    metadata: Option<StringPairs>,
    extra_fields: Vec<ExtraField>,
    data_at: u64,
    budget: &'a Budget,
    reader: &'a JsonReader<'a>,
}

/// One tensor as the header describes it.
struct TensorEntry {
    dtype: Dtype,
    shape: Shape,
    data_offsets: (u64, u64),
    /// The first field that the specification does not name.
    extra: Option<Box<str>>,
}

impl<'de> DeserializeSeed<'de> for &mut Header<'_> {
    type Value = ();

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut Header<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    #[inline]
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(Text(name)) = map.next_key()? {
            if name == "__metadata__" {
                // two objects could show one description to one reader and another to the next
                let text = map.next_value_seed(Pairs(self.reader))?;
                if self.metadata.replace(text).is_some() {
                    return Err(A::Error::custom("`__metadata__` occurs twice"));
                }
                continue;
            }
            let entry = map.next_value_seed(TensorEntrySeed(self.reader, self.budget))?;
            self.reader.checked(self.add(&name, entry))?;
        }
        Ok(())
    }
}

impl Header<'_> {
    #[inline]
    fn add(&mut self, name: &str, entry: TensorEntry) -> Result<()> {
        if let Some(field) = entry.extra {
            const WHAT: &str = "the fields of tensors";
            self.budget
                .memory(text_cost(name.len()) + text_cost(field.len()), WHAT)?;
            let tensor = name.into();
            self.budget
                .push(&mut self.extra_fields, ExtraField { tensor, field }, WHAT)?;
        }
        let (from, to) = entry.data_offsets;
        let bad = |what: String| {
            let start = self.data_at.saturating_add(from);
            Err(Error::malformed(format!("tensor {}: {what}", quote(name))).at(start))
        };
        let Some(elements) = elements(&entry.shape) else {
            return bad("the shape's product does not fit in 64 bits".into());
        };
        // F4 and F6 share bytes, so that an odd number of elements has no length
        let Some(nbytes) = entry.dtype.nbytes(elements) else {
            return bad(format!(
                "{elements} elements of {} do not end at a byte boundary",
                entry.dtype
            ));
        };
        // the offsets repeat what shape and dtype say; a reader that trusts the one and a reader that trusts the
        // other would see different tensors
        if to.checked_sub(from) != Some(nbytes) {
            return bad(format!(
                "data_offsets {from}..{to} do not match the {nbytes} bytes of its shape and dtype"
            ));
        }
        let Some(start) = self
            .data_at
            .checked_add(from)
            .filter(|s| s.checked_add(nbytes).is_some())
        else {
            return bad("data_offsets do not fit in 64 bits".into());
        };
        let bytes = ByteRange::new(start, nbytes);
        self.budget.described_tensor(name.len())?;
        self.budget.text(name.len(), "the names of the tensors")?;
        self.budget
            .reserve(&mut self.tensors, 1, "the list of tensors")?;
        self.tensors.push(TensorInfo::new(
            name,
            entry.shape,
            Encoding::Plain(entry.dtype),
            bytes,
        ));
        Ok(())
    }
}

/// Reads the object that describes one tensor. The format's own reader ignores fields that the specification does
/// not name; the first of them is kept by name here: it may say how the bytes are packed.
struct TensorEntrySeed<'r>(&'r JsonReader<'r>, &'r Budget);

impl<'de> DeserializeSeed<'de> for TensorEntrySeed<'_> {
    type Value = TensorEntry;

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<TensorEntry, D::Error> {
        d.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for TensorEntrySeed<'_> {
    type Value = TensorEntry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the description of a tensor")
    }

    #[inline]
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TensorEntry, A::Error> {
        let Self(reader, budget) = self;
        let (mut dtype, mut shape, mut data_offsets, mut extra) = (None, None, None, None);
        while let Some(field) = map.next_key()? {
            let twice = match field {
                TensorField::Dtype => dtype.replace(map.next_value::<StoredDtype>()?.0).is_some(),
                TensorField::Shape => {
                    let sizes = map.next_value_seed(ShapeReader(reader, budget))?;
                    shape.replace(sizes).is_some()
                }
                TensorField::DataOffsets => data_offsets.replace(map.next_value()?).is_some(),
                TensorField::Other(ref name) => {
                    map.next_value::<IgnoredAny>()?;
                    extra.get_or_insert_with(|| name.clone());
                    false
                }
            };
            if twice {
                return Err(A::Error::custom(format!(
                    "duplicate field `{}`",
                    field.name()
                )));
            }
        }
        Ok(TensorEntry {
            dtype: dtype.ok_or_else(|| A::Error::missing_field("dtype"))?,
            shape: shape.ok_or_else(|| A::Error::missing_field("shape"))?,
            data_offsets: data_offsets.ok_or_else(|| A::Error::missing_field("data_offsets"))?,
            extra,
        })
    }
}

/// A field of the object that describes one tensor.
enum TensorField {
    Dtype,
    Shape,
    DataOffsets,
    /// The beginning of its name.
    Other(Box<str>),
}

impl<'de> Deserialize<'de> for TensorField {
    #[inline]
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_identifier(TensorFieldVisitor)
    }
}

struct TensorFieldVisitor;

impl Visitor<'_> for TensorFieldVisitor {
    type Value = TensorField;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    #[inline]
    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<TensorField, E> {
        // names are a few letters; a file may repeat a long one for every tensor
        const MAX_BYTES: usize = 64;
        Ok(match name {
            "dtype" => TensorField::Dtype,
            "shape" => TensorField::Shape,
            "data_offsets" => TensorField::DataOffsets,
            other => TensorField::Other(other[..other.floor_char_boundary(MAX_BYTES)].into()),
        })
    }
}

impl TensorField {
    fn name(&self) -> &'static str {
        match self {
            Self::Dtype => "dtype",
            Self::Shape => "shape",
            Self::DataOffsets => "data_offsets",
            Self::Other(_) => "",
        }
    }
}

struct StoredDtype(Dtype);

impl<'de> Deserialize<'de> for StoredDtype {
    #[inline]
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let Text(name) = Text::deserialize(d)?;
        let dtype = DTYPES.iter().copied().find(|d| d.name() == name);
        dtype.map(Self).ok_or_else(|| {
            D::Error::custom(format!(
                "dtype {} is not a dtype of the format",
                quote(&name)
            ))
        })
    }
}

/// Reads a shape. Sizes beyond those that a shape holds inline are charged.
struct ShapeReader<'r>(&'r JsonReader<'r>, &'r Budget);

impl<'de> DeserializeSeed<'de> for ShapeReader<'_> {
    type Value = Shape;

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Shape, D::Error> {
        d.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for ShapeReader<'_> {
    type Value = Shape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of dimensions")
    }

    #[inline]
    fn visit_seq<A: SeqAccess<'de>>(self, mut sizes: A) -> Result<Shape, A::Error> {
        let Self(reader, budget) = self;
        let mut shape = Shape::new();
        while let Some(size) = sizes.next_element()? {
            reader.checked(shape.push_charged(size, budget))?;
        }
        Ok(shape)
    }
}
