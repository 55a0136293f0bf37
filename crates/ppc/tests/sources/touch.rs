//! Reads mapped memory, as a program that maps a model does.
#![allow(unsafe_code)]

use std::fs::File;
use std::path::Path;

/// Reads a byte of every page of `start..end`.
pub(crate) fn map(path: &Path, start: u64, end: u64, advice: Option<memmap2::Advice>) {
    let file = File::open(path).unwrap();
    let map = memmap2::MmapOptions::new()
        .map_raw_read_only(&file)
        .unwrap();
    if let Some(advice) = advice {
        map.advise(advice).unwrap();
    }
    let mut sum = 0u64;
    for at in (start..end).step_by(4096) {
        sum += u64::from(touch(&map, usize::try_from(at).unwrap()));
    }
    std::hint::black_box(sum);
}

fn touch(map: &memmap2::MmapRaw, at: usize) -> u8 {
    assert!(at < map.len());
    let address = map.as_ptr().wrapping_add(at);
    // SAFETY: `at` is within the map, which outlives the read.
    unsafe { address.read_volatile() }
}
