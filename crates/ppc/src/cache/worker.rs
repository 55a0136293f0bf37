//! A prefetching thread.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::cache::cores::Cores;
use crate::cache::files::Open;
use crate::cache::lanes::{Claim, End};
use crate::cache::list::{Cut, Piece};
use crate::cache::options::Fill;
use crate::cache::prefetcher::Shared;
use crate::cache::progress::count;
use crate::cache::sys;
use crate::error::{Error, ErrorKind};

/// How often a thread that found no room looks again.
const NO_ROOM: Duration = Duration::from_millis(5);

/// Takes pieces and reads them until the prefetcher is dropped.
pub(super) fn run(shared: &Shared) {
    let mut worker = Worker {
        shared,
        scratch: Vec::new(),
        cores: Cores::default(),
    };
    while let Some(mut claim) = worker.claim() {
        let begun = Instant::now();
        worker.cores.bind(
            claim
                .piece
                .device
                .and_then(|device| shared.options.topology.node_of(device)),
        );
        let end = worker.serve(&mut claim);
        let micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        count(&shared.counters.busy_micros, micros);
        worker.finish(claim, end);
    }
}

struct Worker<'a> {
    shared: &'a Shared,
    /// What is read goes here, and is not looked at: the page cache is what is filled.
    scratch: Vec<u8>,
    cores: Cores,
}

