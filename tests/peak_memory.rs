//! What a run costs in memory: a tile per thread, however large the file. A test binary of its own: the peak is that
//! of the process.

mod support;

use std::sync::atomic::{AtomicU64, Ordering};

use anamnesis::sink::NullSink;
use anamnesis::{CancelToken, OpenOptions, remember};
use support::scratch_dir::ScratchDir;
use support::skip;
use support::writers::{StoredTensor, gguf};

/// Anonymous memory that a run may take.
const PEAK: u64 = 64 << 20;

/// Elements of each of the two weights, in Q4_0: together 4 GiB of blocks.
const ELEMENTS: u64 = (2 << 30) / 18 * 32;

/// Bytes of output after which a run has shown what it takes.
const ENOUGH: u64 = 1 << 29;

#[test]
fn a_file_of_four_gigabytes_takes_little_memory() {
    if anonymous().is_none() {
        return skip("anonymous memory is known on Linux only");
    }
    let scratch = ScratchDir::new("peak");
    let path = scratch.path("big.gguf");
    let weights =
        ["a.weight", "b.weight"].map(|name| StoredTensor::new(name, "2", &[ELEMENTS], Vec::new()));
    // the header's offsets are those of empty tensors: the second weight begins behind the first
    let mut header = gguf(false, &[], &weights);
    let second = ELEMENTS / 32 * 18;
    let at = header.windows(8).position(|w| w == b"b.weight").unwrap() + 8 + 4 + 8 + 4;
    header[at..at + 8].copy_from_slice(&second.next_multiple_of(32).to_le_bytes());
    std::fs::write(&path, &header).unwrap();
    let len = header.len() as u64 + second.next_multiple_of(32) * 2;
    if let Err(e) = std::fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(len)
    {
        return skip(&format!("no room for a sparse file: {e}"));
    }
    for map in [true, false] {
        let checkpoint = OpenOptions::new().mmap(map).open(&path).unwrap();
        let remember = remember(&checkpoint).threads(2);
        let plan = remember.plan().unwrap();
        let (peak, token) = (AtomicU64::new(0), CancelToken::new());
        let stopped = remember
            .cancel(&token)
            .progress(|progress| {
                peak.fetch_max(anonymous().unwrap(), Ordering::Relaxed);
                if progress.done >= ENOUGH {
                    token.cancel();
                }
            })
            .run(&plan, &mut NullSink);
        let peak = peak.into_inner();
        assert!(matches!(
            stopped.unwrap_err().kind(),
            anamnesis::ErrorKind::Cancelled
        ));
        println!("map {map}: {} MiB", peak >> 20);
        assert!(
            peak > 0 && peak < PEAK,
            "{peak} bytes of anonymous memory (map {map})"
        );
    }
}

/// Anonymous memory of this process that is resident now.
fn anonymous() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}
