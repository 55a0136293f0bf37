//! Events from the kernel's trace points, through the ring buffers of perf: the default source.
//!
//! No reader waits for the consumer of a ring. Readers of files that are not watched only pass the kernel's filter.
//!
//! # Misses ([`PerfSource::misses`])
//!
//! The trace points that fire on Linux 6.18 (ext4), as observed:
//!
//! | operation | trace points, in this order |
//! |---|---|
//! | `read` of pages that are not cached | `page_cache_sync_ra` (first page, number of requested pages), `page_cache_ra_order` or `_unbounded` (the range read ahead) |
//! | … that were read ahead | `page_cache_async_ra` at the marker, `page_cache_ra_order`; no `sync_ra` |
//! | … that are cached | none of the above |
//! | page fault, page not cached | `mm_filemap_fault`, then `page_cache_ra_order` or `_unbounded` over a range with the page |
//! | … with `MADV_SEQUENTIAL` | `mm_filemap_fault`, `page_cache_sync_ra`, `page_cache_ra_order` |
//! | … with `MADV_RANDOM`, or after many misses | `mm_filemap_fault` without read-ahead; the page is inserted alone |
//! | page fault, page cached | `mm_filemap_map_pages` for 16 pages around it; `mm_filemap_fault` only if that maps nothing |
//!
//! `page_cache_sync_ra` is therefore a miss, except that the one of a fault counts as one page, however much it reads.
//! `mm_filemap_fault` alone is not a miss: it also fires for pages that are cached but locked, or that could not be mapped
//! around. It is reported as a miss if the same thread starts read-ahead over its page within 10 ms or, where there is no
//! read-ahead, if the thread's fault ends as a *major* fault, which is a software event of perf. The first is known
//! microseconds after the fault and long before the device answers; the second when the page has been read. A fault that
//! waits for the read-ahead of another thread ends as a major fault, too, and is reported: its thread waited.
//!
//! A miss wakes the consumer at once. Older kernels lack the trace points of read-ahead; there, every insertion into the
//! page cache is reported as a miss, including pages that were read ahead.
//!
//! # Accesses ([`PerfSource::accesses`])
//!
//! `mm_filemap_get_pages` reports every `read` (again after every 31 folios, from the current position to the end of the
//! read); `mm_filemap_map_pages` and `mm_filemap_fault` report first accesses to mapped pages. The consumer is woken when
//! a ring has 64 KiB of new samples, and otherwise reads them when its wait ends. Waking it for every event made warm reads
//! 53 % slower (EXPERIMENTS.md).
//!
//! Two kinds of accesses are not reported. A `read` takes up to 31 folios at once. If the last of them is still being read
//! from the device, the kernel waits for it, returns the folios before it and reports nothing: a tenth was missing of 3 GB
//! that were read cold in calls of 16 MiB. And a folio of 2 MiB that is mapped as a whole is mapped before
//! `mm_filemap_map_pages` would report it.
//!
//! # Recordings ([`PerfSource::recording`])
//!
//! Accesses, and every insertion into the page cache (`mm_filemap_add_to_page_cache`, by the thread that caused it). For
//! files that were not cached this is complete. It includes pages that were read ahead but not used.
//!
//! # btrfs, overlayfs and similar file systems
//!
//! The kernel identifies a file by the inode that holds its pages. `stat` reports the same inode on ext4 and xfs; on btrfs
//! it reports the device of the subvolume, on overlayfs the device of the overlay, and sometimes another inode number. To
//! learn the kernel's identification of such files, this process reads a page of each below [`PerfOptions::root`] while it
//! samples its own trace points, and leaves the page cache unchanged. Events carry the inode that `stat` reports. Files that
//! could not be identified are counted in a warning.
//!
//! # Limitations
//!
//! The subvolumes of one btrfs number their files alike. If two files with the same number are watched, neither is
//! reported; if one of them is, it also receives the other's events. A file of an overlay's lower layer that is opened for
//! writing is copied and becomes another file, which is not reported until it is watched again.

