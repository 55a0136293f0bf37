//! Closures in the kernels' sources.

use std::fs;
use std::path::Path;

/// Where every line is a kernel's, so that there are no closures over elements at all.
const BODIES: &[&str] = &[
    "block",
    "lanes/avx2.rs",
    "lanes/avx512.rs",
    "batch.rs",
    "codebook.rs",
    "element.rs",
    "grid.rs",
];

/// A closure that the compiler does not put into its caller is compiled for the baseline, and each operation in it
/// becomes a call; one that has the instruction set cannot be put into `array::map`, which has it not. Which are, changes with
/// the program around: AVX2 to BF16 was ten times slower so in the command, and as fast as it should be in the benchmarks.
/// Functions can be made `#[inline(always)]`, closures cannot.
#[test]
fn none_has_operations() {
    let mut found = Vec::new();
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let folders = ["", "block", "columns", "lanes", "rows"]
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
        let body = BODIES
            .iter()
            .any(|body| path.strip_prefix(&src).unwrap().starts_with(body));
        for (number, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            if operates(line) || body && goes_over(line) {
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
        "write these out, or as functions that are always inlined:\n{}",
        found.join("\n")
    );
}

/// Whether a line calls something, a closure mostly, for each of many.
fn goes_over(line: &str) -> bool {
    [".map(", "from_fn(", ".for_each(", ".fold("]
        .iter()
        .any(|over| line.contains(over))
}

/// Whether a line has a closure with an operation of `Lanes` in it.
fn operates(line: &str) -> bool {
    let Some((before, rest)) = line.split_once('|') else {
        return false;
    };
    let opens = before.trim_end().ends_with(['(', '=']) && !before.trim_start().starts_with("//");
    let body = if opens {
        rest.split_once('|').map_or("", |(_, body)| body)
    } else {
        ""
    };
    [" s.", "(s.", "[s.", "(s, "]
        .iter()
        .any(|operation| body.contains(operation))
}

#[test]
fn closures_with_operations_are_found() {
    assert!(operates(
        "    O::put(s, codes.map(|codes| s.mul(codes, d)), out);"
    ));
    assert!(operates(
        "    let thrice = |x: S::Bytes| s.add_bytes(s.add_bytes(x, x), x);"
    ));
    assert!(operates(
        "    let scales = [0, 2].map(|at| batch::scales(s, blocks, at));"
    ));
    assert!(!operates(
        "    let codes = s.or(s.and(low, mask), low | high);"
    ));
    assert!(!operates("    // a closure |x| s.mul(x, x) in words"));
    assert!(!operates(
        "    let words = [0, 4].map(|at| u16::from_le_bytes(*part(block, at)));"
    ));
}
