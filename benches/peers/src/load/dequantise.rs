//! Quantised weights brought back, into memory of each kind.

use std::hint::black_box;

use anamnesis::{Checkpoint, Dtype, remember};

use super::variants::{Variant, touched};

pub static DEQUANTISE: &[Variant] = &[
    Variant {
        name: "ours, into the pool",
        reads: &[],
        load: |held, path| {
            let checkpoint = Checkpoint::open(path).unwrap();
            let all = remember(&checkpoint).all_in(&held.pool).unwrap();
            all.iter().fold(0, |sum, weight| sum.wrapping_add(touched(&weight.bytes)))
        },
    },
    Variant {
        name: "ours, into new vectors",
        reads: &[],
        load: |_, path| {
            let checkpoint = Checkpoint::open(path).unwrap();
            let all = remember(&checkpoint).all().unwrap();
            all.iter().fold(0, |sum, weight| sum.wrapping_add(touched(&weight.bytes)))
        },
    },
    Variant {
        name: "ours, to F32, one by one",
        reads: &[],
        load: |_, path| {
            let checkpoint = Checkpoint::open(path).unwrap();
            let brought = remember(&checkpoint).dtype(Dtype::F32);
            let names: Vec<Box<str>> = brought.plan().unwrap().jobs.iter().map(|job| job.output.name.clone()).collect();
            names.iter().for_each(|name| drop(black_box(brought.tensor(name).unwrap())));
            0
        },
    },
    #[cfg(feature = "candle")]
    Variant { name: "candle-core 0.9, to F32, one by one", reads: &["gguf"], load: super::candle::dequantise },
    Variant { name: "limit: memcpy of as many bytes", reads: &[], load: super::variants::copied },
];
