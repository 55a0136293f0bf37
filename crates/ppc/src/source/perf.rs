//! Events from the kernel's own trace points, through perf's ring buffers: the default source.
//!
//! Nobody waits for the reader of a ring, and a file that is not watched costs its readers the kernel's filter only.
//!
//! # Misses ([`Perf::misses`])
//!
//! What Linux 6.18 (ext4) does, as observed:
//!
//! | what a program does | trace points, in this order |
//! |---|---|
//! | `read` of pages that are not in memory | `page_cache_sync_ra` (first page, pages that are asked for), `page_cache_ra_order` or `_unbounded` (what is read ahead) |
//! | … that were read ahead | `page_cache_async_ra` at the marker, `page_cache_ra_order`; no `sync_ra` |
//! | … that are in memory | nothing of the above |
//! | page fault, page not in memory | `mm_filemap_fault`, then `page_cache_ra_order` or `_unbounded` over a range with the page |
//! | … with `MADV_SEQUENTIAL` | `mm_filemap_fault`, `page_cache_sync_ra`, `page_cache_ra_order` |
//! | … with `MADV_RANDOM`, or after many misses | `mm_filemap_fault` and no read-ahead; the page is inserted alone |
//! | page fault, page in memory | `mm_filemap_map_pages` for 16 pages around; `mm_filemap_fault` only where that maps nothing |
//!
//! So `page_cache_sync_ra` is a miss as it is, except that of a fault, which asks for one page however much is read.
//! `mm_filemap_fault` alone is not: it fires for pages that are in memory but locked, or could not be mapped around. It
//! is told when the same thread begins read-ahead over its page within 10 ms or, where there is no read-ahead, when the
//! thread's fault ends as a *major* fault, a software event of perf's. The first is known microseconds after the fault
//! and long before the device answers; the second when the page is there. A fault that waits for somebody else's
//! read-ahead ends as a major fault too, and is told: its thread waited.
//!
//! A miss wakes the reader at once. Older kernels lack the trace points of read-ahead; then every insertion into the
//! page cache is told as a miss, read-ahead included.
//!
//! # Accesses ([`Perf::accesses`])
//!
//! `mm_filemap_get_pages` tells every `read` (again for every 31 folios, from where it is to its end),
//! `mm_filemap_map_pages` and `mm_filemap_fault` first touches of mapped memory. The reader is woken when 64 KiB are
//! new, never by a single event, and sees the rest when its wait ends.
//!
//! Two things pass unseen. A `read` takes up to 31 folios at once; if the last of them is still on its way from the
//! device, the kernel waits for it, hands out those before it and says nothing: of 3 GB that were read cold by 16 MiB a
//! tenth was missing. And a folio of 2 MiB that is mapped whole is mapped before `mm_filemap_map_pages` would tell.
//!
//! # Recordings ([`Perf::recording`])
//!
//! Accesses, and with them every insertion into the page cache (`mm_filemap_add_to_page_cache`, by the thread that asked
//! for it): of files that were not in memory nothing that is read can be missing then. What was read ahead and not used
//! is told as well.
//!
//! # btrfs, overlayfs and their like
//!
//! The kernel names a file by the inode that holds its pages. So does `stat` on ext4 and xfs; on btrfs it names the
//! subvolume's own device, on overlayfs the overlay's, and sometimes another number. The trace points are asked how they
//! name such files when these are watched: this process reads a page of each below [`Options::root`], and leaves the page
//! cache as it was. Events have the names that `stat` gives. What cannot be recognised is counted in a warning.
//!
//! # What it cannot do
//!
//! Subvolumes of one btrfs number their files alike. Of two files with the same number nothing is told if both are
//! watched; if one is, the other's events are told as its own. A file of an overlay's lower layer that is opened for
//! writing is another from then on, of which nothing is told until it is watched anew.

mod attr;
mod cpu;
mod cpus;
mod filter;
mod format;
mod named;
mod pairs;
mod points;
mod record;
mod ring;
mod sys;
mod told;
mod tracefs;

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::cpus::Cpus;
use self::points::{Plan, Probe};
use self::told::{Teller, Told};
use self::tracefs::Tracefs;
use super::{Want, drained, monotonic};
use crate::error::Result;
use crate::event::{Event, EventSource, Inode, Sight, Waker};

/// How often it is looked for CPUs that came or went.
const CPUS: Duration = Duration::from_secs(1);

/// What can be chosen about a [`Perf`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Pages of every CPU's ring, a power of two; what does not fit is lost, and counted.
    pub pages: usize,
    /// Bytes after which the reader is woken, misses apart, which wake it at once.
    pub watermark: u32,
    /// Tells what this process does too. Without it a prefetch does not look like a miss.
    pub own: bool,
    /// Where trace points may be, the first that has them is taken.
    pub tracefs: Vec<PathBuf>,
    /// Whether tracefs is mounted for a moment where nobody else sees it, if it is at none of these.
    pub mount: bool,
    /// Trace points, as in `readahead/page_cache_sync_ra`, that are not used even if the kernel has them.
    pub without: BTreeSet<String>,
    /// Where the files are that will be watched: on btrfs, overlayfs and their like each is read there, to learn how trace
    /// points name it. Without it nothing is told of such files.
    pub root: Option<PathBuf>,
}

