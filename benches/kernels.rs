//! Kernel throughput: every block type to every output type, with the best build for this machine. Blocks and output fit the
//! second-level cache.
//!
//! `cargo bench --bench kernels [-- NAME]` reports elements per second. `tests/it/kernels.rs` verifies the results.
#![allow(missing_docs, clippy::cast_possible_truncation)] // criterion's macros define public functions; sizes are small

use std::hint::black_box;

use anamnesis::{BlockFormat, Dtype, kernel};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

/// Elements per call: at most 256 KiB of output, within the second-level cache.
const ELEMENTS: usize = 1 << 16;

fn kernels(c: &mut Criterion) {
    for format in BlockFormat::all() {
        let Ok(builds) = kernel::builds(format) else {
            continue;
        };
        let count = ELEMENTS / format.block_len as usize;
        // scales below one that are neither NaN nor subnormal, as in real weights
        let blocks: Vec<u8> = (0..count * format.block_bytes as usize)
            .map(|i| (0x20 + i * 131 % 0x1c) as u8)
            .collect();
        let mut group = c.benchmark_group(format!("{} ({})", format.name, builds[0]));
        group.throughput(Throughput::Elements(ELEMENTS as u64));
        for dtype in [Dtype::BF16, Dtype::F16, Dtype::F32] {
            let mut out = vec![0; dtype.nbytes(ELEMENTS as u64).map_or(0, |n| n as usize)];
            kernel::dequantize(format, &blocks, dtype, &mut out).expect("whole blocks");
            group.bench_function(dtype.name(), |b| {
                b.iter(|| {
                    kernel::dequantize(format, black_box(&blocks), dtype, black_box(&mut out))
                })
            });
        }
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).measurement_time(std::time::Duration::from_secs(1));
    targets = kernels
}
criterion_main!(benches);
