//! A writer of PyTorch's state dicts, after `torch.serialization` and `torch._utils`, and independent of the library.

use serde_json::{Map, Value};
use zip::CompressionMethod;

use super::amplifiers::zip;
use super::writers::StoredTensor;

/// Dtypes of safetensors with their storage classes; those without one are saved in untyped storages, with PyTorch's name of
/// the dtype beside it.
static DTYPES: &[(&str, &str)] = &[
    ("F64", "torch\nDoubleStorage"),
    ("F32", "torch\nFloatStorage"),
    ("F16", "torch\nHalfStorage"),
    ("BF16", "torch\nBFloat16Storage"),
    ("I64", "torch\nLongStorage"),
    ("I32", "torch\nIntStorage"),
    ("I16", "torch\nShortStorage"),
    ("I8", "torch\nCharStorage"),
    ("U8", "torch\nByteStorage"),
    ("BOOL", "torch\nBoolStorage"),
];
static UNTYPED: &[(&str, &str)] = &[
    ("U16", "uint16"),
    ("U32", "uint32"),
    ("U64", "uint64"),
    ("F8_E4M3", "float8_e4m3fn"),
    ("F8_E5M2", "float8_e5m2"),
    ("F8_E8M0", "float8_e8m0fnu"),
];

/// The file of a dict that has these tensors and further entries.
pub fn state_dict(tensors: &[StoredTensor], entries: &Map<String, Value>) -> Vec<u8> {
    let mut pickle = b"\x80\x02}(".to_vec();
    for (key, tensor) in tensors.iter().enumerate() {
        text(&mut pickle, &tensor.name);
        rebuilt(&mut pickle, key, tensor);
    }
    for (key, entry) in entries {
        text(&mut pickle, key);
        value(&mut pickle, entry);
    }
    pickle.extend(b"u.");
    let storages = tensors.iter().enumerate();
    let storages =
        storages.map(|(key, tensor)| (format!("archive/data/{key}"), tensor.bytes.clone()));
    let head = [
        ("archive/data.pkl".to_owned(), pickle),
        ("archive/version".to_owned(), b"3\n".to_vec()),
    ];
    zip(CompressionMethod::Stored, head.into_iter().chain(storages))
}

fn row(table: &[(&str, &'static str)], dtype: &str) -> Option<&'static str> {
    let found = table.iter().find(|(name, _)| *name == dtype);
    found.map(|(_, named)| *named)
}

/// A call of `_rebuild_tensor_v2`, or of `_rebuild_tensor_v3` for dtypes without a storage class.
fn rebuilt(pickle: &mut Vec<u8>, key: usize, tensor: &StoredTensor) {
    let class = row(DTYPES, &tensor.dtype);
    let function = if class.is_some() { "v2" } else { "v3" };
    global(pickle, &format!("torch._utils\n_rebuild_tensor_{function}"));
    pickle.push(b'(');
    pickle.push(b'(');
    text(pickle, "storage");
    global(pickle, class.unwrap_or("torch.storage\nUntypedStorage"));
    text(pickle, &key.to_string());
    text(pickle, "cpu");
    let elements: u64 = tensor.shape.iter().product();
    let items = match class {
        Some(_) => elements,
        None => tensor.bytes.len() as u64,
    };
    number(pickle, items);
    pickle.extend(b"tQ");
    number(pickle, 0);
    tuple(pickle, &tensor.shape);
    let strides: Vec<u64> = (1..=tensor.shape.len())
        .map(|after| tensor.shape[after..].iter().product())
        .collect();
    tuple(pickle, &strides);
    // requires_grad, and no hooks
    pickle.push(b'\x89');
    global(pickle, "collections\nOrderedDict");
    pickle.extend(b")R");
    if class.is_none() {
        let name = row(UNTYPED, &tensor.dtype);
        let name = name.unwrap_or_else(|| panic!("{} in a pickle", tensor.dtype));
        global(pickle, &format!("torch\n{name}"));
    }
    pickle.extend(b"tR");
}

/// Whether a state dict can be written of tensors of this dtype.
pub fn has_dtype(dtype: &str) -> bool {
    row(DTYPES, dtype).or_else(|| row(UNTYPED, dtype)).is_some()
}

fn global(pickle: &mut Vec<u8>, name: &str) {
    pickle.extend([b"c", name.as_bytes(), b"\n"].concat());
}

fn text(pickle: &mut Vec<u8>, text: &str) {
    pickle.push(b'X');
    pickle.extend(u32::try_from(text.len()).unwrap().to_le_bytes());
    pickle.extend(text.as_bytes());
}

/// `LONG1`, whose last byte has the sign.
fn number(pickle: &mut Vec<u8>, n: u64) {
    pickle.extend([&b"\x8a\x09"[..], &n.to_le_bytes(), b"\0"].concat());
}

fn tuple(pickle: &mut Vec<u8>, numbers: &[u64]) {
    pickle.push(b'(');
    numbers.iter().for_each(|n| number(pickle, *n));
    pickle.push(b't');
}

fn value(pickle: &mut Vec<u8>, entry: &Value) {
    match entry {
        Value::Null => pickle.push(b'N'),
        Value::Bool(on) => pickle.push(if *on { b'\x88' } else { b'\x89' }),
        Value::Number(n) => match n.as_u64() {
            Some(n) => number(pickle, n),
            None => {
                pickle.push(b'G');
                pickle.extend(n.as_f64().unwrap().to_be_bytes());
            }
        },
        Value::String(entry) => text(pickle, entry),
        Value::Array(items) => {
            pickle.extend(b"](");
            items.iter().for_each(|item| value(pickle, item));
            pickle.push(b'e');
        }
        Value::Object(items) => {
            pickle.extend(b"}(");
            for (key, item) in items {
                text(pickle, key);
                value(pickle, item);
            }
            pickle.push(b'u');
        }
    }
}
