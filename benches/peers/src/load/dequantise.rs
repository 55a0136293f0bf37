//! Quantised weights brought back, into memory of each kind.

use std::hint::black_box;

use anamnesis::{Checkpoint, Dtype, remember};

use super::variants::{Held, Variant, copied, touched};

/// As many bytes as all weights have in BF16, from memory to memory.
pub const LIMIT: &str = "limit: memcpy of the BF16 output";

pub static DEQUANTISE: &[Variant] = &[
    Variant {
        name: "ours, into the pool",
        reads: &[],
        load: |held, path| {
            let checkpoint = Checkpoint::open(path).unwrap();
            let all = remember(&checkpoint).all_in(&held.pool).unwrap();
            all.iter()
                .fold(0, |sum, weight| sum.wrapping_add(touched(&weight.bytes)))
        },
    },
    Variant {
        name: "ours, into new vectors",
        reads: &[],
        load: |_, path| {
            let checkpoint = Checkpoint::open(path).unwrap();
            let all = remember(&checkpoint).all().unwrap();
            all.iter()
                .fold(0, |sum, weight| sum.wrapping_add(touched(&weight.bytes)))
        },
    },
    Variant {
        name: "ours, to F32, one by one",
        reads: &[],
        load: |_, path| {
            let checkpoint = Checkpoint::open(path).unwrap();
            let brought = remember(&checkpoint).dtype(Dtype::F32);
            let names: Vec<Box<str>> = brought
                .plan()
                .unwrap()
                .jobs
                .iter()
                .map(|job| job.output.name.clone())
                .collect();
            names
                .iter()
                .for_each(|name| drop(black_box(brought.tensor(name).unwrap())));
            0
        },
    },
    #[cfg(feature = "candle")]
    Variant {
        name: "candle-core 0.9, to F32, one by one",
        reads: &["gguf"],
        load: super::candle::dequantise,
    },
    Variant {
        name: LIMIT,
        reads: &[],
        load: written,
    },
];

fn written(held: &mut Held, path: &str) -> u64 {
    let checkpoint = Checkpoint::open(path).unwrap();
    let elements: u64 = checkpoint
        .catalog()
        .tensors()
        .iter()
        .map(|tensor| tensor.shape.iter().product::<u64>())
        .sum();
    copied(held, usize::try_from(elements * 2).unwrap())
}
