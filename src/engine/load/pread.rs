//! Loading with threads that do positioned reads into pool buffers.

use std::io;
use std::sync::Arc;
use std::thread;

use zeropool::BufferPart;

use super::coalesce::coalesce;
use super::on_demand::{OnDemandFeed, truncated};
use super::read_ahead::{NextRequest, ReadAhead, ReadRequest, RequestLayout};
use super::report::{Backend, ReportBuilder};
use super::{Consumer, LoadContext, Loader};
use crate::base::error::{Error, Result};
use crate::read::catalog::ByteRange;

/// Reads with threads. Works with every source.
#[derive(Clone, Copy, Debug)]
pub struct PreadLoader {
    threads: usize,
    request_size: usize,
    direct: bool,
}

/// Alignment of requests through the page cache: no element of any dtype needs more, so that elements which are
/// aligned in the file are aligned in memory.
pub(super) const BUFFERED_ALIGN: u64 = 64;
/// Bytes of the largest extent that several reads share. A buffer is released only with the last tensor in it, so a
/// larger extent would keep more memory for one small tensor.
pub(super) const MAX_SHARED_EXTENT: u64 = 16 << 20;
/// Bytes of the largest extent that several reads share, where no more than `read_ahead` bytes shall be read ahead. Not
/// less than 1 MiB: smaller requests do not reach the device's rate.
pub(super) fn shared_extent(read_ahead: u64) -> u64 {
    read_ahead.clamp(1 << 20, MAX_SHARED_EXTENT)
}
/// Default bytes of a request: direct I/O reaches the device's rate with it (experiment 24 in
/// `docs/perf-experiments.md`).
const REQUEST_SIZE: usize = 2 << 20;
/// Bytes of the largest request: a read cannot be cancelled once it has started.
const MAX_REQUEST_SIZE: usize = 64 << 20;

impl Default for PreadLoader {
    fn default() -> Self {
        Self {
            threads: 0,
            request_size: REQUEST_SIZE,
            direct: false,
        }
    }
}

impl PreadLoader {
    /// One thread per core, through the page cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of threads that read; 0, the default, for one per core.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Bytes of one read, rounded up to pages of 4 KiB; at most 64 MiB. Default 2 MiB.
    #[must_use]
    pub fn request_size(mut self, bytes: usize) -> Self {
        self.request_size = bytes.clamp(1, MAX_REQUEST_SIZE).next_multiple_of(4096);
        self
    }

    /// Whether reads bypass the page cache (`O_DIRECT`), where the file system supports it. Default off.
    #[must_use]
    pub fn direct(mut self, direct: bool) -> Self {
        self.direct = direct;
        self
    }

    #[cfg(all(target_os = "linux", feature = "uring"))]
    pub(super) fn is_direct(&self) -> bool {
        self.direct
    }

    /// How extents are split if offsets must be multiples of `align`.
    pub(super) fn layout(&self, align: u64) -> RequestLayout {
        let size = self
            .request_size
            .next_multiple_of(usize::try_from(align).unwrap_or(1));
        RequestLayout { size, align }
    }
}

/// The files as the threads read them.
enum RequestSource<'c> {
    Buffered(&'c [Arc<dyn crate::read::source::Source>]),
    #[cfg(target_os = "linux")]
    Direct(super::direct::DirectFiles),
}

impl<'c> RequestSource<'c> {
    fn open(
        sources: &'c [Arc<dyn crate::read::source::Source>],
        direct: bool,
        report: &Arc<ReportBuilder>,
    ) -> Self {
        #[cfg(target_os = "linux")]
        if direct && let Some(direct) = super::direct::DirectFiles::open(sources, report) {
            return Self::Direct(direct);
        }
        #[cfg(not(target_os = "linux"))]
        if direct {
            report.fall_back_to_buffered("direct I/O is implemented for Linux only".into());
        }
        Self::Buffered(sources)
    }

