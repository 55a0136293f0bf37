//! A prefetching thread: claims pieces of the queues and reads them into the page cache.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crate::Namespace;
use crate::cache::descriptor_cache::OpenFile;
use crate::cache::options::PrefetchMethod;
use crate::cache::pieces::{PieceLimits, PrefetchPiece};
use crate::cache::progress::count;
use crate::cache::queues::{ClaimOutcome, PieceClaim};
use crate::cache::thread_placement::ThreadPlacement;
use crate::error::{Error, ErrorKind};
use crate::sync::AtomicBool;
use anamnesis_os as os;

use super::PrefetcherShared;

/// Polling interval of a thread that found no memory headroom. Headroom is polled because it is computed by a
/// callback, which has no way to wake the thread.
const HEADROOM_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Reads pieces until the prefetcher is dropped.
pub(super) fn run(shared: &PrefetcherShared) {
    let mut worker = PrefetchWorker {
        shared,
        scratch: Vec::new(),
        placement: ThreadPlacement::default(),
    };
    while let Some(mut claim) = worker.claim() {
        let begun = Instant::now();
        worker.placement.bind(
            claim
                .piece
                .device
                .and_then(|device| shared.options.topology.node_of(device)),
        );
        let outcome = worker.process(&mut claim);
        let micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        count(&shared.counters.busy_micros, micros);
        worker.finish(claim, outcome);
    }
}

struct PrefetchWorker<'a> {
    shared: &'a PrefetcherShared,
    /// Target of `pread`. Its content is never used: the purpose of a read is the page cache.
    scratch: Vec<u8>,
    placement: ThreadPlacement,
}

