//! How a prefetcher works.

use std::fmt;
use std::sync::Arc;

use crate::cache::Topology;
use crate::error::{Error, Result};

/// Bytes that may be brought into memory now.
pub type Room = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Told of what could not be read, on the thread that wanted to, with the lane's number.
pub type Report = Arc<dyn Fn(u32, &Error) + Send + Sync>;

/// How bytes are brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fill {
    /// By `pread`. The kernel reads ahead of it, which keeps the device busy and builds large folios as it goes; up to
    /// twice `read_ahead_kb` beyond a range may come too, and the device may be busy with that after an interrupt.
    #[default]
    Read,
    /// By populating a mapping that was advised to be of huge pages and not read ahead: large folios from the first
    /// byte, and no more than the 2 MiB that a range begins and ends in. Nothing is under way after an interrupt. A
    /// thread waits for each read, so it takes several per lane to keep a device busy. Linux 5.18, transparent huge
    /// pages, and a file system with large folios; without these it is as `Read`, or goes page by page.
    Populate,
}

/// Threads for one lane where the device reads little ahead.
const WIDE: usize = 4;
/// Bytes of read-ahead that keep a device busy for one thread.
const AHEAD: u64 = 1 << 20;

/// How a [`Prefetcher`](super::Prefetcher) works.
#[derive(Clone)]
pub struct Options {
    /// Threads; 4, whatever cores there are: they wait for the device more than they work.
    pub threads: usize,
    /// Threads that read for one lane at the same time, each another piece. `None`: 1 where the device reads
    /// 1 MiB ahead (`read_ahead_kb`) or more, which keeps it busy while one thread reads in order; else 4, since with
    /// 128 KiB one thread gets half of what the device has.
    pub per_lane: Option<usize>,
    /// How bytes are brought.
    pub fill: Fill,
    /// Bytes of one read, 512 KiB: an interrupt waits for one read of each thread. A power of two, at least 64 KiB.
    pub read: usize,
    /// Bytes that a thread takes at once before it is another lane's turn, and looks up at once in the page cache;
    /// 8 MiB. A multiple of `read`.
    pub piece: u64,
    /// Bytes between two ranges of a list that are read along, while there is room: a device that reads 1 GB in a second
    /// and answers in a tenth of a millisecond reads 100 KB in the time of another read; 64 KiB. The columns of a matrix
    /// that one worker of four takes lie as near as that, and the other workers want what lies between.
    pub gap: u64,
    /// Bytes per second, all threads together; `None`: as many as come.
    pub bandwidth: Option<u64>,
    /// How many bytes may be brought now; asked before every piece, on any thread, often, and not while anything is
    /// locked. What was taken and not yet read is subtracted from its answer. `None`: as many as come.
    pub room: Option<Room>,
    /// Told of files that could not be read; `None`: the log is.
    pub report: Option<Report>,
    /// Where accelerators and cores are.
    pub topology: Arc<Topology>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            threads: WIDE,
            per_lane: None,
            fill: Fill::default(),
            read: 512 << 10,
            piece: 8 << 20,
            gap: 64 << 10,
            bandwidth: None,
            room: None,
            report: None,
            topology: Arc::new(Topology::read()),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            threads,
            per_lane,
            fill,
            read,
            piece,
            gap,
            bandwidth,
            room,
            report,
            topology,
        } = self;
        f.debug_struct("Options")
            .field("threads", threads)
            .field("per_lane", per_lane)
            .field("fill", fill)
            .field("read", read)
            .field("piece", piece)
            .field("gap", gap)
            .field("bandwidth", bandwidth)
            .field("room", &room.is_some())
            .field("report", &report.is_some())
            .field("topology", topology)
            .finish()
    }
}

impl Options {
    /// How many threads read at once for a lane whose device reads `ahead` bytes ahead, which is asked for if it matters.
    pub(super) fn width(&self, ahead: impl FnOnce() -> u64) -> usize {
        self.per_lane
            .unwrap_or_else(|| if ahead() < AHEAD { WIDE } else { 1 })
    }

    /// Whether these can be meant.
    pub(super) fn check(&self) -> Result<()> {
        let Self {
            threads,
            per_lane,
            read,
            piece,
            ..
        } = *self;
        let allowed = 1..=256;
        if !allowed.contains(&threads) || !allowed.contains(&per_lane.unwrap_or(1)) {
            return Err(Error::invalid(format!(
                "{threads} threads, {per_lane:?} of them for a lane; allowed are 1 to 256"
            )));
        }
        if !read.is_power_of_two() || !((64 << 10)..=(64 << 20)).contains(&read) {
            return Err(Error::invalid(format!(
                "reads of {read} bytes; allowed are powers of two from 64 KiB to 64 MiB"
            )));
        }
        if piece == 0 || piece % read as u64 != 0 || piece > 1 << 30 {
            return Err(Error::invalid(format!(
                "pieces of {piece} bytes; allowed are multiples of a read up to 1 GiB"
            )));
        }
        Ok(())
    }
}
