//! Writers of small safetensors and GGUF files, after the format specifications and independent of the library.

use serde_json::{Map, Value, json};

/// A tensor to write: name, dtype, shape and bytes.
#[derive(Clone, Debug)]
pub struct StoredTensor {
    pub name: String,
    pub dtype: String,
    pub shape: Vec<u64>,
    pub bytes: Vec<u8>,
}

impl StoredTensor {
    pub fn new(name: &str, dtype: &str, shape: &[u64], bytes: Vec<u8>) -> Self {
        Self {
            name: name.to_owned(),
            dtype: dtype.to_owned(),
            shape: shape.to_vec(),
            bytes,
        }
    }
}

pub fn safetensors(tensors: &[StoredTensor], metadata: &[(&str, &str)]) -> Vec<u8> {
    let mut header = Map::new();
    if !metadata.is_empty() {
        let metadata = metadata
            .iter()
            .map(|(k, v)| ((*k).to_owned(), Value::from(*v)));
        header.insert("__metadata__".to_owned(), Value::Object(metadata.collect()));
    }
    let mut offset = 0;
    for tensor in tensors {
        let end = offset + tensor.bytes.len();
        let entry =
            json!({"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [offset, end]});
        header.insert(tensor.name.clone(), entry);
        offset = end;
    }
    let header = serde_json::to_vec(&header).unwrap();
    let data = tensors.iter().flat_map(|t| &t.bytes).copied();
    let header_len = (header.len() as u64).to_le_bytes();
    header_len.into_iter().chain(header).chain(data).collect()
}

/// A value of a GGUF's metadata.
#[derive(Clone, Debug)]
pub enum GgufValue {
    Text(String),
    Number(u32),
    Float(f32),
    Texts(Vec<String>),
}

/// A GGUF file of version 3 with string metadata. The dtypes of the tensors are the numbers of ggml types.
pub fn gguf(big_endian: bool, metadata: &[(&str, &str)], tensors: &[StoredTensor]) -> Vec<u8> {
    let text =
        |(key, value): &(&str, &str)| ((*key).to_owned(), GgufValue::Text((*value).to_owned()));
    let metadata: Vec<_> = metadata.iter().map(text).collect();
    gguf_with(big_endian, &metadata, tensors)
}

/// Like [`gguf`], with metadata of several types.
pub fn gguf_with(
    big_endian: bool,
    metadata: &[(String, GgufValue)],
    tensors: &[StoredTensor],
) -> Vec<u8> {
    let u32 = |n: u32| {
        if big_endian {
            n.to_be_bytes()
        } else {
            n.to_le_bytes()
        }
    };
    let u64 = |n: u64| {
        if big_endian {
            n.to_be_bytes()
        } else {
            n.to_le_bytes()
        }
    };
    let text = |s: &str| [&u64(s.len() as u64)[..], s.as_bytes()].concat();
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(u32(3));
    bytes.extend(u64(tensors.len() as u64));
    bytes.extend(u64(metadata.len() as u64));
    for (key, value) in metadata {
        bytes.extend(text(key));
        match value {
            GgufValue::Text(value) => bytes.extend([u32(8).to_vec(), text(value)].concat()),
            GgufValue::Number(value) => bytes.extend([u32(4), u32(*value)].concat()),
            GgufValue::Float(value) => bytes.extend([u32(6), u32(value.to_bits())].concat()),
            GgufValue::Texts(values) => {
                bytes.extend([u32(9), u32(8)].concat());
                bytes.extend(u64(values.len() as u64));
                bytes.extend(values.iter().flat_map(|value| text(value)));
            }
        }
    }
    let mut offset = 0;
    for tensor in tensors {
        bytes.extend(text(&tensor.name));
        bytes.extend(u32(u32::try_from(tensor.shape.len()).unwrap()));
        tensor
            .shape
            .iter()
            .rev()
            .for_each(|&d| bytes.extend(u64(d)));
        bytes.extend(u32(tensor.dtype.parse().unwrap()));
        bytes.extend(u64(offset));
        offset += (tensor.bytes.len() as u64).next_multiple_of(32);
    }
    for tensor in tensors {
        bytes.resize(bytes.len().next_multiple_of(32), 0);
        bytes.extend(&tensor.bytes);
    }
    if !tensors.is_empty() {
        bytes.resize(bytes.len().next_multiple_of(32), 0);
    }
    bytes
}

/// The magic, version 1.0 and header of an NPY file. `descr` is a Python expression, quotes included.
pub fn npy_header(descr: &str, fortran_order: bool, shape: &[u64]) -> Vec<u8> {
    let order = if fortran_order { "True" } else { "False" };
    let sizes = shape.iter().map(u64::to_string).collect::<Vec<_>>();
    let tuple = match &sizes[..] {
        [one] => format!("({one},)"),
        sizes => format!("({})", sizes.join(", ")),
    };
    let mut header = format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {tuple}, }}");
    // magic, version and length take 10 bytes, the line break 1: numpy aligns the data to 64
    let len = 10 + header.len() + 1;
    header += &" ".repeat(len.next_multiple_of(64) - len);
    header.push('\n');
    let header_len = u16::try_from(header.len()).unwrap().to_le_bytes();
    [b"\x93NUMPY\x01\0", &header_len[..], header.as_bytes()].concat()
}

/// An NPY file of version 1.0 with `nbytes` of data: 0, 1, 2, … modulo 251.
pub fn npy_counting_up(descr: &str, fortran_order: bool, shape: &[u64], nbytes: usize) -> Vec<u8> {
    let mut bytes = npy_header(descr, fortran_order, shape);
    bytes.extend((0..nbytes).map(|i| u8::try_from(i % 251).unwrap()));
    bytes
}