impl Options {
    /// What fits the wish: 256 KiB for each CPU's misses, 2 MiB for its accesses, on pages of 4 KiB.
    pub fn of(want: Want) -> Self {
        Self {
            pages: if want == Want::Misses { 64 } else { 512 },
            watermark: 64 << 10,
            own: false,
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
pub struct Perf {
    want: Want,
    own: bool,
    plan: Plan,
    root: Option<PathBuf>,
    reads: Option<Probe>,
    cpus: Cpus,
    looked: Instant,
    teller: Teller,
    /// Read, but something older may still be written on another CPU.
    held: Vec<Told>,
    waker: Waker,
    wake: Arc<OwnedFd>,
}

impl Perf {
    /// Tells misses.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`](crate::ErrorKind) with what is needed.
    pub fn misses() -> Result<Self> {
        Self::new(Want::Misses, Options::of(Want::Misses))
    }

    /// Tells accesses.
    ///
    /// # Errors
    ///
    /// As [`misses`](Self::misses).
    pub fn accesses() -> Result<Self> {
        Self::new(Want::Accesses, Options::of(Want::Accesses))
    }

    /// Tells accesses, and what came into memory.
    ///
    /// # Errors
    ///
    /// As [`misses`](Self::misses).
    pub fn recording() -> Result<Self> {
        Self::new(Want::Recording, Options::of(Want::Recording))
    }

    /// With options. Privileges are tried here; nothing is sampled before [`watch`](EventSource::watch).
    ///
    /// ```no_run
    /// use anamnesis_ppc::source::{Perf, Want, perf::Options};
    ///
    /// let mut options = Options::of(Want::Accesses);
    /// options.pages = 2048; // 8 MiB for each CPU
    /// let source = Perf::new(Want::Accesses, options)?;
    /// # Ok::<_, anamnesis_ppc::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`misses`](Self::misses).
    pub fn new(want: Want, options: Options) -> Result<Self> {
        let tracefs = Tracefs::find(&options.tracefs, options.mount)?;
        let plan = points::plan(want, tracefs.path(), &options.without)?;
        let reads = points::of_reads(tracefs.path(), &options.without);
        let (waker, wake) = Waker::new()?;
        Ok(Self {
            want,
            own: options.own,
            plan,
            root: options.root,
            reads,
            cpus: Cpus::open(options.pages, options.watermark)?,
            looked: Instant::now(),
            teller: Teller::new(want),
            held: Vec::new(),
            waker,
            wake,
        })
    }

    /// Takes what is in the rings.
    fn read(&mut self) {
        let own = if self.own {
            None
        } else {
            Some(std::process::id())
        };
        self.cpus.read(&self.plan, own, &mut self.held);
    }

    /// Reads the rings and appends what is settled; true if something is held back.
    fn drain(&mut self, into: &mut Vec<Event>) -> bool {
        // what happened before this moment is in one of the rings by now
        let settled = monotonic();
        self.read();
        self.held.sort_by_key(|told| told.time);
        let ready = self.held.partition_point(|told| told.time <= settled);
        into.extend(
            self.held
                .drain(..ready)
                .filter_map(|told| self.teller.event(&told)),
        );
        !self.held.is_empty()
    }
}

impl EventSource for Perf {
    fn name(&self) -> &'static str {
        match self.want {
            Want::Misses => "misses",
            Want::Accesses => "accesses",
            Want::Recording => "recording",
        }
    }

    fn sight(&self) -> Sight {
        self.plan.sight
    }

    fn watch(&mut self, files: &[Inode]) -> Result<()> {
        let named = named::named(files, self.root.as_deref(), self.reads.as_ref())?;
        // so that what is in the rings from now on is of this round or the one before
        self.read();
        let files: Vec<_> = named.keys().copied().collect();
        self.teller.watch(named);
        self.cpus.watch(&self.plan, &files)
    }

    fn wait(&mut self, timeout: Duration, into: &mut Vec<Event>) -> io::Result<bool> {
        let before = into.len();
        let end = Instant::now().checked_add(timeout);
        let mut held = !self.held.is_empty();
        loop {
            let left = end.map_or(CPUS, |end| end.saturating_duration_since(Instant::now()));
            let next = match self.teller.soon(monotonic()) {
                _ if held => Duration::ZERO,
                soon => left.min(soon.unwrap_or(CPUS)),
            };
            let gone = self.cpus.sleep(&self.wake, next)?;
            let woken = drained(&self.wake);
            held = self.drain(into);
            self.cpus.drop(&gone);
            if self.looked.elapsed() >= CPUS {
                self.looked = Instant::now();
                self.cpus.follow(&self.plan)?;
            }
            if woken || into.len() > before || (left.is_zero() && !held) {
                return Ok(true);
            }
        }
    }

    fn lost(&self) -> u64 {
        self.cpus.lost()
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }
}
