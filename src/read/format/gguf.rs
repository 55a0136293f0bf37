//! GGUF, the file format of llama.cpp: versions 2 and 3, little and big endian.
//!
//! Specification: `docs/gguf.md` of ggml, and the reader `gguf.cpp` of llama.cpp.
//!
//! | bytes | content |
//! |---|---|
//! | 4 | `GGUF` |
//! | 4 | version; its byte order is the file's |
//! | 8 + 8 | number of tensors, number of keys |
//! | … | per key: name, value type (`u32`), value |
//! | … | per tensor: name, rank (`u32`), dimensions (`u64`, fastest first), type (`u32`), offset (`u64`) |
//! | … | padding to `general.alignment` (32), then the data section, which offsets refer to |
//!
//! Names and strings are a length (`u64`) and UTF-8; an array is an item type, a length and its items. Arrays stay in the
//! file: a tokenizer has 150 000 strings, of which a listing shows the first few.
//!
//! Refused: version 1, which llama.cpp does not read either; type ids that ggml removed or that forks reuse, because
//! their blocks would be decoded wrongly; repeated keys, and tensors that overlap or are not aligned, because no two
//! readers agree on them. Accepted beyond llama.cpp's reader, because the meaning is unambiguous: nested arrays, and
//! tensors in any order and with gaps.

mod array;
mod details;
mod file_types;
mod header_layout;
mod stored_values;
mod true_shapes;
mod values;

use super::{Format, Head};
use crate::base::error::{Error, Result};
use crate::base::kernel::Dtype;
use crate::base::limits::text_cost;
use crate::read::catalog::metadata::{Item, Metadata, Value};
use crate::read::catalog::{
    ByteRange, Catalog, Encoding, Endian, Shape, TensorInfo, elements, quote, repeated,
};
use crate::read::source::cursor::Cursor;
use anamnesis_kernel::{BlockFormat, describe_foreign};

pub(crate) use array::read as read_array;
pub use file_types::FileType;
pub(crate) use header_layout::{HeaderLayout, header_layout, in_order_of};
pub(crate) use stored_values::{StoredValue, stored_values, value_of};
pub(crate) use values::push_text;
pub use values::{GgufType, GgufValue};

/// The GGUF format.
pub static FORMAT: Format = Format {
    name: "gguf",
    extensions: &["gguf"],
    probe,
    read,
};

/// The key of a text without meaning, which fills the header so that later edits need not move the tensors. It is no part of the
/// metadata.
pub(crate) const PADDING: &str = "anamnesis.padding";
/// The keys of a file among several: its number from 0, the count of files, the count of tensors.
pub(crate) const SPLIT_KEYS: [&str; 3] = ["split.no", "split.count", "split.tensors.count"];

/// Why a key is set by writers alone, if it is one of theirs.
pub(crate) fn set_by_writers(key: &str) -> Option<&'static str> {
    Some(match key {
        PADDING => "is the room of a header, and no metadata",
        // gguf-py lists version and counts of a GGUF under such keys, and opens no file that has one
        key if key.starts_with("GGUF.") => "is one that readers of GGUF give to the header itself",
        key if SPLIT_KEYS.contains(&key) => "numbers the files of a split, and is written for each",
        _ => return None,
    })
}

const MAGIC: &[u8; 4] = b"GGUF";
/// The key of the alignment of tensors.
pub(crate) const ALIGNMENT: &str = "general.alignment";
/// The key of the quantisation of most weights, a number of llama.cpp's `llama_ftype`.
pub(crate) const FILE_TYPE: &str = "general.file_type";
/// The alignment without that key.
pub(crate) const ALIGNMENT_DEFAULT: u32 = 32;
/// One more than `GGML_MAX_DIMS`: patch embeddings of video models have five dimensions, which gguf-py and
/// stable-diffusion.cpp read.
const DIMS_MAX: u32 = 5;
/// Longest key or tensor name in bytes. The specification sets this bound for keys. ggml allows 64 bytes for
/// tensor names; here they have the bound of keys.
pub(crate) const NAME_LEN_MAX: u64 = 65_535;

fn probe(head: &Head<'_>) -> bool {
    head.bytes.starts_with(MAGIC)
}

