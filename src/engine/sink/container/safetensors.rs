//! The form of a safetensors file: its header, and the order of the tensors behind it.
//!
//! Source: the format description of the `safetensors` repository. Tensors are laid out widest elements
//! first, as that crate's writer does, so that each is aligned to its elements.

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::json;

use crate::base::error::{Error, Remedy, Result};
use crate::base::kernel::Dtype;
use crate::base::quote::quote;
use crate::plan::TensorSpec;
use crate::read::format::safetensors::MAX_HEADER;

use super::{
    FileContent, FileForm, FormOptions, HeaderValue, HeaderValues, ROOM, ROOM_UNIT, TYPED_KEY,
    no_dtype,
};

/// Bytes of the header's length.
const LENGTH: usize = 8;

pub(super) fn check(output: &TensorSpec, _options: &FormOptions) -> Result<()> {
    use Dtype::{C32, C128, QINT8, QINT32, QUINT2X4, QUINT4X2, QUINT8};
    // dtypes that the format does not name; readers refuse a header that contains one
    let unnamed = matches!(
        output.dtype,
        C32 | C128 | QINT8 | QUINT8 | QINT32 | QUINT4X2 | QUINT2X4
    );
    if unnamed || output.block.is_some() {
        return Err(no_dtype("safetensors", output));
    }
    if &*output.name == "__metadata__" {
        let what = "a tensor is called `__metadata__`, a name that is reserved in safetensors";
        return Err(Error::unsupported(what).with_remedy(Remedy::LeaveOutOrRename));
    }
    Ok(())
}

/// Lays out one file: widest elements first, so that every tensor is aligned to its elements; otherwise in order.
pub(super) fn lay_out(content: &FileContent<'_>) -> Result<FileForm> {
    let mut all: Vec<_> = content.each().collect();
    // stable, so that tensors of one width stay in plan order; truth values are last, as the reference writes them
    all.sort_by_key(|(_, output, _)| match output.dtype {
        Dtype::BOOL => std::cmp::Reverse(0),
        other => std::cmp::Reverse(other.bits()),
    });
    let mut start = 0;
    let placed = all.into_iter().map(|(number, output, nbytes)| {
        let at = start;
        start += nbytes;
        (number, output, at..start)
    });
    let placed: Vec<_> = placed.collect();
    let entries = placed.iter().map(|(_, output, range)| (*output, range));
    let head = header(entries, content.metadata, &content.options)?;
    let data = head.len() as u64;
    Ok(FileForm {
        outputs: placed
            .iter()
            .map(|(number, _, range)| (*number, data + range.start))
            .collect(),
        tensor_bytes: content.tensor_bytes,
        gaps: Vec::new(),
        nbytes: data.saturating_add(content.tensor_bytes),
        head,
    })
}

/// Serialises pairs as a map, in this order.
struct SerializedPairs<'m>(&'m HeaderValues);

impl Serialize for SerializedPairs<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let texts = self.0.iter().filter_map(|(key, value)| match value {
            HeaderValue::Text(text) => Some((key, text)),
            // refused before
            HeaderValue::Gguf(_) => None,
        });
        s.collect_map(texts)
    }
}

/// The header: its length, and JSON padded to 8 bytes, or with room.
fn header<'o>(
    outputs: impl Iterator<Item = (&'o TensorSpec, &'o std::ops::Range<u64>)>,
    metadata: &HeaderValues,
    options: &FormOptions,
) -> Result<Vec<u8>> {
    let mut keys = metadata.iter();
    if let Some((key, _)) = keys.find(|(_, value)| matches!(value, HeaderValue::Gguf(_))) {
        let what = format!("the key {} {TYPED_KEY}", quote(key));
        return Err(Error::invalid_argument(what));
    }
    let mut text = Vec::new();
    let mut json = serde_json::Serializer::new(&mut text);
    let written = json.serialize_map(None).and_then(|mut map| {
        if options.empty_metadata || !metadata.is_empty() {
            // first, as the reference writes it; its keys keep their order, so that two runs write the same bytes
            map.serialize_entry("__metadata__", &SerializedPairs(metadata))?;
        }
        for (output, range) in outputs {
            let entry = json!({"dtype": output.dtype, "shape": output.shape.as_slice(), "data_offsets": [range.start, range.end]});
            map.serialize_entry(&*output.name, &entry)?;
        }
        map.end()
    });
    written.expect("strings and numbers serialise to JSON");
    // the writer of the `safetensors` crate pads in the same way, so that the tensors of a mapped file are aligned to
    // 8 bytes
    let padded = match options.room {
        false => text.len().next_multiple_of(8),
        true => (LENGTH + text.len() + ROOM).next_multiple_of(ROOM_UNIT) - LENGTH,
    };
    text.resize(padded, b' ');
    if text.len() as u64 > MAX_HEADER {
        return Err(Error::unsupported(format!(
            "the header has {} bytes; readers accept {MAX_HEADER}",
            text.len()
        )));
    }
    Ok([&(text.len() as u64).to_le_bytes()[..], &text].concat())
}
