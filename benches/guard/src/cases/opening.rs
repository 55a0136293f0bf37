//! Opening files of each format, and planning their dequantisation.

use anamnesis::{Checkpoint, remember};

use crate::case::{Case, Metric};
use crate::case_files::{MEMBERS, TENSORS};

const OPEN: &[Metric] = &[
    Metric::Instructions,
    Metric::BytesRead,
    Metric::ReadCalls,
    Metric::Allocations,
    Metric::HeapPeak,
];
const PLAN: &[Metric] = &[Metric::Instructions, Metric::Allocations, Metric::HeapPeak];

/// The opened files: name, path, number of tensors.
const FILES: &[(&str, &str, usize)] = &[
    (
        "safetensors, small",
        "safetensors/all_dtypes.safetensors",
        19,
    ),
    ("safetensors, large", "large/header.safetensors", TENSORS),
    ("sharded, small", "safetensors/sharded", 4),
    ("sharded, large", "large/shards", TENSORS),
    ("gguf, small", "model/scribe-Q8_0.gguf", 20),
    ("gguf, tokenizer", "large/tokens.gguf", 1_000),
    ("npy, small", "npy/v1.npy", 1),
    ("npy, version 2", "npy/hdr_big_v2.npy", 1),
    ("npz, small", "npz/all_le.npz", 14),
    ("npz, deflated", "npz/all_le_compressed.npz", 14),
    ("npz, large", "large/arrays.npz", MEMBERS),
    ("pth, small", "pth/state_dict.pth", 4),
    ("pth, legacy", "pth/many.legacy.pth", 120),
    ("pth, large", "large/state.pth", MEMBERS),
];

pub(super) fn cases() -> Vec<Case> {
    let open = |&(name, path, tensors): &(&str, &'static str, usize)| {
        Case::new(format!("open {name}"), OPEN, move || {
            let open = move || Checkpoint::open(path).expect(path);
            assert_eq!(open().catalog().tensors().len(), tensors, "{path}");
            Box::new(move || drop(open()))
        })
        .repeated(repeat(tensors))
    };
    let plan = |&(name, path, jobs): &(&str, &'static str, usize)| {
        Case::new(format!("plan {name}"), PLAN, move || {
            let checkpoint = Checkpoint::open(path).expect(path);
            let plan = move || remember(&checkpoint).plan().expect(path);
            assert_eq!(plan().jobs.len(), jobs, "{path}");
            Box::new(move || drop(plan()))
        })
        .repeated(repeat(jobs))
    };
    let planned = [
        ("gguf", "model/scribe-Q8_0.gguf", 20),
        ("safetensors, large", "large/header.safetensors", TENSORS),
    ];
    FILES
        .iter()
        .map(open)
        .chain(planned.iter().map(plan))
        .collect()
}

fn repeat(tensors: usize) -> u32 {
    if tensors < MEMBERS { 32 } else { 1 }
}
