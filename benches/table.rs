//! The table of docs/performance.md: every block type, by every build that this machine runs, to every output.
//!
//! `cargo bench --bench table [-- TYPE…]`. One thread, buffers that stay in the second-level cache, the best of
//! many short runs, in 10⁹ elements per second; `tests/kernels.rs` proves the bits. `memcpy` is the copying of as
//! many bytes as the output has.
#![allow(missing_docs, clippy::cast_possible_truncation)] // a program; small numbers

use std::hint::black_box;
use std::time::Instant;

use anamnesis::{BlockFormat, Dtype, kernel};

/// Elements at a time: blocks and output stay in the second-level cache.
const ELEMENTS: usize = 1 << 16;
const OUTPUTS: [Dtype; 3] = [Dtype::BF16, Dtype::F16, Dtype::F32];
/// Rounds over everything, so that a disturbance meets one of them; runs in each.
const ROUNDS: usize = 8;
const RUNS: usize = 40;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let formats: Vec<&BlockFormat> = BlockFormat::all()
        .iter()
        .filter(|format| wanted.is_empty() || wanted.iter().any(|name| name.eq_ignore_ascii_case(format.name)))
        .filter(|format| kernel::builds(format).is_ok())
        .collect();
    let mut builds = kernel::builds(formats.first().expect("a type by that name")).expect("a kernel");
    builds.reverse();
    println!("| type | {} |", builds.join(" | "));
    println!("|---|{}", "---|".repeat(builds.len()));
    let copied: Vec<String> = OUTPUTS.iter().map(|dtype| figure(memcpy(*dtype))).collect();
    println!("| memcpy |{}", format!(" {} |", copied.join(" / ")).repeat(builds.len()));
    for format in formats {
        let mut best = vec![[f64::INFINITY; OUTPUTS.len()]; builds.len()];
        let blocks = blocks(format);
        for _ in 0..ROUNDS {
            for (build, best) in builds.iter().zip(&mut best) {
                for (dtype, best) in OUTPUTS.into_iter().zip(best) {
                    let mut out = vec![0; bytes(dtype)];
                    let run = || kernel::dequantize_with(build, format, black_box(&blocks), dtype, black_box(&mut out));
                    *best = best.min(seconds(run));
                }
            }
        }
        let cells = best.iter().map(|best| best.map(figure).join(" / "));
        println!("| {} | {} |", format.name, cells.collect::<Vec<_>>().join(" | "));
    }
}

/// Scales of about one: neither NaN nor subnormal, as in real weights.
fn blocks(format: &BlockFormat) -> Vec<u8> {
    let count = ELEMENTS / format.block_len as usize;
    (0..count * format.block_bytes as usize).map(|i| (i * 131 % 0x3c) as u8).collect()
}

fn bytes(dtype: Dtype) -> usize {
    dtype.nbytes(ELEMENTS as u64).expect("a plain dtype") as usize
}

fn memcpy(dtype: Dtype) -> f64 {
    let (from, mut to) = (vec![1u8; bytes(dtype)], vec![0; bytes(dtype)]);
    (0..ROUNDS).map(|_| seconds(|| black_box(&mut to).copy_from_slice(black_box(&from)))).fold(f64::INFINITY, f64::min)
}

/// The best of some runs.
fn seconds<T>(mut run: impl FnMut() -> T) -> f64 {
    let once = |_| {
        let start = Instant::now();
        black_box(run());
        start.elapsed().as_secs_f64()
    };
    (0..RUNS).map(once).fold(f64::INFINITY, f64::min)
}

fn figure(seconds: f64) -> String {
    format!("{:.1}", ELEMENTS as f64 / seconds / 1e9)
}
