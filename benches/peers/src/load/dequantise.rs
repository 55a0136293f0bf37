//! Variants that dequantise all weights of a file: into the pool, into new memory, one at a time.

use std::hint::black_box;

use anamnesis::{Checkpoint, Dtype, remember};

use super::variants::{LoadVariant, ProcessState, copied, touched};

/// A copy of as many bytes as all weights have in BF16.
pub const LIMIT: &str = "limit: memcpy of the BF16 output";

pub static DEQUANTISE: &[LoadVariant] = &[
    LoadVariant {
        name: "ours, into the pool",
        reads: &[],
        load: |state, path| {
            let checkpoint = Checkpoint::open(path).unwrap();
            let all = remember(&checkpoint).all_in(&state.pool).unwrap();
            all.iter()
                .fold(0, |sum, weight| sum.wrapping_add(touched(&weight.bytes)))
        },
    },
    LoadVariant {
        name: "ours, into new vectors",
        reads: &[],
        load: |_, path| {
            let checkpoint = Checkpoint::open(path).unwrap();
            let all = remember(&checkpoint).all().unwrap();
            all.iter()
                .fold(0, |sum, weight| sum.wrapping_add(touched(&weight.bytes)))
        },
    },
    LoadVariant {
        name: "ours, to F32, one at a time",
        reads: &[],
        load: |_, path| {
            let checkpoint = Checkpoint::open(path).unwrap();
            let dequantised = remember(&checkpoint).dtype(Dtype::F32);
            let names: Vec<Box<str>> = dequantised
                .plan()
                .unwrap()
                .jobs
                .iter()
                .map(|job| job.output.name.clone())
                .collect();
            names
                .iter()
                .for_each(|name| drop(black_box(dequantised.tensor(name).unwrap())));
            0
        },
    },
    #[cfg(feature = "candle")]
    LoadVariant {
        name: "candle-core 0.9, to F32, one at a time",
        reads: &["gguf"],
        load: super::candle::dequantise,
    },
    LoadVariant {
        name: LIMIT,
        reads: &[],
        load: copy_of_output_size,
    },
];

fn copy_of_output_size(state: &mut ProcessState, path: &str) -> u64 {
    let checkpoint = Checkpoint::open(path).unwrap();
    let elements: u64 = checkpoint
        .catalog()
        .tensors()
        .iter()
        .map(|tensor| tensor.shape.iter().product::<u64>())
        .sum();
    copied(state, usize::try_from(elements * 2).unwrap())
}