fn read(cursor: &mut Cursor<'_>, _: Head<'_>) -> Result<Catalog> {
    let mut file = HeaderReader::open(cursor)?;
    // the least size of an entry is the size with an empty name: 8 bytes of length, 4 of rank, 4 of type and 8 of offset for
    // a tensor; 8 of length, 4 of type and 1 of value for a key
    let tensor_count = file.count("tensors", 24)?;
    let key_count = file.count("keys", 13)?;
    let mut catalog = Catalog::new(FORMAT.name);
    for _ in 0..key_count {
        let (key, value) = file.key_value()?;
        if &*key == PADDING {
            continue;
        }
        catalog.metadata.reserve(1, file.cursor.budget())?;
        catalog.metadata.push(key, value);
    }
    // `gguf.cpp` refuses a repeated key too; readers that build a dict keep the last one
    let budget = file.cursor.budget();
    let keys = budget.temporary(
        (catalog.metadata.len() * size_of::<&str>()) as u64,
        "the keys",
    )?;
    if let Some(twice) = repeated(catalog.metadata.iter().map(|(key, _)| key)) {
        return Err(Error::malformed(format!(
            "key {} occurs twice",
            quote(twice)
        )));
    }
    drop(keys);
    let alignment = alignment(&catalog.metadata)?;
    for _ in 0..tensor_count {
        let tensor = file.tensor()?;
        budget.push(&mut catalog.tensors, tensor, "the list of tensors")?;
    }
    removed_q4_2(&catalog)?;
    let header_end = file.cursor.pos();
    if tensor_count > 0 {
        // a file without tensors has no data section, and may end without the padding before it
        // references in the order of offsets; a stable sort copies them
        let _order = budget.temporary(24 * tensor_count, "the order of the tensors")?;
        let data_at = header_end.next_multiple_of(u64::from(alignment));
        resolve_offsets(&mut catalog.tensors, data_at, u64::from(alignment))?;
    }
    true_shapes::restore(&mut catalog, budget)?;
    details::describe(&mut catalog, file.version, file.endian, alignment, budget)?;
    Ok(catalog)
}

/// A file whose magic and version have been read.
struct HeaderReader<'c, 's> {
    cursor: &'c mut Cursor<'s>,
    version: u32,
    endian: Endian,
}

impl<'c, 's> HeaderReader<'c, 's> {
    fn open(cursor: &'c mut Cursor<'s>) -> Result<Self> {
        let magic: [u8; 4] = cursor.array("the magic number")?;
        // only if the caller forced the format: the probe has compared it otherwise
        if magic != *MAGIC {
            let found = super::sniff::preview(&magic);
            return Err(
                Error::malformed(format!("the magic number is {found}, not \"GGUF\"")).at(0),
            );
        }
        let stored = u32::from_le_bytes(cursor.array("the version")?);
        // versions are small, so a version whose low half is 0 was written in the other byte order
        let endian = if stored & 0xffff == 0 {
            Endian::Big
        } else {
            Endian::Little
        };
        let version = if endian == Endian::Big {
            stored.swap_bytes()
        } else {
            stored
        };
        match version {
            2 | 3 => Ok(Self { cursor, version, endian }),
            // version 1 has 32-bit counts and lengths, so reading it as version 2 would misplace every field
            1 => Err(Error::unsupported(
                "GGUF version 1 (August 2023), which llama.cpp refuses too; convert it again from the original",
            )
            .at(4)),
            _ => Err(Error::malformed(format!("the version is {version}; versions 2 and 3 exist")).at(4)),
        }
    }

    fn u32(&mut self, what: &str) -> Result<u32> {
        array::u32(self.cursor, self.endian, what)
    }

    fn u64(&mut self, what: &str) -> Result<u64> {
        array::u64(self.cursor, self.endian, what)
    }

    /// Reads a count of items of at least `least` bytes each. The count is compared with the bytes that are left before a
    /// loop uses it, so that a false count fails here.
    fn count(&mut self, what: &str, least: u64) -> Result<u64> {
        let at = self.cursor.pos();
        let n = self.u64(what)?;
        // without this check, 16 bytes of header would start a loop of 2⁶⁴ turns
        if n > self.cursor.remaining() / least {
            let left = self.cursor.remaining();
            return Err(Error::malformed(format!(
                "the header counts {n} {what}, but only {left} bytes are left"
            ))
            .at(at));
        }
        Ok(n)
    }