mod decode;
mod filter;
mod inode_aliases;
mod per_cpu;
mod record;
mod ring;
mod sys;
mod tracefs;
mod tracepoints;

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::decode::{FileSample, SampleDecoder};
use self::per_cpu::Rings;
use self::tracefs::Tracefs;
use self::tracepoints::{ProbePlan, Tracepoint};
use super::CaptureMode;
use super::poll::{drain, monotonic_ns};
use crate::error::Result;
use crate::event::{Capabilities, Event, EventSource, Inode, Waker};

/// How often the set of online CPUs is checked.
const CPU_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Options of a [`PerfSource`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PerfOptions {
    /// Size of each CPU's ring in pages, a power of two. Events that do not fit are lost and counted.
    pub pages: usize,
    /// Number of new bytes in a ring that wake the consumer. Misses wake it at once.
    pub watermark: u32,
    /// Whether to report accesses of this process. If not, a prefetch does not look like a miss.
    pub own: bool,
    /// Where to look for tracefs. The first directory that has trace points is used.
    pub tracefs: Vec<PathBuf>,
    /// Whether to mount tracefs privately, detached from all directories, if it is at none of these paths.
    pub mount: bool,
    /// Trace points that are ignored even if the kernel has them, such as `readahead/page_cache_sync_ra`.
    pub without: BTreeSet<String>,
    /// The directory of the files that will be watched. On btrfs, overlayfs and similar file systems the files are opened
    /// there to learn how trace points identify them. Without it such files are not reported.
    pub root: Option<PathBuf>,
}

impl PerfOptions {
    /// The defaults for `mode`: rings of 256 KiB per CPU for misses and of 2 MiB for the other modes, with pages of 4 KiB.
    pub fn of(mode: CaptureMode) -> Self {
        Self {
            // every read is an access, and few of them are misses
            pages: if mode == CaptureMode::Misses { 64 } else { 512 },
            watermark: 64 << 10,
            own: false,
            // the second is its place on older systems
            tracefs: ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"]
                .map(PathBuf::from)
                .into(),
            mount: true,
            without: BTreeSet::new(),
            root: None,
        }
    }
}

/// A source of misses or accesses, from trace points. See the [module](self).
#[derive(Debug)]
pub struct PerfSource {
    mode: CaptureMode,
    own: bool,
    plan: ProbePlan,
    root: Option<PathBuf>,
    /// A trace point that reports reads, for identifying files.
    read_probe: Option<Tracepoint>,
    rings: Rings,
    last_cpu_check: Instant,
    decoder: SampleDecoder,
    /// Samples that were read from the rings but are too recent to be decoded: an older sample may still be missing from
    /// the ring of another CPU.
    held: Vec<FileSample>,
    waker: Waker,
    wake_fd: Arc<OwnedFd>,
}

impl PerfSource {
    /// A source of misses with default options.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`](crate::ErrorKind) with the missing privilege or kernel feature.
    pub fn misses() -> Result<Self> {
        Self::new(CaptureMode::Misses, PerfOptions::of(CaptureMode::Misses))
    }

    /// A source of accesses with default options.
    ///
    /// # Errors
    ///
    /// The errors of [`misses`](Self::misses).
    pub fn accesses() -> Result<Self> {
        Self::new(
            CaptureMode::Accesses,
            PerfOptions::of(CaptureMode::Accesses),
        )
    }

    /// A source of accesses and insertions into the page cache with default options.
    ///
    /// # Errors
    ///
    /// The errors of [`misses`](Self::misses).
    pub fn recording() -> Result<Self> {
        Self::new(
            CaptureMode::Recording,
            PerfOptions::of(CaptureMode::Recording),
        )
    }

    /// Opens a source. Missing privileges are detected here; sampling begins with [`watch`](EventSource::watch).
    ///
    /// ```no_run
    /// use anamnesis_ppc::source::{CaptureMode, PerfSource, perf::PerfOptions};
    ///
    /// let mut options = PerfOptions::of(CaptureMode::Accesses);
    /// options.pages = 2048; // 8 MiB per CPU
    /// let source = PerfSource::new(CaptureMode::Accesses, options)?;
    /// # Ok::<_, anamnesis_ppc::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`misses`](Self::misses).
    pub fn new(mode: CaptureMode, options: PerfOptions) -> Result<Self> {
        let tracefs = Tracefs::find(&options.tracefs, options.mount)?;
        let plan = tracepoints::plan(mode, tracefs.path(), &options.without)?;
        let read_probe = tracepoints::of_reads(tracefs.path(), &options.without);
        let (waker, wake_fd) = Waker::new()?;
        Ok(Self {
            mode,
            own: options.own,
            plan,
            root: options.root,
            read_probe,
            rings: Rings::open(options.pages, options.watermark)?,
            last_cpu_check: Instant::now(),
            decoder: SampleDecoder::new(mode),
            held: Vec::new(),
            waker,
            wake_fd,
        })
    }

    /// Moves the samples of all rings to `held`.
    fn read_rings(&mut self) {
        let ignored_pid = (!self.own).then(std::process::id);
        self.rings.read(&self.plan, ignored_pid, &mut self.held);
    }

    /// Reads the rings and appends the events of all samples up to now, in the order of their times. Returns whether
    /// samples are held back.
    fn drain_rings(&mut self, into: &mut Vec<Event>) -> bool {
        // every sample from before this moment is in one of the rings by now
        let settled = monotonic_ns();
        self.read_rings();
        // rings are per CPU, and a thread moves between CPUs: only by time are a fault and its read-ahead in order
        self.held.sort_by_key(|sample| sample.time);
        let ready = self.held.partition_point(|sample| sample.time <= settled);
        into.extend(
            self.held
                .drain(..ready)
                .filter_map(|sample| self.decoder.decode(&sample)),
        );
        !self.held.is_empty()
    }
}

impl EventSource for PerfSource {
    fn name(&self) -> &'static str {
        match self.mode {
            CaptureMode::Misses => "misses",
            CaptureMode::Accesses => "accesses",
            CaptureMode::Recording => "recording",
        }
    }

    fn capabilities(&self) -> Capabilities {
        self.plan.capabilities
    }

    fn watch(&mut self, files: &[Inode]) -> Result<()> {
        let aliases =
            inode_aliases::resolve(files, self.root.as_deref(), self.read_probe.as_ref())?;
        // afterwards the rings contain only samples of the current generation and of the next one, which the decoder needs
        // to recognise duplicates
        self.read_rings();
        let kernel_inodes: Vec<_> = aliases.keys().copied().collect();
        self.decoder.watch(aliases);
        self.rings.watch(&self.plan, &kernel_inodes)
    }

    fn wait(&mut self, timeout: Duration, into: &mut Vec<Event>) -> io::Result<bool> {
        let before = into.len();
        let end = Instant::now().checked_add(timeout);
        let mut held = !self.held.is_empty();
        loop {
            let left = end.map_or(CPU_CHECK_INTERVAL, |end| {
                end.saturating_duration_since(Instant::now())
            });
            let nap = match self.decoder.next_check(monotonic_ns()) {
                // a second look at the rings settles the samples that were held back
                _ if held => Duration::ZERO,
                next_check => left.min(next_check.unwrap_or(CPU_CHECK_INTERVAL)),
            };
            let ended = self.rings.sleep(&self.wake_fd, nap)?;
            let woken = drain(&self.wake_fd);
            held = self.drain_rings(into);
            // after they were read: a CPU that went offline leaves samples behind
            self.rings.close(&ended);
            if self.last_cpu_check.elapsed() >= CPU_CHECK_INTERVAL {
                self.last_cpu_check = Instant::now();
                self.rings.update_cpus(&self.plan)?;
            }
            if woken || into.len() > before || (left.is_zero() && !held) {
                return Ok(true);
            }
        }
    }

    fn lost(&self) -> u64 {
        self.rings.lost()
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }
}
