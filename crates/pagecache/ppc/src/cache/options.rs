//! Options of a prefetcher.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::Namespace;
use crate::cache::Topology;
use crate::error::{Error, Result};

/// Share of the memory limit above which nothing more is prefetched. The remaining tenth is left to reads and
/// read-ahead in progress, so that the kernel does not have to reclaim.
pub const MEMORY_THRESHOLD: f64 = 0.9;

/// Returns the number of bytes that may be read into memory now. Its argument is the number of bytes that the prefetcher has
/// read or found in the page cache so far.
pub type MemoryHeadroom = Arc<dyn Fn(u64) -> u64 + Send + Sync>;

/// Receives the errors of files that could not be read, with the number of the queue. Called on a prefetching thread.
pub type ErrorCallback = Arc<dyn Fn(u32, &Error) + Send + Sync>;

/// Receives what was read: the files, one of them, and the range in bytes. Called on a prefetching thread after each read.
pub type ReadCallback = Arc<dyn Fn(&Namespace, &Arc<Path>, Range<u64>) + Send + Sync>;

/// How bytes are read into the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrefetchMethod {
    /// `pread`. The kernel reads ahead, which keeps the device busy and builds large folios. Up to twice
    /// `read_ahead_kb` beyond a range may be read too, and the device may still be reading ahead after an interrupt.
    #[default]
    Read,
    /// Populates a mapping with `MADV_HUGEPAGE` and `MADV_RANDOM`. This builds large folios from the first byte, and
    /// reads no more than the 2 MiB units in which a range begins and ends. No read is in progress after an
    /// interrupt. Because a thread waits for each read, several threads per queue are needed to keep a device busy.
    /// Needs Linux 5.18, transparent huge pages, and a file system with large folios; otherwise it behaves like
    /// `Read`, or reads page by page.
    Populate,
}

/// Threads per queue on a device with little read-ahead, and threads in total. Measured with 128 KiB of read-ahead:
/// one thread 791 MiB/s, two 1273, four 1355, eight 1728 in one series and 890, 1234, 1652, 1510 in another
/// (EXPERIMENTS.md, "Reading").
const THREADS: usize = 4;
/// Read-ahead from which one thread per queue keeps a device busy. With more threads on one list the kernel no longer
/// detects a sequential reader and builds small folios, which take 50 times as long to evict (EXPERIMENTS.md,
/// "Reading").
const SUFFICIENT_READ_AHEAD: u64 = 1 << 20;

/// Options of a [`Prefetcher`](super::Prefetcher).
#[derive(Clone)]
pub struct PrefetchOptions {
    /// Number of threads. The default is 4 for any number of cores, because the threads mostly wait for the device.
    pub threads: usize,
    /// Threads that read different pieces of one queue at the same time. `None`: 1 if the device reads ahead by 1 MiB
    /// (`read_ahead_kb`) or more, otherwise 4.
    pub threads_per_queue: Option<usize>,
    /// How bytes are read.
    pub method: PrefetchMethod,
    /// Bytes of one read; a power of two from 64 KiB to 64 MiB, by default 512 KiB. An interrupt takes effect after
    /// one read of each thread: with four threads 1.4 to 1.7 ms with 512 KiB and 2.0 to 2.2 ms with 1 MiB, at the
    /// same throughput (EXPERIMENTS.md, "Interrupts").
    pub read_size: usize,
    /// Bytes that a thread claims and looks up in the page cache at once, before the next queue is served. A multiple
    /// of `read_size` up to 1 GiB, by default 8 MiB.
    pub piece_size: u64,
    /// Two ranges of a list at most this many bytes apart are read together with the gap, if memory permits. By
    /// default 64 KiB: a device with 1 GB/s and 0.1 ms of latency transfers 100 KB in the time of another read. Such
    /// gaps occur in matrices that are split by columns among several workers, which read the gaps themselves.
    pub gap: u64,
    /// Limit on bytes per second of all threads together; `None`: unlimited.
    pub bandwidth: Option<u64>,
    /// Returns how many bytes may be read into memory. Called before every piece, on any thread, without a lock held.
    /// Bytes that are claimed but not yet read are subtracted from its result. `None`: unlimited.
    pub headroom: Option<MemoryHeadroom>,
    /// Receives errors of files that could not be read. `None`: they are logged.
    pub on_error: Option<ErrorCallback>,
    /// Receives what was read.
    pub on_read: Option<ReadCallback>,
    /// Memory nodes of accelerators and cores.
    pub topology: Arc<Topology>,
}

impl Default for PrefetchOptions {
    fn default() -> Self {
        Self {
            // EXPERIMENTS.md, "Reading": eight threads were faster than four in one series and slower in the other
            threads: THREADS,
            threads_per_queue: None,
            method: PrefetchMethod::default(),
            // EXPERIMENTS.md, "Interrupts": the rate of 1 MiB, and interrupts take effect sooner
            read_size: 512 << 10,
            piece_size: 8 << 20,
            gap: 64 << 10,
            bandwidth: None,
            headroom: None,
            on_error: None,
            on_read: None,
            topology: Arc::new(Topology::read()),
        }
    }
}

impl fmt::Debug for PrefetchOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            threads,
            threads_per_queue,
            method,
            read_size,
            piece_size,
            gap,
            bandwidth,
            headroom,
            on_error,
            on_read,
            topology,
        } = self;
        f.debug_struct("PrefetchOptions")
            .field("threads", threads)
            .field("threads_per_queue", threads_per_queue)
            .field("method", method)
            .field("read_size", read_size)
            .field("piece_size", piece_size)
            .field("gap", gap)
            .field("bandwidth", bandwidth)
            .field("headroom", &headroom.is_some())
            .field("on_error", &on_error.is_some())
            .field("on_read", &on_read.is_some())
            .field("topology", topology)
            .finish()
    }
}

impl PrefetchOptions {
    /// Number of threads that read one queue at a time. `read_ahead` returns the read-ahead of the device in bytes;
    /// it reads a file of sysfs, and is only called if the result depends on it.
    pub(super) fn width(&self, read_ahead: impl FnOnce() -> u64) -> usize {
        self.threads_per_queue.unwrap_or_else(|| {
            if read_ahead() < SUFFICIENT_READ_AHEAD {
                THREADS
            } else {
                1
            }
        })
    }

    /// Returns an error if a value is outside of its allowed range.
    pub(super) fn check(&self) -> Result<()> {
        let Self {
            threads,
            threads_per_queue,
            read_size,
            piece_size,
            ..
        } = *self;
        let allowed = 1..=256;
        if !allowed.contains(&threads) || !allowed.contains(&threads_per_queue.unwrap_or(1)) {
            return Err(Error::invalid(format!(
                "{threads} threads, {threads_per_queue:?} per queue; allowed are 1 to 256"
            )));
        }
        if !read_size.is_power_of_two() || !((64 << 10)..=(64 << 20)).contains(&read_size) {
            return Err(Error::invalid(format!(
                "a read size of {read_size} bytes; allowed are powers of two from 64 KiB to 64 MiB"
            )));
        }
        if piece_size == 0 || piece_size % read_size as u64 != 0 || piece_size > 1 << 30 {
            return Err(Error::invalid(format!(
                "a piece size of {piece_size} bytes; allowed are multiples of the read size up to 1 GiB"
            )));
        }
        Ok(())
    }
}
