//! Opening a file of many gigabytes reads its header and little more.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::support::skip;
use crate::support::sparse_file::{self, CountingSource, SparseFile};
use anamnesis::{Checkpoint, OpenOptions};

/// What may be read beyond the header: the issue's own figure.
const SLACK: u64 = 256 << 10;

type Case = (&'static str, fn() -> SparseFile, usize);

static CASES: &[Case] = &[
    ("big.safetensors", sparse_file::safetensors, 300),
    ("big.gguf", sparse_file::gguf, 64),
    ("big.npy", sparse_file::npy, 1),
    ("big.npz", sparse_file::npz, 5),
    ("big.pth", sparse_file::pth, 300),
    ("big-legacy.pth", sparse_file::pth_legacy, 300),
];

#[test]
fn a_counting_source_sees_the_header_and_little_more() {
    for (name, make, tensors) in CASES {
        let file = make();
        let (header, len) = (file.header_bytes, file.len);
        let counting = CountingSource::new(file);
        let reads = counting.reads.clone();
        let checkpoint =
            Checkpoint::from_source(counting).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(checkpoint.catalog().tensors().len(), *tensors, "{name}");
        let reads = reads.lock().unwrap();
        let read: u64 = reads.iter().map(|(_, n)| n).sum();
        // what a disk would have to bring: whole pages
        let pages: BTreeSet<u64> = reads
            .iter()
            .flat_map(|(at, n)| at / 4096..=(at + n.max(&1) - 1) / 4096)
            .collect();
        let paged = pages.len() as u64 * 4096;
        println!(
            "{name}: {len} bytes, header {header}, read {read} in {} reads, {paged} in pages",
            reads.len()
        );
        assert!(len > 2 << 30, "{name} is not large");
        assert!(
            read <= header + SLACK,
            "{name}: read {read} bytes for a header of {header}"
        );
        assert!(
            paged <= header + SLACK,
            "{name}: {paged} bytes of pages for a header of {header}"
        );
    }
}

#[test]
fn a_cold_file_is_mapped_and_not_read() {
    let has = |tool: &str| {
        Command::new(tool)
            .arg("--version")
            .output()
            .is_ok_and(|o| o.status.success())
    };
    if !cfg!(target_os = "linux") || !has("fincore") || !has("dd") {
        return skip("needs fincore and dd");
    }
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for (name, make, tensors) in CASES {
        let file = make();
        let path = directory.join(name);
        if let Err(e) = file.write(&path) {
            skip(&format!("{name}: no room for a sparse file: {e}"));
            continue;
        }
        for map in [true, false] {
            drop_cache(&path);
            let before = resident(&path);
            let checkpoint = OpenOptions::new().mmap(map).open(&path).unwrap();
            assert_eq!(checkpoint.catalog().tensors().len(), *tensors, "{name}");
            let after = resident(&path);
            println!(
                "{name}, mapped {map}: header {}, resident {before} then {after}",
                file.header_bytes
            );
            if before == 0 {
                assert!(
                    after <= file.header_bytes + SLACK,
                    "{name}: {after} bytes are resident after opening (map {map})"
                );
            } else {
                skip(&format!("{name}: {before} bytes stay in the page cache"));
            }
        }
        std::fs::remove_file(&path).unwrap();
    }
}

/// Drops this file, and no other, from the page cache.
fn drop_cache(path: &Path) {
    let from = format!("if={}", path.display());
    Command::new("dd")
        .args([from.as_str(), "iflag=nocache", "count=0"])
        .output()
        .unwrap();
}

fn resident(path: &Path) -> u64 {
    let out = Command::new("fincore")
        .args(["--bytes", "--noheadings", "--output", "RES"])
        .arg(path)
        .output()
        .unwrap();
    String::from_utf8_lossy(&out.stdout)
        .trim()
        .parse()
        .unwrap_or(0)
}
