//! Searches the kernels' sources for closures with SIMD operations, which the compiler may build for the wrong instruction
//! set.

use std::fs;
use std::path::Path;

/// Files that consist of kernel code only, relative to `src`. Here no adapter that takes a function (`map`, `fold`, …) is
/// allowed. The other files may use them outside of kernels.
const KERNELS_ONLY: &[&str] = &[
    "block",
    "simd/avx2.rs",
    "simd/avx512.rs",
    "simd/x86.rs",
    "batch.rs",
    "codebook.rs",
    "element.rs",
    "grid.rs",
];

/// A closure in a kernel has the kernel's target features, and `array::map` has none, so the compiler may not inline it
/// there; then every operation in it is a call. If the closure itself is not inlined, it is compiled for the baseline.
/// Which of them happens depends on the rest of the program: AVX2 to BF16 was ten times slower in the command and as fast
/// as expected in the benchmarks (experiment 41). Functions can be `#[inline(always)]`, closures cannot.
#[test]
fn the_kernels_have_no_closure_with_simd_operations() {
    let mut found = Vec::new();
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let folders = ["", "block", "columns", "encode", "simd", "rows"]
        .map(|folder| fs::read_dir(src.join(folder)).unwrap());
    for path in folders
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path())
    {
        if path.extension().is_none_or(|e| e != "rs")
            || path.file_name().is_some_and(|name| name == "tests.rs")
        {
            continue;
        }
        let kernels_only = KERNELS_ONLY
            .iter()
            .any(|file| path.strip_prefix(&src).unwrap().starts_with(file));
        for (number, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            if has_simd_closure(line) || kernels_only && has_adapter(line) {
                found.push(format!(
                    "{}:{}: {}",
                    path.display(),
                    number + 1,
                    line.trim()
                ));
            }
        }
    }
    assert!(
        found.is_empty(),
        "replace these by loops, `unroll!` or `#[inline(always)]` functions:\n{}",
        found.join("\n")
    );
}

/// Whether a line calls an adapter that takes a function, mostly a closure.
fn has_adapter(line: &str) -> bool {
    [".map(", "from_fn(", ".for_each(", ".fold("]
        .iter()
        .any(|adapter| line.contains(adapter))
}

/// Whether a line has a closure with an operation of `Simd` in it: a method of `simd`, or a call that passes it on.
fn has_simd_closure(line: &str) -> bool {
    let Some((before, rest)) = line.split_once('|') else {
        return false;
    };
    let opens = before.trim_end().ends_with(['(', '=']) && !before.trim_start().starts_with("//");
    let body = if opens {
        rest.split_once('|').map_or("", |(_, body)| body)
    } else {
        ""
    };
    [" simd.", "(simd.", "[simd.", "(simd, "]
        .iter()
        .any(|operation| body.contains(operation))
}

#[test]
fn the_search_finds_closures_with_simd_operations_only() {
    assert!(has_simd_closure(
        "    O::put(simd, codes.map(|codes| simd.mul(codes, d)), out);"
    ));
    assert!(has_simd_closure(
        "    let thrice = |x: S::Bytes| simd.add_u8(simd.add_u8(x, x), x);"
    ));
    assert!(has_simd_closure(
        "    let scales = [0, 2].map(|at| batch::widen_scales(simd, blocks, at));"
    ));
    assert!(!has_simd_closure(
        "    let codes = simd.or(simd.and(low, mask), low | high);"
    ));
    assert!(!has_simd_closure(
        "    // a closure |x| simd.mul(x, x) in words"
    ));
    assert!(!has_simd_closure(
        "    let words = [0, 4].map(|at| u16::from_le_bytes(*part(block, at)));"
    ));
}