impl Worker<'_> {
    /// Waits for a piece; `None`: the end.
    fn claim(&self) -> Option<Claim> {
        let (shared, options) = (self.shared, &self.shared.options);
        let least = options.read as u64;
        let mut state = shared.lock();
        loop {
            if state.stopped {
                return None;
            }
            if state.paused || !state.lanes.has_work() {
                state = shared
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let mut most = options.piece;
            if let Some(room) = &options.room {
                drop(state);
                // one that panics has said so, and holds no more than there is
                let room = catch_unwind(AssertUnwindSafe(|| room())).unwrap_or(0);
                state = shared.lock();
                if state.stopped || state.paused {
                    continue;
                }
                most = most.min(room.saturating_sub(state.claimed)) / least * least;
            }
            if most == 0 {
                count(&shared.counters.no_room, 1);
                let waited = shared.changed.wait_timeout(state, NO_ROOM);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            // where room is short, nothing is brought that was not asked for
            let exact = Cut::exact(options.piece);
            let gap = if most < options.piece {
                exact.gap
            } else {
                options.gap.max(exact.gap)
            };
            if let Some(claim) = state.lanes.claim(Cut { most, gap, ..exact }) {
                state.held += 1;
                state.claimed += claim.piece.end - claim.piece.start;
                return Some(claim);
            }
            // what seemed to be work was empty
            shared.quiet.notify_all();
        }
    }

    fn finish(&self, claim: Claim, end: End) {
        let mut state = self.shared.lock();
        state.held -= 1;
        state.claimed -= claim.piece.end - claim.piece.start;
        state.lanes.finish(claim, end);
        drop(state);
        self.shared.quiet.notify_all();
        // the lane may have more, and may have been as full as is allowed
        self.shared.changed.notify_one();
    }

    fn serve(&mut self, claim: &mut Claim) -> End {
        let Claim {
            piece,
            stream,
            lane,
            over,
            ..
        } = claim;
        let goes_on = self.shared.options.fill == Fill::Read
            && stream.at == piece.start
            && stream.reading
            && stream.files.is_at(&piece.path);
        let open = match stream.files.open(&piece.path) {
            Ok(open) => open,
            Err(error) => return self.refuse(*lane, &error),
        };
        (stream.at, stream.reading) = (piece.end, !is_resident(open, piece, goes_on));
        if !stream.reading {
            count(&self.shared.counters.bytes_skipped, piece.end - piece.start);
            return End::Done;
        }
        match self.read(&open.file, piece, over) {
            Ok(end) => end,
            Err(error) => self.refuse(*lane, &Error::from(error).in_file(&piece.path)),
        }
    }

    fn read(&mut self, file: &File, piece: &Piece, over: &AtomicBool) -> io::Result<End> {
        let (shared, step) = (self.shared, self.shared.options.read as u64);
        let mut how = How::of(shared.options.fill, file, piece)?;
        let mut at = piece.start;
        while at < piece.end {
            if over.load(SeqCst) {
                return Ok(End::Done);
            }
            if shared.halt.load(SeqCst) {
                return Ok(End::Rest(Piece {
                    start: at,
                    ..piece.clone()
                }));
            }
            let stop = ((at / step + 1) * step).min(piece.end);
            if !self.wait_for_bandwidth(stop - at, over) {
                shared.bandwidth.cancel(stop - at);
                continue; // to see why
            }
            match how.bring(&mut self.scratch, piece, at..stop) {
                Ok(0) => {
                    // shorter than it was a moment ago
                    count(&shared.counters.past_end, 1);
                    return Ok(End::Done);
                }
                Ok(read) => {
                    count(&shared.counters.reads, 1);
                    count(&shared.counters.bytes_read, read);
                    at += read;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(End::Done)
    }

    /// `false` if the piece is not wanted any more, or not now.
    fn wait_for_bandwidth(&self, bytes: u64, over: &AtomicBool) -> bool {
        let shared = self.shared;
        let at = shared.bandwidth.book(bytes, Instant::now());
        let unwanted = || over.load(SeqCst) || shared.halt.load(SeqCst);
        if at <= Instant::now() {
            return true;
        }
        let mut state = shared.lock();
        loop {
            if unwanted() {
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

    fn refuse(&self, lane: u32, error: &Error) -> End {
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
        match &shared.options.report {
            // one that panics has said so
            Some(report) => drop(catch_unwind(AssertUnwindSafe(|| report(lane, error)))),
            None => tracing::warn!(lane, "not prefetched: {error}"),
        }
        End::Refused
    }
}

/// How a piece is brought: through a mapping, or read.
struct How<'a> {
    file: &'a File,
    map: Option<sys::Fill>,
}

impl<'a> How<'a> {
    fn of(fill: Fill, file: &'a File, piece: &Piece) -> io::Result<Self> {
        let len = usize::try_from(piece.end - piece.start).map_err(io::Error::other)?;
        // a kernel that cannot is one that can read
        let map =
            (fill == Fill::Populate).then(|| sys::Fill::new(file.as_fd(), piece.start, len).ok());
        Ok(Self {
            file,
            map: map.flatten(),
        })
    }

    /// Brings these bytes of a piece, or fewer; 0 if the file has none there.
    fn bring(
        &mut self,
        scratch: &mut Vec<u8>,
        piece: &Piece,
        bytes: Range<u64>,
    ) -> io::Result<u64> {
        let len = usize::try_from(bytes.end - bytes.start).map_err(io::Error::other)?;
        if let Some(map) = &self.map {
            let offset = usize::try_from(bytes.start - piece.start).map_err(io::Error::other)?;
            match map.populate(offset, len) {
                Ok(()) => return Ok(bytes.end - bytes.start),
                Err(error) if error.raw_os_error() == Some(libc::EFAULT) => return Ok(0),
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => self.map = None,
                Err(error) => return Err(error),
            }
        }
        scratch.resize(scratch.len().max(len), 0);
        self.file
            .read_at(&mut scratch[..len], bytes.start)
            .map(|read| read as u64)
    }
}

/// Whether a piece is in memory and need not be read.
///
/// Where a stream goes on, the kernel has read ahead of it, and only goes on to do so if what it brought is read: the
/// piece counts as being in memory if much more is than read-ahead can have brought. (A page counts as soon as its read
/// has begun.)
fn is_resident(open: &Open, piece: &Piece, goes_on: bool) -> bool {
    let beyond = if goes_on {
        open.ahead.saturating_mul(2).saturating_add(1 << 20)
    } else {
        0
    };
    let end = piece.end.saturating_add(beyond);
    if goes_on && end > open.entry.len {
        return false;
    }
    let pages = (end - piece.start).div_ceil(rustix::param::page_size() as u64);
    // where the kernel does not say, reading is cheap enough
    sys::cachestat(open.file.as_fd(), piece.start, end - piece.start)
        .is_ok_and(|stat| stat.cache >= pages)
}
