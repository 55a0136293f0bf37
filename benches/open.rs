//! Opening files of every format: mapped, by positioned reads, and through a forward-only reader.
//!
//! `cargo bench --bench open`. Each bench verifies the number of tensors before it measures.
#![allow(missing_docs)] // criterion's macros define public functions

use std::fmt::Write as _;
use std::fs::File;
use std::hint::black_box;
use std::path::{Path, PathBuf};

use anamnesis::{Checkpoint, OpenOptions};
use criterion::{Criterion, criterion_group, criterion_main};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures")
        .join(name)
}

/// A safetensors file of 20 000 tensors of one element each.
fn many_tensors() -> Vec<u8> {
    let mut header = String::from("{");
    for i in 0..20_000 {
        let comma = if i > 0 { "," } else { "" };
        let (layer, expert, from) = (i / 64, i % 64, i * 2);
        write!(
            header,
            "{comma}\"model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight\":\
             {{\"dtype\":\"BF16\",\"shape\":[1,1],\"data_offsets\":[{from},{}]}}",
            from + 2
        )
        .expect("writing to a string cannot fail");
    }
    header.push('}');
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.into_bytes());
    file.resize(file.len() + 40_000, 0);
    file
}

/// A GGUF file with a tokenizer of 150 000 tokens and one tensor.
fn large_tokenizer() -> Vec<u8> {
    let string = |s: &str| [&(s.len() as u64).to_le_bytes(), s.as_bytes()].concat();
    let mut file = b"GGUF\x03\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0".to_vec();
    file.extend(string("tokenizer.ggml.tokens"));
    file.extend([9, 0, 0, 0, 8, 0, 0, 0]);
    file.extend(150_000u64.to_le_bytes());
    for i in 0..150_000 {
        file.extend(string(&format!("token{i}")));
    }
    file.extend(string("t"));
    file.extend([
        1, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ]);
    file.resize(file.len().next_multiple_of(32) + 32, 0);
    file
}

fn open(c: &mut Criterion) {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let made = |name: &str, bytes: Vec<u8>| {
        let path = directory.join(name);
        std::fs::write(&path, bytes).expect("the target directory is writable");
        path
    };
    let files = [
        (
            "safetensors, 20 000 tensors",
            made("many.safetensors", many_tensors()),
            20_000,
        ),
        (
            "gguf, 150 000 tokens",
            made("tokens.gguf", large_tokenizer()),
            1,
        ),
        ("gguf, small", fixture("model/scribe-Q8_0.gguf"), 20),
        ("npz, 14 arrays", fixture("npz/all_le.npz"), 14),
        (
            "npz, 14 deflated arrays",
            fixture("npz/all_le_compressed.npz"),
            14,
        ),
        ("pth, 120 tensors", fixture("pth/many.pth"), 120),
        (
            "pth, legacy, 120 tensors",
            fixture("pth/many.legacy.pth"),
            120,
        ),
    ];
    for (name, path, tensors) in files {
        let count = |checkpoint: Checkpoint| checkpoint.catalog().tensors().len();
        assert_eq!(
            count(Checkpoint::open(&path).expect(name)),
            tensors,
            "{name}"
        );
        let mut group = c.benchmark_group(name);
        group.bench_function("mapped", |b| {
            b.iter(|| count(Checkpoint::open(black_box(&path)).expect(name)))
        });
        let read = OpenOptions::new().mmap(false);
        group.bench_function("read", |b| {
            b.iter(|| count(read.open(black_box(&path)).expect(name)))
        });
        group.bench_function("reader", |b| {
            b.iter(|| {
                count(
                    Checkpoint::from_reader(File::open(black_box(&path)).expect(name)).expect(name),
                )
            })
        });
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(30).measurement_time(std::time::Duration::from_secs(2));
    targets = open
}
criterion_main!(benches);
