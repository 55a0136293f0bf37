//! Mutations of tensors and configurations, each with a description.

use anamnesis::Dtype;
use serde_json::Value;

use crate::support::random::random_bytes;
use crate::support::writers::StoredTensor;

/// Sizes that replace a dimension.
pub(crate) fn mutated_sizes(d: u64) -> [u64; 9] {
    [
        0,
        1,
        d.saturating_sub(1),
        d + 1,
        d / 2,
        d * 2,
        7,
        1 << 40,
        u64::MAX,
    ]
}

/// The tensor with as many bytes as dtype and shape need, if that is at most 1 MiB: a mismatch would be refused when the file is
/// opened.
fn with_matching_bytes(mut tensor: StoredTensor) -> StoredTensor {
    let elements = match tensor.shape.contains(&0) {
        true => Some(0),
        false => tensor.shape.iter().try_fold(1u64, |n, d| n.checked_mul(*d)),
    };
    let nbytes = elements.and_then(|n| Dtype::from_name(&tensor.dtype)?.nbytes(n));
    if let Some(n) = nbytes.filter(|n| *n <= 1 << 20) {
        tensor.bytes.resize(usize::try_from(n).unwrap(), 0x5a);
    }
    tensor
}

/// Every mutation of one tensor: the tensors that replace it.
pub(crate) fn mutated_tensors(
    tensor: &StoredTensor,
    others: &[StoredTensor],
) -> Vec<(String, Vec<StoredTensor>)> {
    let mut mutations: Vec<(String, Vec<StoredTensor>)> = Vec::new();
    let mut mutate = |what: String, change: &dyn Fn(&mut StoredTensor)| {
        let mut changed = tensor.clone();
        change(&mut changed);
        mutations.push((what, vec![changed]));
    };
    for dtype in Dtype::all() {
        let name = dtype.name().to_owned();
        mutate(format!("dtype {name}, same shape"), &|t| {
            t.dtype.clone_from(&name);
            *t = with_matching_bytes(t.clone());
        });
        mutate(format!("dtype {name}, same number of bytes"), &|t| {
            let (old, new) = (Dtype::from_name(&t.dtype).unwrap().bits(), dtype.bits());
            if let Some(last) = t.shape.last_mut() {
                *last = *last * old / new;
            }
            t.dtype.clone_from(&name);
            *t = with_matching_bytes(t.clone());
        });
    }
    for (i, &d) in tensor.shape.iter().enumerate() {
        for size in mutated_sizes(d) {
            mutate(format!("dimension {i} of {size}"), &|t| {
                t.shape[i] = size;
                *t = with_matching_bytes(t.clone());
            });
            // a tensor without elements may have any size in its other dimensions
            mutate(format!("dimension {i} of {size}, the others 0"), &|t| {
                t.shape.fill(0);
                t.shape[i] = size;
                *t = with_matching_bytes(t.clone());
            });
        }
    }
    for shape in [
        vec![],
        vec![1],
        vec![0],
        vec![1, 1],
        [&[1], &tensor.shape[..]].concat(),
        [&tensor.shape[..], &[1]].concat(),
    ] {
        mutate(format!("shape {shape:?}"), &|t| {
            t.shape.clone_from(&shape);
            *t = with_matching_bytes(t.clone());
        });
    }
    mutate("reversed shape".into(), &|t| t.shape.reverse());
    mutate("flattened shape".into(), &|t| {
        t.shape = vec![t.shape.iter().product()]
    });
    mutate("renamed".into(), &|t| t.name.push('x'));
    mutate("without module path".into(), &|t| {
        t.name = t.name.rsplit('.').next().unwrap().to_owned()
    });
    for other in others.iter().filter(|other| other.name != tensor.name) {
        mutate(format!("contents of {}", other.name), &|t| {
            *t = StoredTensor {
                name: t.name.clone(),
                ..other.clone()
            };
        });
    }
    for fill in [0, 1, 0x7f, 0x80, 0xff] {
        mutate(format!("filled with {fill:#x}"), &|t| t.bytes.fill(fill));
    }
    // small tensors may describe the scheme, so more of their bits are flipped
    let flips = if tensor.bytes.len() <= 2048 { 24 } else { 2 };
    for seed in 0..flips {
        mutate(format!("one bit flipped, seed {seed}"), &|t| {
            let random = u64::from_le_bytes(random_bytes(seed, 8).try_into().unwrap());
            if let Some(n) = (random >> 8).checked_rem(t.bytes.len() as u64) {
                t.bytes[usize::try_from(n).unwrap()] ^= 1 << (random & 7);
            }
        });
        mutate(format!("random bytes, seed {seed}"), &|t| {
            t.bytes = random_bytes(seed, t.bytes.len())
        });
    }
    mutations.push(("removed".into(), Vec::new()));
    mutations
}

/// The configuration with one value changed.
pub(crate) fn mutated_configs(text: &[u8]) -> Vec<(String, Vec<u8>)> {
    let Ok(original) = serde_json::from_slice::<Value>(text) else {
        return Vec::new();
    };
    let mut pointers = Vec::new();
    collect_pointers(&original, String::new(), &mut pointers);
    let mut changed = Vec::new();
    let replacements = [
        "0",
        "1",
        "-1",
        "3",
        "64",
        "1099511627776",
        "18446744073709551615",
        "2.5",
        "null",
        "\"x\"",
        "[]",
        "{}",
        "true",
    ];
    for pointer in &pointers {
        for replacement in replacements {
            let mut config = original.clone();
            *config.pointer_mut(pointer).unwrap() = serde_json::from_str(replacement).unwrap();
            changed.push((
                format!("configuration {pointer} = {replacement}"),
                serde_json::to_vec(&config).unwrap(),
            ));
        }
    }
    changed
}

/// The JSON pointer of every value below and at `pointer`.
fn collect_pointers(value: &Value, pointer: String, pointers: &mut Vec<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            collect_pointers(
                value,
                format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1")),
                pointers,
            );
        }),
        Value::Array(list) => {
            list.iter()
                .enumerate()
                .for_each(|(i, value)| collect_pointers(value, format!("{pointer}/{i}"), pointers));
        }
        _ => {}
    }
    if !pointer.is_empty() {
        pointers.push(pointer);
    }
}
