//! Loading with many requests at a time, of files that are not on this machine.

mod driver;
mod hedge;
mod memory;
mod pace;

use std::sync::Arc;
use std::thread;

use super::coalesce::coalesce;
use super::pread::{BUFFERED_ALIGN, shared_extent};
use super::read_ahead::{ReadAhead, RequestLayout};
use super::report::{Backend, ReportBuilder};
use super::{Consumer, LoadContext, Loader, MAX_GAP, PreadLoader};
use crate::base::error::{Error, Result};
use crate::read::catalog::ByteRange;
use driver::RequestDriver;

/// Reads with many requests under way, over all files, into pool buffers: of files at URLs, and of other sources that have
/// [concurrent reads](crate::source::ConcurrentReads). Falls back to [`PreadLoader`] for a source that has none.
///
/// The number of requests grows from 16 as long as more of them make the load faster, and shrinks when the server refuses
/// requests. A request that is silent for three times as long as most are before their first byte is repeated alongside; of
/// twenty requests, at most one.
#[derive(Clone, Copy, Debug)]
pub struct RemoteLoader {
    request_size: usize,
    requests: usize,
}

/// Bytes of a request: at 50 MB/s they take five times as long as a round trip of 30 ms.
const REQUEST_SIZE: usize = 8 << 20;
/// Requests under way at most: more connections to one host are refused by some servers.
const MAX_REQUESTS: usize = 64;
/// Bytes between two reads that cost less than another request, while others are under way.
const GAP: u64 = 256 << 10;

impl Default for RemoteLoader {
    fn default() -> Self {
        Self {
            request_size: REQUEST_SIZE,
            requests: MAX_REQUESTS,
        }
    }
}

impl RemoteLoader {
    /// Requests of 8 MiB, at most 64 at a time.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes of one request, rounded up to multiples of 4 KiB; at most 64 MiB. Default 8 MiB.
    #[must_use]
    pub fn request_size(mut self, bytes: usize) -> Self {
        self.request_size = bytes.clamp(1, 64 << 20).next_multiple_of(4096);
        self
    }

    /// The largest number of requests under way: 1 to 1024. Default 64.
    #[must_use]
    pub fn requests(mut self, requests: usize) -> Self {
        self.requests = requests.clamp(1, 1024);
        self
    }
}

impl Loader for RemoteLoader {
    fn name(&self) -> &'static str {
        "remote"
    }

    fn run<'c>(
        &self,
        context: &LoadContext<'c>,
        reads: &[ByteRange],
        consumer: Consumer<'_, 'c>,
    ) -> Result<()> {
        let sources = context.checkpoint.sources();
        if sources.iter().any(|source| source.concurrent().is_none()) {
            let why = "no requests: a source has no concurrent reads".to_owned();
            let fallback = PreadLoader::new().request_size(self.request_size);
            return fallback.run_as_fallback(context, reads, consumer, Some(why));
        }
        // less where no more than the requested bytes shall be read
        let max_gap = if context.max_gap < MAX_GAP {
            context.max_gap
        } else {
            context.max_gap.max(GAP)
        };
        let list = coalesce(reads, max_gap, shared_extent(context.read_ahead));
        let layout = RequestLayout {
            size: self.request_size,
            align: BUFFERED_ALIGN,
        };
        let report = Arc::new(ReportBuilder::new(Backend::Requests, None));
        let queue = ReadAhead::new(context, list, layout, report);
        let driver = RequestDriver::new(&queue, sources, self.requests);
        thread::scope(|scope| {
            let stop = queue.stop_on_drop();
            let thread = thread::Builder::new()
                .name("requests".into())
                .spawn_scoped(scope, move || driver.run());
            let thread = thread.map_err(Error::from)?;
            let outcome = consumer(&queue);
            // the queue must stop before the thread is joined, or a thread that waits for a request would never end
            drop(stop);
            // a thread that panicked has stopped the queue, and the consumer has returned that as an error
            drop(thread.join());
            outcome
        })
    }
}
