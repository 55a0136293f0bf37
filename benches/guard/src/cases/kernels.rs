//! Kernels: blocks of codes to elements.

use std::hint::black_box;

use anamnesis::{BlockFormat, Dtype, kernel};

use crate::case::{Case, Metric};

/// The kinds of block types: plain codes, super-blocks, grids, code books. The build for everybody is counted for these.
const KINDS: &[&str] = &["Q4_0", "Q8_0", "Q4_K", "Q6_K", "IQ2_XS", "MXFP4"];
/// Builds that callgrind can run, and one that only the processor can. They are counted for every type: what the compiler
/// does not put into a kernel, it makes without the instruction set, and calls.
const BUILDS: &[(&str, &[Metric])] = &[
    ("baseline", &[Metric::Instructions]),
    ("avx2", &[Metric::Instructions]),
    ("avx512bf16", &[Metric::Steps]),
];
const ELEMENTS: usize = 1 << 13;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for format in BlockFormat::all() {
        let name = format.name;
        for dtype in [Dtype::BF16, Dtype::F32] {
            for &(build, metrics) in BUILDS {
                if build == "baseline" && !KINDS.contains(&name) {
                    continue;
                }
                cases.push(Case::new(
                    format!("kernel {name} to {dtype}, {build}"),
                    metrics,
                    move || {
                        let count =
                            ELEMENTS / format.block_len as usize * format.block_bytes as usize;
                        // scales of up to one: neither NaN nor subnormal, as in real weights
                        let blocks: Vec<u8> = (0u8..=255)
                            .map(|i| 0x20 + i.wrapping_mul(131) % 0x1c)
                            .cycle()
                            .take(count)
                            .collect();
                        let made = |build: &str| {
                            let mut out =
                                vec![0; ELEMENTS * if dtype == Dtype::F32 { 4 } else { 2 }];
                            kernel::dequantize_with(build, format, &blocks, dtype, &mut out)
                                .expect(name);
                            out
                        };
                        let mut out = made(build);
                        assert!(
                            out == made("baseline") && out.iter().any(|&byte| byte != 0),
                            "{name}"
                        );
                        Box::new(move || {
                            let blocks = black_box(&*blocks);
                            kernel::dequantize_with(
                                build,
                                format,
                                blocks,
                                dtype,
                                black_box(&mut out),
                            )
                            .expect(name);
                        })
                    },
                ));
            }
        }
    }
    cases
}
