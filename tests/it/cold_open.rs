//! Opening a file of several gigabytes reads its header and at most 256 KiB more, counted by a source and by the pages that
//! `fincore` reports as resident.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::support::skip;
use crate::support::sparse_file::{self, CountingSource, SparseFile};
use anamnesis::{Checkpoint, OpenOptions};

/// Bytes that may be read beyond the header.
const SLACK: u64 = 256 << 10;

/// File name, how to generate it, and its number of tensors.
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
fn opening_a_source_reads_little_beyond_the_header() {
    for (name, generate, tensors) in CASES {
        let file = generate();
        let (header, len) = (file.header_bytes, file.len);
        let counting = CountingSource::new(file);
        let reads = counting.reads.clone();
        let checkpoint =
            Checkpoint::from_source(counting).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(checkpoint.catalog().tensors().len(), *tensors, "{name}");
        let reads = reads.lock().unwrap();
        let read: u64 = reads.iter().map(|(_, n)| n).sum();
        // a disk reads whole pages
        let pages: BTreeSet<u64> = reads
            .iter()
            .flat_map(|(at, n)| at / 4096..=(at + n.max(&1) - 1) / 4096)
            .collect();
        let page_bytes = pages.len() as u64 * 4096;
        println!(
            "{name}: {len} bytes, header {header}, read {read} in {} reads, {page_bytes} in pages",
            reads.len()
        );
        assert!(len > 2 << 30, "{name} is not large");
        assert!(
            read <= header + SLACK,
            "{name}: read {read} bytes for a header of {header}"
        );
        assert!(
            page_bytes <= header + SLACK,
            "{name}: {page_bytes} bytes of pages for a header of {header}"
        );
    }
}

#[test]
fn opening_a_cold_file_makes_few_pages_resident() {
    let is_installed = |tool: &str| {
        Command::new(tool)
            .arg("--version")
            .output()
            .is_ok_and(|o| o.status.success())
    };
    if !cfg!(target_os = "linux") || !is_installed("fincore") || !is_installed("dd") {
        return skip("fincore or dd is not installed");
    }
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for (name, generate, tensors) in CASES {
        let file = generate();
        let path = directory.join(name);
        if let Err(e) = file.write(&path) {
            skip(&format!("{name}: a sparse file cannot be written: {e}"));
            continue;
        }
        for map in [true, false] {
            evict(&path);
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
                skip(&format!(
                    "{name}: {before} bytes cannot be evicted from the page cache"
                ));
            }
        }
        std::fs::remove_file(&path).unwrap();
    }
}

/// Evicts this file from the page cache; `dd` with `nocache` and a count of 0 covers the whole file.
fn evict(path: &Path) {
    let from = format!("if={}", path.display());
    Command::new("dd")
        .args([from.as_str(), "iflag=nocache", "count=0"])
        .output()
        .unwrap();
}

/// Bytes of the file that are resident.
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
