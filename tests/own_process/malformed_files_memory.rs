//! The peak memory of a process that opens and reads every malformed file of the shared corpus. The kernel reports the
//! peak per process.

use crate::in_own_process;
use crate::support::process_status::status_bytes;
use crate::support::{malformed_files, skip};

/// The default limit of 160 MiB for what a file sizes, plus the file, the process and 96 MiB of slack.
const MAX_PEAK: u64 = 256 << 20;

#[test]
fn malformed_files_take_little_memory() {
    in_own_process!();
    if status_bytes("VmHWM").is_none() {
        return skip("peak memory is reported on Linux only");
    }
    let Some(violations) = malformed_files::violations() else {
        return;
    };
    assert!(violations.is_empty(), "{}", violations.join("\n"));
    let peak = status_bytes("VmHWM").unwrap();
    println!("peak: {} MiB", peak >> 20);
    assert!(peak < MAX_PEAK, "{peak} bytes at the peak");
}
