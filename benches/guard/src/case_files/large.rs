//! Generated safetensors and GGUF files.

use std::fmt::Write as _;

use super::{LOADED, TENSORS, WEIGHT};

/// `count` pseudo-random bytes, always the same.
fn codes(count: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()
    };
    let mut bytes: Vec<u8> = (0..count.div_ceil(8)).flat_map(|_| next()).collect();
    bytes.truncate(count);
    bytes
}

/// The name of tensor `i`, as in a mixture-of-experts model.
fn name(i: usize) -> String {
    format!(
        "model.layers.{}.mlp.experts.{}.gate_proj.weight",
        i / 64,
        i % 64
    )
}

/// A safetensors file of the tensors `numbers`, each `nbytes` of BF16.
fn safetensors(numbers: std::ops::Range<usize>, nbytes: usize, data: &[u8]) -> Vec<u8> {
    let mut header = String::from("{\"__metadata__\":{\"format\":\"pt\"}");
    for (row, i) in numbers.enumerate() {
        let (name, from) = (name(i), row * nbytes);
        let (end, len) = (from + nbytes, nbytes / 2);
        write!(
            header,
            ",\"{name}\":{{\"dtype\":\"BF16\",\"shape\":[1,{len}],\"data_offsets\":[{from},{end}]}}"
        )
        .expect("a string grows");
    }
    header.push('}');
    header.extend(std::iter::repeat_n(
        ' ',
        header.len().next_multiple_of(8) - header.len(),
    ));
    [
        &(header.len() as u64).to_le_bytes(),
        header.as_bytes(),
        data,
    ]
    .concat()
}

/// A safetensors file of many small tensors.
pub(super) fn header() -> Vec<u8> {
    safetensors(0..TENSORS, 2, &vec![0; TENSORS * 2])
}

/// 20 shards and their index file.
pub(super) fn shards() -> Vec<(String, Vec<u8>)> {
    let each = TENSORS / 20;
    let shard = |number: usize| format!("model-{:05}-of-00020.safetensors", number + 1);
    let row = |i: usize| format!("\"{}\":\"{}\"", name(i), shard(i / each));
    let rows: Vec<_> = (0..TENSORS).map(row).collect();
    let index = format!(
        "{{\"metadata\":{{\"total_size\":{}}},\"weight_map\":{{{}}}}}",
        TENSORS * 2,
        rows.join(",")
    );
    let part = |number| {
        (
            shard(number),
            safetensors(number * each..(number + 1) * each, 2, &vec![0; each * 2]),
        )
    };
    let index = (
        "model.safetensors.index.json".to_owned(),
        index.into_bytes(),
    );
    (0..20).map(part).chain([index]).collect()
}

/// The safetensors file of the load cases.
pub(super) fn loaded() -> Vec<u8> {
    let [count, nbytes] = LOADED;
    safetensors(0..count, nbytes, &codes(count * nbytes))
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

/// The first fields of a GGUF file.
fn gguf(tensors: usize, keys: u64) -> Vec<u8> {
    [
        b"GGUF\x03\0\0\0",
        &(tensors as u64).to_le_bytes()[..],
        &keys.to_le_bytes(),
    ]
    .concat()
}

/// A tensor's entry in the header of a GGUF file.
fn row(name: &str, shape: &[usize], dtype: u32, at: usize) -> Vec<u8> {
    let mut row = text(name);
    row.extend(u32::try_from(shape.len()).expect("two").to_le_bytes());
    shape
        .iter()
        .rev()
        .for_each(|&len| row.extend((len as u64).to_le_bytes()));
    row.extend(dtype.to_le_bytes());
    row.extend((at as u64).to_le_bytes());
    row
}

/// A tokenizer of 100 000 tokens with their scores, and a thousand tensors.
pub(super) fn tokens() -> Vec<u8> {
    const TOKENS: u64 = 100_000;
    const COUNT: usize = 1_000;
    let mut file = gguf(COUNT, 3);
    let key = |name: &str, element: u32| {
        [
            text(name),
            9u32.to_le_bytes().into(),
            element.to_le_bytes().into(),
            TOKENS.to_le_bytes().into(),
        ]
        .concat()
    };
    file.extend(
        [
            text("general.architecture"),
            8u32.to_le_bytes().into(),
            text("llama"),
        ]
        .concat(),
    );
    file.extend(key("tokenizer.ggml.tokens", 8));
    (0..TOKENS).for_each(|i| file.extend(text(&format!("token{i}"))));
    file.extend(key("tokenizer.ggml.scores", 6));
    (0..TOKENS).for_each(|_| file.extend(0f32.to_le_bytes()));
    for i in 0..COUNT {
        file.extend(row(
            &format!("blk.{}.ffn_{}.weight", i / 10, i % 10),
            &[8],
            0,
            i * 32,
        ));
    }
    file.resize(file.len().next_multiple_of(32) + COUNT * 32, 0);
    file
}

/// A GGUF file with one weight in Q4_0.
pub(super) fn q4_0() -> Vec<u8> {
    let blocks = WEIGHT.iter().product::<usize>() / 32;
    let mut file = gguf(1, 0);
    file.extend(row("blk.0.ffn_up.weight", &WEIGHT, 2, 0));
    file.resize(file.len().next_multiple_of(32), 0);
    let mut data = codes(blocks * 18);
    // scales of about one
    data.chunks_exact_mut(18).for_each(|block| block[1] = 0x3c);
    file.extend(data);
    file.resize(file.len().next_multiple_of(32), 0);
    file
}
