//! Reads of mapped memory, as of programs that map a model.
#![allow(unsafe_code)]

use std::fs::File;
use std::path::Path;

/// Reads a byte of every page of `start..end` through a mapping.
pub(crate) fn read_mapped(path: &Path, start: u64, end: u64, advice: Option<memmap2::Advice>) {
    let file = File::open(path).unwrap();
    let map = memmap2::MmapOptions::new()
        .map_raw_read_only(&file)
        .unwrap();
    if let Some(advice) = advice {
        map.advise(advice).unwrap();
    }
    let mut sum = 0u64;
    for offset in (start..end).step_by(4096) {
        sum += u64::from(read_byte(&map, usize::try_from(offset).unwrap()));
    }
    std::hint::black_box(sum);
}

fn read_byte(map: &memmap2::MmapRaw, offset: usize) -> u8 {
    assert!(offset < map.len());
    let address = map.as_ptr().wrapping_add(offset);
    // SAFETY: `offset` is within the mapping, which outlives the read.
    unsafe { address.read_volatile() }
}
