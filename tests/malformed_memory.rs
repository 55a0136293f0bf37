//! What hostile files cost in memory. A test binary of its own: the peak is that of the process.

mod support;

use support::{malformed_files, skip};

/// The library's own bound is 160 MiB, of what a file decides; the rest is the file, the process and slack.
const PEAK: u64 = 256 << 20;

#[test]
fn every_malformed_file_is_answered_in_little_memory() {
    if peak().is_none() {
        return skip("the peak of memory is known on Linux only");
    }
    let Some(wrong) = malformed_files::violations() else {
        return;
    };
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let peak = peak().unwrap();
    println!("peak: {} MiB", peak >> 20);
    assert!(peak < PEAK, "{peak} bytes at the peak");
}

/// The most bytes that were resident in this process.
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}