impl PrefetchWorker<'_> {
    /// Waits for a piece; `None`: the prefetcher is being dropped.
    fn claim(&self) -> Option<PieceClaim> {
        let (shared, options) = (self.shared, &self.shared.options);
        let read_size = options.read_size as u64;
        let mut state = shared.lock();
        loop {
            if state.stopped {
                return None;
            }
            if state.paused || !state.queues.has_work() {
                state = shared
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let mut max_len = options.piece_size;
            if let Some(headroom) = &options.headroom {
                drop(state);
                let processed = shared.counters.processed();
                // the panic hook has printed the panic; 0 makes the thread try again later
                let headroom = catch_unwind(AssertUnwindSafe(|| headroom(processed))).unwrap_or(0);
                state = shared.lock();
                if state.stopped || state.paused {
                    continue;
                }
                // claimed bytes are not in memory yet, so the callback cannot have counted them
                let unclaimed = headroom.saturating_sub(state.claimed_bytes);
                max_len = max_len.min(unclaimed) / read_size * read_size;
            }
            if max_len == 0 {
                count(&shared.counters.memory_waits, 1);
                let waited = shared.changed.wait_timeout(state, HEADROOM_POLL_INTERVAL);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            // with little headroom, gaps between ranges are not worth their memory
            let exact = PieceLimits::exact(options.piece_size);
            let gap = if max_len < options.piece_size {
                exact.gap
            } else {
                options.gap.max(exact.gap)
            };
            let limits = PieceLimits {
                max_len,
                gap,
                ..exact
            };
            if let Some(claim) = state.queues.claim(limits) {
                state.claims += 1;
                state.claimed_bytes += claim.piece.end - claim.piece.start;
                return Some(claim);
            }
            // the remaining ranges were empty, so the lists may be finished
            shared.quiet.notify_all();
        }
    }

    fn finish(&self, claim: PieceClaim, outcome: ClaimOutcome) {
        let mut state = self.shared.lock();
        state.claims -= 1;
        state.claimed_bytes -= claim.piece.end - claim.piece.start;
        state.queues.finish(claim, outcome);
        drop(state);
        self.shared.quiet.notify_all();
        // the queue may have more pieces that could not be claimed while it had its maximum of threads
        self.shared.changed.notify_one();
    }

    fn process(&mut self, claim: &mut PieceClaim) -> ClaimOutcome {
        let PieceClaim {
            piece,
            stream,
            queue,
            cancelled,
            ..
        } = claim;
        let continues = self.shared.options.method == PrefetchMethod::Read
            && stream.end == piece.start
            && stream.reading
            && stream.files.is_latest(&piece.path);
        let namespace = Arc::clone(stream.files.namespace());
        let open = match stream.files.open(&piece.path) {
            Ok(open) => open,
            Err(error) => return self.report_error(*queue, &error),
        };
        (stream.end, stream.reading) = (piece.end, !is_resident(open, piece, continues));
        if !stream.reading {
            count(&self.shared.counters.bytes_skipped, piece.end - piece.start);
            return ClaimOutcome::Done;
        }
        match self.read(&open.file, &namespace, piece, cancelled) {
            Ok(outcome) => outcome,
            Err(error) => self.report_error(*queue, &Error::from(error).in_file(&piece.path)),
        }
    }

    fn read(
        &mut self,
        file: &File,
        namespace: &Namespace,
        piece: &PrefetchPiece,
        cancelled: &AtomicBool,
    ) -> io::Result<ClaimOutcome> {
        let (shared, step) = (self.shared, self.shared.options.read_size as u64);
        let mut reader = PieceReader::new(shared.options.method, file, piece)?;
        let mut at = piece.start;
        while at < piece.end {
            // once per read and not per piece, which bounds an interrupt to one read (EXPERIMENTS.md, "Interrupts")
            if cancelled.load(SeqCst) {
                return Ok(ClaimOutcome::Done);
            }
            if shared.halt.load(SeqCst) {
                return Ok(ClaimOutcome::Remainder(PrefetchPiece {
                    start: at,
                    ..piece.clone()
                }));
            }
            // ends at a multiple of the read size: reads of neighbouring pieces touch no folio twice
            let stop = ((at / step + 1) * step).min(piece.end);
            if !self.wait_for_bandwidth(stop - at, cancelled) {
                shared.bandwidth.cancel(stop - at);
                continue; // one of the two flags above is set
            }
            match reader.read(&mut self.scratch, piece, at..stop) {
                Ok(0) => {
                    // the file was truncated after it was opened
                    count(&shared.counters.past_end, 1);
                    return Ok(ClaimOutcome::Done);
                }
                Ok(read) => {
                    count(&shared.counters.reads, 1);
                    count(&shared.counters.bytes_read, read);
                    if let Some(on_read) = &shared.options.on_read {
                        let range = at..at + read;
                        // the panic hook has printed the panic; the thread continues
                        let call = AssertUnwindSafe(|| on_read(namespace, &piece.path, range));
                        drop(catch_unwind(call));
                    }
                    at += read;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(ClaimOutcome::Done)
    }

    /// Waits until the bandwidth limit permits a read of `bytes`. Returns `false` if the list was cancelled or the
    /// prefetcher halted meanwhile.
    fn wait_for_bandwidth(&self, bytes: u64, cancelled: &AtomicBool) -> bool {
        let shared = self.shared;
        let at = shared.bandwidth.book(bytes, Instant::now());
        let is_unwanted = || cancelled.load(SeqCst) || shared.halt.load(SeqCst);
        if at <= Instant::now() {
            return true;
        }
        let mut state = shared.lock();
        loop {
            if is_unwanted() {
                return false;
            }
            let left = at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            state = shared
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    fn report_error(&self, queue: u32, error: &Error) -> ClaimOutcome {
        let shared = self.shared;
        let stale = matches!(error.kind(), ErrorKind::Stale(_) | ErrorKind::Invalid(_));
        count(
            if stale {
                &shared.counters.stale
            } else {
                &shared.counters.errors
            },
            1,
        );
        match &shared.options.on_error {
            // the panic hook has printed the panic; the thread continues
            Some(on_error) => drop(catch_unwind(AssertUnwindSafe(|| on_error(queue, error)))),
            None => tracing::warn!(queue, "not prefetched: {error}"),
        }
        ClaimOutcome::Unreadable
    }
}

/// Reads one piece, through a mapping or by `pread`.
struct PieceReader<'a> {
    file: &'a File,
    map: Option<os::populate::PopulateMap>,
}

impl<'a> PieceReader<'a> {
    fn new(method: PrefetchMethod, file: &'a File, piece: &PrefetchPiece) -> io::Result<Self> {
        let len = usize::try_from(piece.end - piece.start).map_err(io::Error::other)?;
        // where the file cannot be mapped, it is read
        let map = (method == PrefetchMethod::Populate)
            .then(|| os::populate::PopulateMap::new(file.as_fd(), piece.start, len).ok());
        Ok(Self {
            file,
            map: map.flatten(),
        })
    }

    /// Reads these bytes of the piece, or fewer. Returns 0 if they lie beyond the end of the file.
    fn read(
        &mut self,
        scratch: &mut Vec<u8>,
        piece: &PrefetchPiece,
        bytes: Range<u64>,
    ) -> io::Result<u64> {
        let len = usize::try_from(bytes.end - bytes.start).map_err(io::Error::other)?;
        if let Some(map) = &self.map {
            let offset = usize::try_from(bytes.start - piece.start).map_err(io::Error::other)?;
            match map.populate(offset, len) {
                Ok(()) => return Ok(bytes.end - bytes.start),
                // the file was truncated
                Err(error) if error.raw_os_error() == Some(libc::EFAULT) => return Ok(0),
                // the kernel has no `MADV_POPULATE_READ`
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => self.map = None,
                Err(error) => return Err(error),
            }
        }
        // grows only: zeroed once per thread and not per read
        scratch.resize(scratch.len().max(len), 0);
        self.file
            .read_at(&mut scratch[..len], bytes.start)
            .map(|read| read as u64)
    }
}

/// Whether a piece is resident and need not be read.
///
/// If the stream `continues` the piece that it read before, kernel read-ahead has covered the beginning of this
/// piece, and continues only while the bytes that it read are consumed. Skipping them would end read-ahead, which
/// then starts anew with 4 KiB pages (EXPERIMENTS.md, "Reading"). So the piece only counts as resident if much more
/// is cached than read-ahead can have read. (The page cache contains a page from the start of its read.)
fn is_resident(open: &OpenFile, piece: &PrefetchPiece, continues: bool) -> bool {
    let beyond = if continues {
        open.read_ahead.saturating_mul(2).saturating_add(1 << 20)
    } else {
        0
    };
    let end = piece.end.saturating_add(beyond);
    if continues && end > open.entry.len {
        return false;
    }
    let pages = (end - piece.start).div_ceil(rustix::param::page_size() as u64);
    // without `cachestat` the piece is read, which is cheap if it is cached
    os::residency::cachestat(open.file.as_fd(), piece.start, end - piece.start)
        .is_ok_and(|stat| stat.cache >= pages)
}
