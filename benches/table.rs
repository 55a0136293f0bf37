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
                    let mut space = vec![0; bytes(dtype) + 64];
                    let out = aligned(&mut space);
                    let run =
                        || kernel::dequantize_with(build, format, black_box(&blocks), dtype, black_box(&mut *out));
                    *best = best.min(seconds(run));
                }
            }
        }
        let cells = best.iter().map(|best| best.map(figure).join(" / "));
        println!("| {} | {} |", format.name, cells.collect::<Vec<_>>().join(" | "));
    }
}

/// Random blocks with scales as real weights have them, a hundredth or so: neither subnormal nor NaN.
fn blocks(format: &BlockFormat) -> Vec<u8> {
    let mut state = 1u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    };
    let count = ELEMENTS / format.block_len as usize;
    let mut blocks: Vec<u8> = (0..count * format.block_bytes as usize).map(|_| random()).collect();
    for block in blocks.chunks_mut(format.block_bytes as usize) {
        // upper bytes of F16 scales
        let at: &[usize] = match format.name {
            "Q4_1" | "Q5_1" | "Q4_K" | "Q5_K" => &[1, 3],
            "Q2_K" => &[81, 83],
            "Q3_K" => &[109],
            "Q6_K" => &[209],
            "TQ1_0" => &[53],
            "TQ2_0" => &[65],
            "IQ1_M" | "MXFP4" | "NVFP4" | "Q8_K" => &[],
            _ => &[1],
        };
        at.iter().for_each(|at| block[*at] = 0x20 | block[*at] & 7);
        match format.name {
            "MXFP4" => block[0] = 0x78 | block[0] & 7,
            "NVFP4" => block[..4].iter_mut().for_each(|scale| *scale = 0x20 | *scale & 0x1f),
            "Q8_K" => block[3] = 0x3c,
            // the F16's upper nibbles
            "IQ1_M" => (block[53], block[55]) = (block[53] & 15, 0x20 | block[55] & 15),
            _ => (),
        }
    }
    blocks
}

fn bytes(dtype: Dtype) -> usize {
    dtype.nbytes(ELEMENTS as u64).expect("a plain dtype") as usize
}

/// All but 64 bytes, from where a cache line begins, as buffers of the pool do.
fn aligned(space: &mut [u8]) -> &mut [u8] {
    let len = space.len() - 64;
    let start = space.as_ptr().align_offset(64);
    &mut space[start..start + len]
}

fn memcpy(dtype: Dtype) -> f64 {
    let (mut from, mut to) = (vec![1; bytes(dtype) + 64], vec![0; bytes(dtype) + 64]);
    let (from, to) = (aligned(&mut from), aligned(&mut to));
    let mut copy = || black_box(&mut *to).copy_from_slice(black_box(from));
    (0..ROUNDS).map(|_| seconds(&mut copy)).fold(f64::INFINITY, f64::min)
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
