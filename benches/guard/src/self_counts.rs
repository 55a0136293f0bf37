//! Counting faults, reads and memory of a process by itself, from `getrusage`, `/proc/self` and the allocator.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use nix::sys::prctl::set_thp_disable;
use nix::sys::resource::{UsageWho, getrusage};

use crate::case::{Case, Counter, Counts, Metric};
use crate::{counting_allocator, process};

/// The largest sample of resident anonymous bytes.
static ANONYMOUS: AtomicU64 = AtomicU64::new(0);
/// Read calls and bytes of the sampling itself, which are subtracted.
static SAMPLING_READS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Disables huge pages for this process. Whether the kernel finds one depends on what else runs, and each saves 511 faults.
pub(crate) fn disable_huge_pages() {
    if let Err(e) = set_thp_disable(true) {
        eprintln!("huge pages cannot be disabled: {e}");
    }
}

/// Samples the resident anonymous memory. Cases call it where they expect the peak.
pub(crate) fn sample_anonymous_memory() {
    let mut text = [0; 4 << 10];
    let len = File::open("/proc/self/status")
        .and_then(|mut file| file.read(&mut text))
        .unwrap_or(0);
    SAMPLING_READS[0].fetch_add(1, Relaxed);
    SAMPLING_READS[1].fetch_add(len as u64, Relaxed);
    let status = String::from_utf8_lossy(&text[..len]);
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kib: Option<u64> = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
    ANONYMOUS.fetch_max(kib.unwrap_or(0) << 10, Relaxed);
}

/// Runs in the process of the case: calls it and counts.
pub(crate) fn counted(call: &mut dyn FnMut()) -> Result<Counts, String> {
    [&ANONYMOUS, &SAMPLING_READS[0], &SAMPLING_READS[1]]
        .iter()
        .for_each(|count| count.store(0, Relaxed));
    let (faults, read) = (faults()?, Reads::now()?);
    let heap = counting_allocator::counted(call);
    let (faults, read) = (
        self::faults()?.saturating_sub(faults),
        Reads::now()?.since(&read),
    );
    Ok(vec![
        (Metric::Faults, faults),
        (
            Metric::BytesRead,
            read.bytes.saturating_sub(SAMPLING_READS[1].load(Relaxed)),
        ),
        (
            Metric::ReadCalls,
            read.calls.saturating_sub(SAMPLING_READS[0].load(Relaxed)),
        ),
        (Metric::Allocations, heap.calls),
        (Metric::HeapPeak, heap.peak),
        (Metric::AnonymousPeak, ANONYMOUS.load(Relaxed)),
    ])
}

fn faults() -> Result<u64, String> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).map_err(|e| e.to_string())?;
    u64::try_from(usage.minor_page_faults()).map_err(|e| e.to_string())
}

/// Bytes and calls of reads by this process so far.
struct Reads {
    bytes: u64,
    calls: u64,
    /// Bytes that this measurement itself read, which the next one includes.
    own: u64,
}

impl Reads {
    fn now() -> Result<Self, String> {
        let mut text = [0; 1 << 10];
        let file = File::open("/proc/self/io").and_then(|mut file| file.read(&mut text));
        let len = file.map_err(|e| format!("/proc/self/io: {e}"))?;
        let text = String::from_utf8_lossy(&text[..len]);
        let count = |name: &str| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
            line.ok_or_else(|| format!("/proc/self/io has no {name}"))
        };
        Ok(Self {
            bytes: count("rchar:")?,
            calls: count("syscr:")?,
            own: len as u64,
        })
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            bytes: (self.bytes - before.bytes).saturating_sub(before.own),
            calls: (self.calls - before.calls).saturating_sub(1),
            own: 0,
        }
    }
}

/// Runs a case and returns its metrics, as its process reports them.
pub(crate) fn count(case: &Case, files: &Path) -> Result<Counts, String> {
    let text = process::output(process::of(files, None, Counter::System, &case.name))?;
    let counts = text.lines().filter_map(|line| {
        let (name, count) = line.split_once('\t')?;
        let metric = Metric::ALL
            .into_iter()
            .find(|metric| metric.name() == name)?;
        Some((metric, count.parse().ok()?))
    });
    Ok(counts
        .filter(|(metric, _)| case.metrics.contains(metric))
        .collect())
}