    /// Reads a key or a tensor name.
    fn name(&mut self, what: &str) -> Result<Box<str>> {
        let at = self.cursor.pos();
        let len = self.u64(what)?;
        if len > NAME_LEN_MAX {
            return Err(Error::malformed(format!(
                "{what} has {len} bytes; at most {NAME_LEN_MAX} are allowed"
            ))
            .at(at));
        }
        // names are keys of lookups, so unlike metadata strings they must be UTF-8 exactly; a replaced character
        // could make two names equal
        self.cursor.budget().memory(text_cost(0) + len, what)?;
        let bytes = self.cursor.take_long(len, what)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.into()),
            Err(_) => Err(Error::malformed(format!("{what} is not UTF-8")).at(at + 8)),
        }
    }

    fn key_value(&mut self) -> Result<(Box<str>, Value)> {
        let key = self.name("a key")?;
        let at = self.cursor.pos();
        let kind = self.u32("a value's type")?;
        let value = array::value(self.cursor, kind, self.endian);
        let value = value.map_err(|e| e.at(at).context(&format!("key {}", quote(&key))))?;
        Ok((key, value))
    }

    fn tensor(&mut self) -> Result<TensorInfo> {
        let name = self.name("a tensor's name")?;
        self.cursor.budget().described_tensor(name.len())?;
        let at = self.cursor.pos();
        let bad =
            |what: String| Error::malformed(format!("tensor {}: {what}", quote(&name))).at(at);
        let rank = self.u32("a tensor's rank")?;
        if rank > DIMS_MAX {
            return Err(bad(format!(
                "it has {rank} dimensions; readers of GGUF allow at most {DIMS_MAX}"
            )));
        }
        let mut shape = Shape::new();
        for _ in 0..rank {
            let dim = self.u64("a tensor's dimension")?;
            // ggml keeps dimensions in `int64_t` and refuses negative ones
            if i64::try_from(dim).is_err() {
                return Err(bad(format!(
                    "a dimension is {dim}, which exceeds 63 bits and is negative in ggml"
                )));
            }
            shape.push(dim);
        }
        let row = shape.first().copied().unwrap_or(1);
        shape.reverse(); // ggml writes the fastest dimension first
        let kind = self.u32("a tensor's type")?;
        let encoding = encoding(kind).ok_or_else(|| {
            Error::unsupported(format!(
                "tensor {}: {}",
                quote(&name),
                // names the fork or the version of ggml that uses the id
                describe_foreign(kind)
            ))
            .at(at)
        })?;
        if let Encoding::Block(block) = encoding
            // a block never spans two rows: ggml computes the row size as blocks times block size, and refuses other
            // rows
            && !row.is_multiple_of(u64::from(block.block_len))
        {
            let (len, block) = (block.block_len, block.name);
            return Err(bad(format!(
                "its rows have {row} elements; {block} needs a multiple of {len}"
            )));
        }
        let nbytes = elements(&shape)
            .filter(|&n| i64::try_from(n).is_ok())
            .and_then(|n| encoding.nbytes(n))
            .ok_or_else(|| bad("its size does not fit in 63 bits".into()))?;
        // relative to the data section, whose beginning is known only after the last tensor entry; `resolve_offsets`
        // adds it
        let offset = self.u64("a tensor's offset")?;
        let mut info = TensorInfo::new(name, shape, encoding, ByteRange::new(offset, nbytes));
        info.endian = self.endian;
        Ok(info)
    }
}

/// Refuses type 4 in a file of another model than gpt-oss, the only one that Ollama stores in its own type 4: elsewhere it is
/// ggml's Q4_2, which was removed before GGUF existed.
fn removed_q4_2(catalog: &Catalog) -> Result<()> {
    let of_ollama = |architecture| matches!(architecture, "gptoss" | "gpt-oss");
    if catalog
        .metadata
        .text("general.architecture")
        .is_none_or(of_ollama)
    {
        return Ok(());
    }
    let is_type_4 = |tensor: &&TensorInfo| tensor.encoding.name() == "MXFP4_OLLAMA";
    match catalog.tensors.iter().find(is_type_4) {
        None => Ok(()),
        Some(tensor) => Err(Error::unsupported(format!(
            "tensor {}: ggml type 4 is Q4_2, removed from ggml in 2023; convert it again from the original",
            quote(&tensor.name)
        ))),
    }
}

/// The encoding of a ggml type id: the plain types are listed here, the block types in [`BlockFormat`].
fn encoding(kind: u32) -> Option<Encoding> {
    let plain = match kind {
        // ids of `enum ggml_type`
        0 => Dtype::F32,
        1 => Dtype::F16,
        24 => Dtype::I8,
        25 => Dtype::I16,
        26 => Dtype::I32,
        27 => Dtype::I64,
        28 => Dtype::F64,
        30 => Dtype::BF16,
        _ => return BlockFormat::from_ggml(kind).map(Encoding::Block),
    };
    Some(Encoding::Plain(plain))
}

