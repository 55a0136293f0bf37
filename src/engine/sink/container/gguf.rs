//! The form of a GGUF file: keys, descriptions of tensors, and their bytes, aligned.
//!
//! Source: `docs/gguf.md` of ggml; `gguf.cpp` and `llama-gguf-split` of llama.cpp. The first of several files has
//! the keys, and each has its number and the counts of files and of tensors.

use crate::base::error::{Error, Remedy, Result};
use crate::plan::TensorSpec;
use crate::read::catalog::quote;
use crate::read::format::gguf::{
    ALIGNMENT, ALIGNMENT_DEFAULT, GgufType, GgufValue, NAME_LEN_MAX, PADDING, SPLIT_KEYS,
    push_text, tensor_type,
};

use super::{FileContent, FileForm, FormOptions, HeaderValue, ROOM, ROOM_UNIT, no_dtype};

/// Dimensions that ggml's tensors can have (`GGML_MAX_DIMS`).
const MAX_DIMS: usize = 4;
/// Bytes of a tensor's name, with the zero at its end (`GGML_MAX_NAME`).
pub(crate) const MAX_NAME: usize = 64;
const VERSION: u32 = 3;

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