    fn is_buffered(&self) -> bool {
        matches!(self, Self::Buffered(_))
    }

    fn align(&self) -> u64 {
        match self {
            Self::Buffered(_) => BUFFERED_ALIGN,
            #[cfg(target_os = "linux")]
            Self::Direct(files) => files.align(),
        }
    }

    fn read(&self, request: ReadRequest, part: &mut BufferPart) -> io::Result<usize> {
        match self {
            Self::Buffered(files) => {
                files[request.file as usize].read_at(request.start, &mut part[..request.needed])
            }
            #[cfg(target_os = "linux")]
            Self::Direct(files) => files.read(request.file, request.start, part, request.needed),
        }
    }
}

impl Loader for PreadLoader {
    fn name(&self) -> &'static str {
        if self.direct {
            "pread, direct"
        } else {
            "pread"
        }
    }

    fn run<'c>(
        &self,
        context: &LoadContext<'c>,
        reads: &[ByteRange],
        consumer: Consumer<'_, 'c>,
    ) -> Result<()> {
        self.run_as_fallback(context, reads, consumer, None)
    }
}

impl PreadLoader {
    /// Reads, and reports why it was used instead of another loader, if it was.
    pub(super) fn run_as_fallback<'c>(
        &self,
        context: &LoadContext<'c>,
        reads: &[ByteRange],
        consumer: Consumer<'_, 'c>,
        fallback: Option<String>,
    ) -> Result<()> {
        let report = Arc::new(ReportBuilder::new(Backend::Threads, fallback));
        let sources = context.checkpoint.sources();
        let files = RequestSource::open(sources, self.direct, &report);
        let threads = crate::base::threads::thread_count(self.threads);
        if context.into_memory && files.is_buffered() {
            // no aligned buffers are needed, so the consumer's threads read into its memory, without a copy
            let step = self.request_size;
            return consumer(&OnDemandFeed::new(context, reads, threads, step, report));
        }
        let list = coalesce(reads, context.max_gap, shared_extent(context.read_ahead));
        let queue = ReadAhead::new(context, list, self.layout(files.align()), report);
        // a single request is read by this thread: starting another one costs more than a small file (experiment 43).
        // If the pool is exhausted, this thread must not wait: only the consumer may release buffers.
        if queue.is_one_request() && read_requests(&queue, &files, false) {
            return consumer(&queue);
        }
        thread::scope(|scope| {
            let stop = queue.stop_on_drop();
            let spawn = |number| {
                let read = || {
                    read_requests(&queue, &files, true);
                };
                thread::Builder::new()
                    .name(format!("pread-{number}"))
                    // readers end before `run` returns, so that no read outlives the files or the buffers
                    .spawn_scoped(scope, read)
            };
            let mut readers = vec![spawn(0).map_err(Error::from)?];
            // one reader suffices, so that a failure to start more is no error
            readers.extend((1..threads).map_while(|number| spawn(number).ok()));
            let outcome = consumer(&queue);
            // readers that wait for room would keep the scope open
            drop(stop);
            // a reader that panicked has stopped the queue, and the consumer has returned that as an error
            readers.into_iter().for_each(|thread| drop(thread.join()));
            outcome
        })
    }
}

/// Reads requests until the queue is finished, and returns true; or, if `wait` is not set, until it is full.
fn read_requests(queue: &ReadAhead<'_>, files: &RequestSource<'_>, wait: bool) -> bool {
    let _stop = queue.stop_on_panic();
    loop {
        let (request, mut part) = match queue.next(wait) {
            NextRequest::Request(request, part) => (request, part),
            NextRequest::Full => return false,
            NextRequest::Finished => return true,
        };
        match files.read(request, &mut part) {
            Ok(n) if n >= request.needed => queue.complete(request, part),
            // `read_at` repeats short reads, so this is the end of the file
            Ok(n) => queue.fail(request.file, request.start + n as u64, truncated()),
            Err(e) => queue.fail(request.file, request.start, e),
        }
    }
}