/// The ggml type id of an encoding; `None` if GGUF has none.
pub(crate) fn tensor_type(encoding: &Encoding) -> Option<u32> {
    Some(match encoding {
        Encoding::Plain(Dtype::F32) => 0,
        Encoding::Plain(Dtype::F16) => 1,
        Encoding::Plain(Dtype::I8) => 24,
        Encoding::Plain(Dtype::I16) => 25,
        Encoding::Plain(Dtype::I32) => 26,
        Encoding::Plain(Dtype::I64) => 27,
        Encoding::Plain(Dtype::F64) => 28,
        Encoding::Plain(Dtype::BF16) => 30,
        Encoding::Block(block) => block.ggml_type,
        _ => return None,
    })
}

fn alignment(metadata: &Metadata) -> Result<u32> {
    match metadata.get(ALIGNMENT) {
        None => Ok(ALIGNMENT_DEFAULT),
        // the specification requires `u32`; other unsigned widths are accepted, because their value is unambiguous
        Some(&Value::U64(n)) => match u32::try_from(n) {
            Ok(n) if n.is_power_of_two() => Ok(n),
            _ => Err(Error::malformed(format!(
                "{ALIGNMENT} is {n}, which is not a power of two below 2³²"
            ))),
        },
        Some(_) => Err(Error::malformed(format!(
            "{ALIGNMENT} is not an unsigned integer"
        ))),
    }
}

/// Converts offsets in the data section to offsets in the file. Refuses tensors that overlap or are not aligned.
fn resolve_offsets(tensors: &mut [TensorInfo], data_at: u64, alignment: u64) -> Result<()> {
    for tensor in &mut *tensors {
        let offset = tensor.bytes.start;
        let bad = |what: &str| Error::malformed(format!("tensor {}: {what}", quote(&tensor.name)));
        if !offset.is_multiple_of(alignment) {
            return Err(bad(&format!(
                "offset {offset} is not a multiple of the alignment {alignment}"
            )));
        }
        let start = data_at
            .checked_add(offset)
            .filter(|s| s.checked_add(tensor.bytes.len).is_some());
        tensor.bytes.start =
            start.ok_or_else(|| bad(&format!("offset {offset} plus its size exceeds 64 bits")))?;
    }
    // empty tensors share their offset with their neighbour without overlapping it
    let mut order: Vec<&TensorInfo> = tensors.iter().filter(|t| t.bytes.len > 0).collect();
    order.sort_by_key(|t| t.bytes.start);
    for pair in order.windows(2) {
        let [a, b] = pair else { continue };
        // the blocks of the fork are smaller, so its tensors would pass as tensors with gaps between them
        fork_q2_0(a, b, alignment)?;
        if a.bytes.end() > b.bytes.start {
            let what = format!("tensors {} and {} overlap", quote(&a.name), quote(&b.name));
            return Err(Error::malformed(what).at(b.bytes.start));
        }
    }
    Ok(())
}

/// Refuses the Q2_0 of PrismML's fork of llama.cpp: blocks of 128 elements in 34 bytes, under the type id 42 of ggml's own
/// Q2_0. Only the distance to the next tensor distinguishes them, and decoding one as the other gives wrong numbers.
fn fork_q2_0(tensor: &TensorInfo, next: &TensorInfo, alignment: u64) -> Result<()> {
    if tensor.encoding.name() != "Q2_0" {
        return Ok(());
    }
    let distance = next.bytes.start - tensor.bytes.start;
    // ggml's Q2_0 has blocks of 64 elements; 34 bytes are an F16 scale and 128 codes of two bits
    let fork = (tensor.elements() / 128).saturating_mul(34);
    let is = |nbytes: u64| nbytes.checked_next_multiple_of(alignment) == Some(distance);
    // both sizes can round up to the same distance; then nothing distinguishes them and ggml's reading stands
    if tensor.elements().is_multiple_of(128) && is(fork) && !is(tensor.bytes.len) {
        return Err(Error::unsupported(format!(
            "tensor {}: type 42 in blocks of 128 elements is Q2_0 of PrismML's fork of llama.cpp, not ggml's",
            quote(&tensor.name)
        ))
        .at(tensor.bytes.start));
    }
    Ok(())
}

/// The dtype of a GGUF value type of fixed size.
fn plain_item(kind: u32) -> Option<Dtype> {
    Some(match kind {
        0 => Dtype::U8,
        1 => Dtype::I8,
        2 => Dtype::U16,
        3 => Dtype::I16,
        4 => Dtype::U32,
        5 => Dtype::I32,
        6 => Dtype::F32,
        7 => Dtype::BOOL,
        10 => Dtype::U64,
        11 => Dtype::I64,
        12 => Dtype::F64,
        _ => return None,
    })
}

/// The item type of an array whose elements have this value type.
fn array_item(kind: u32) -> Option<Item> {
    match kind {
        8 => Some(Item::Text),
        9 => Some(Item::Array),
        other => plain_item(other).map(Item::Plain),
    }
}
