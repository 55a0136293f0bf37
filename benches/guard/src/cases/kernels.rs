//! Kernels: dequantising blocks of each type with each build.

use std::hint::black_box;

use anamnesis::{BlockFormat, Dtype, kernel};

use crate::case::{Case, Metric};

/// Types whose baseline build is counted too: one or two of each kind (plain codes, super-blocks, grids, codebooks).
const BASELINE_TYPES: &[&str] = &["Q4_0", "Q8_0", "Q4_K", "Q6_K", "IQ2_XS", "MXFP4"];
/// The counted builds: callgrind runs AVX2, only the processor runs AVX-512. Every type is counted with both, because a
/// function that is not inlined into a kernel is compiled without its instruction set and becomes calls, which shows in
/// the count (experiment 41).
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
                if build == "baseline" && !BASELINE_TYPES.contains(&name) {
                    continue;
                }
                cases.push(Case::new(
                    format!("kernel {name} to {dtype}, {build}"),
                    metrics,
                    move || {
                        let count =
                            ELEMENTS / format.block_len as usize * format.block_bytes as usize;
                        // scales below one that are neither NaN nor subnormal, as in real weights
                        let blocks: Vec<u8> = (0u8..=255)
                            .map(|i| 0x20 + i.wrapping_mul(131) % 0x1c)
                            .cycle()
                            .take(count)
                            .collect();
                        let dequantised_by = |build: &str| {
                            let mut out =
                                vec![0; ELEMENTS * if dtype == Dtype::F32 { 4 } else { 2 }];
                            kernel::dequantize_with(build, format, &blocks, dtype, &mut out)
                                .expect(name);
                            out
                        };
                        let mut out = dequantised_by(build);
                        assert!(
                            out == dequantised_by("baseline") && out.iter().any(|&byte| byte != 0),
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
