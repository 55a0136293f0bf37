//! Counting what the system knows of a process: faults, reads, memory.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use nix::sys::prctl::set_thp_disable;
use nix::sys::resource::{UsageWho, getrusage};

use crate::case::{Case, Counts, Metric, Way};
use crate::{heap, process};

static ANONYMOUS: AtomicU64 = AtomicU64::new(0);
/// Calls and bytes that looking took.
static LOOKS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Whether memory comes in huge pages depends on what else runs: here it comes page by page.
pub(crate) fn quiet() {
    if let Err(e) = set_thp_disable(true) {
        eprintln!("huge pages stay on: {e}");
    }
}

/// Looks how much anonymous memory is resident now.
pub(crate) fn look() {
    let mut text = [0; 4 << 10];
    let len = File::open("/proc/self/status")
        .and_then(|mut file| file.read(&mut text))
        .unwrap_or(0);
    LOOKS[0].fetch_add(1, Relaxed);
    LOOKS[1].fetch_add(len as u64, Relaxed);
    let status = String::from_utf8_lossy(&text[..len]);
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kib: Option<u64> = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
    ANONYMOUS.fetch_max(kib.unwrap_or(0) << 10, Relaxed);
}

/// In the process of the case: calls, and counts.
pub(crate) fn counted(call: &mut dyn FnMut()) -> Result<Counts, String> {
    [&ANONYMOUS, &LOOKS[0], &LOOKS[1]]
        .iter()
        .for_each(|count| count.store(0, Relaxed));
    let (faults, read) = (faults()?, Reads::now()?);
    let heap = heap::counted(call);
    let (faults, read) = (
        self::faults()?.saturating_sub(faults),
        Reads::now()?.since(&read),
    );
    Ok(vec![
        (Metric::Faults, faults),
        (
            Metric::BytesRead,
            read.bytes.saturating_sub(LOOKS[1].load(Relaxed)),
        ),
        (
            Metric::ReadCalls,
            read.calls.saturating_sub(LOOKS[0].load(Relaxed)),
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

/// What this process has read.
struct Reads {
    bytes: u64,
    calls: u64,
    /// What reading this took of itself: it is counted next time.
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

/// What a case's process counted of itself.
pub(crate) fn count(case: &Case, files: &Path) -> Result<Counts, String> {
    let text = process::output(process::of(files, None, Way::System, &case.name))?;
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
