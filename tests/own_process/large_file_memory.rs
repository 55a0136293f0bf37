//! Dequantising a file of 4 GiB takes the memory of one tile per thread. The kernel reports the memory of the whole process.

use std::sync::atomic::{AtomicU64, Ordering};

use anamnesis::sink::NullSink;
use anamnesis::{CancelToken, OpenOptions, remember};

use crate::in_own_process;
use crate::support::process_status::status_bytes;
use crate::support::scratch_dir::ScratchDir;
use crate::support::skip;
use crate::support::writers::{StoredTensor, gguf};

/// Anonymous memory that a run may take.
const MAX_PEAK: u64 = 64 << 20;

/// Elements of each of the two weights, in Q4_0: together 4 GiB of blocks.
const ELEMENTS: u64 = (2 << 30) / 18 * 32;

/// The run is cancelled after this many bytes of output: by then every buffer is in use.
const MEASURED_OUTPUT: u64 = 1 << 29;

#[test]
fn dequantising_a_file_of_4_gib_takes_little_memory() {
    in_own_process!();
    if status_bytes("RssAnon").is_none() {
        return skip("anonymous memory is reported on Linux only");
    }
    let scratch = ScratchDir::new("large-file-memory");
    let path = scratch.path("big.gguf");
    let weights =
        ["a.weight", "b.weight"].map(|name| StoredTensor::new(name, "2", &[ELEMENTS], Vec::new()));
    // the writer gave both tensors offset 0, as they have no bytes yet: the second weight begins behind the first
    let mut header = gguf(false, &[], &weights);
    let weight_bytes = ELEMENTS / 32 * 18;
    let offset_at = header.windows(8).position(|w| w == b"b.weight").unwrap() + 8 + 4 + 8 + 4;
    header[offset_at..offset_at + 8]
        .copy_from_slice(&weight_bytes.next_multiple_of(32).to_le_bytes());
    std::fs::write(&path, &header).unwrap();
    let len = header.len() as u64 + weight_bytes.next_multiple_of(32) * 2;
    if let Err(e) = std::fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(len)
    {
        return skip(&format!("a sparse file cannot be written: {e}"));
    }
    for map in [true, false] {
        let checkpoint = OpenOptions::new().mmap(map).open(&path).unwrap();
        let remember = remember(&checkpoint).threads(2);
        let plan = remember.plan().unwrap();
        let (peak, token) = (AtomicU64::new(0), CancelToken::new());
        let outcome = remember
            .cancel(&token)
            .progress(|progress| {
                peak.fetch_max(status_bytes("RssAnon").unwrap(), Ordering::Relaxed);
                if progress.done >= MEASURED_OUTPUT {
                    token.cancel();
                }
            })
            .run(&plan, &mut NullSink);
        let peak = peak.into_inner();
        assert!(matches!(
            outcome.unwrap_err().kind(),
            anamnesis::ErrorKind::Cancelled
        ));
        println!("mapped {map}: {} MiB", peak >> 20);
        assert!(
            peak > 0 && peak < MAX_PEAK,
            "{peak} bytes of anonymous memory (mapped {map})"
        );
    }
}
