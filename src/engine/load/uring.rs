//! Loading with io_uring: many reads in flight from few threads, into pool buffers.

#[cfg(test)]
mod faults;
mod ring;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Once};
use std::thread;

use zeropool::BufferPart;

use super::coalesce::coalesce;
use super::on_demand::truncated;
use super::pread::{BUFFERED_ALIGN, shared_extent};
use super::read_ahead::{NextRequest, ReadAhead, ReadRequest};
use super::report::{Backend, ReportBuilder};
use super::storage::{StorageKind, storage_kind};
use super::{Consumer, LoadContext, Loader, PreadLoader, direct};
use crate::base::error::Result;
use crate::base::threads::thread_count;
use crate::read::catalog::ByteRange;
use crate::read::source::open_files::DescriptorCount;
use crate::read::source::{MAX_INTERRUPTIONS, Source, too_often_interrupted, uninterrupted};
use ring::{EndedRead, ReadRing, RingOperations};

/// Reads with io_uring, from threads of its own. Falls back to [`PreadLoader`] if the kernel has no io_uring, a source
/// has no file descriptor, or a file lies on FUSE; and to one read after another if the kernel stops to accept them.
#[derive(Clone, Copy, Debug)]
pub struct UringLoader {
    depth: usize,
    threads: usize,
    /// Holds the request size and direct I/O of both.
    fallback: PreadLoader,
}

impl Default for UringLoader {
    fn default() -> Self {
        Self {
            depth: 16,
            threads: 0,
            fallback: PreadLoader::new(),
        }
    }
}

impl UringLoader {
    /// 16 reads in flight, through the page cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads in flight: 1 to 1024. Default 16, which reaches the device's rate with requests of 2 MiB (experiment 24 in
    /// `docs/perf-experiments.md`).
    #[must_use]
    pub fn depth(mut self, depth: usize) -> Self {
        self.depth = depth.clamp(1, 1024);
        self
    }

    /// Threads that start reads, each with a ring of its own and its share of the reads in flight; 0, the default, for one
    /// per core and at most four. The kernel makes memory that is new to the process resident while a read
    /// is started, which takes one thread longer than the device takes to fill it (experiment 55).
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Bytes of one read, rounded up to pages of 4 KiB; at most 64 MiB. Default 2 MiB.
    #[must_use]
    pub fn request_size(mut self, bytes: usize) -> Self {
        self.fallback = self.fallback.request_size(bytes);
        self
    }

    /// Whether reads bypass the page cache (`O_DIRECT`), where the file system supports it. Default off.
    #[must_use]
    pub fn direct(mut self, direct: bool) -> Self {
        self.fallback = self.fallback.direct(direct);
        self
    }
}

/// More threads would only wait: four make memory resident faster than devices fill it.
const MOST_THREADS: usize = 4;

/// The files, opened again for the ring: flags and read-ahead of the caller's descriptors stay as they are.
enum RingFiles {
    Buffered(Vec<File>, #[allow(dead_code)] DescriptorCount),
    Direct(direct::DirectFiles),
}

impl RingFiles {
    fn open(
        sources: &[Arc<dyn Source>],
        direct: bool,
        report: &Arc<ReportBuilder>,
    ) -> io::Result<Self> {
        // If the server of a file bypasses the page cache (`FOPEN_DIRECT_IO`), the kernel continues a short read of a ring
        // at the offset where the read began, and reports other bytes as a success (Linux 6.18; `tests/own_process/io_faults.rs`). No
        // query tells which files are such.
        let is_fuse = |source: &dyn Source| {
            let kind = source.as_fd().map(|fd| storage_kind(fd.as_fd()));
            kind == Some(StorageKind::Network("fuse"))
        };
        if sources.iter().any(|source| is_fuse(&**source)) {
            return Err(io::Error::other("its reads of FUSE files are not reliable"));
        }
        if direct && let Some(direct) = direct::DirectFiles::open(sources, report) {
            return Ok(Self::Direct(direct));
        }
        let reopen = |source: &dyn Source| {
            let fd = source
                .as_fd()
                .ok_or_else(|| io::Error::other("a source has no descriptor"))?;
            direct::reopen(fd.as_fd(), rustix::fs::OFlags::empty())
        };
        let open = DescriptorCount::of_files(sources.len())?;
        let files = sources.iter().map(|source| reopen(&**source));
        let files = files.collect::<io::Result<_>>()?;
        Ok(Self::Buffered(files, open))
    }

    fn align(&self) -> u64 {
        match self {
            Self::Buffered(..) => BUFFERED_ALIGN,
            Self::Direct(files) => files.align(),
        }
    }

    fn file(&self, number: u32) -> &File {
        match self {
            Self::Buffered(files, _) => &files[number as usize],
            Self::Direct(files) => &files.files()[number as usize].file,
        }
    }

    fn direct_file(&self, number: u32) -> Option<&direct::DirectFile> {
        match self {
            Self::Buffered(..) => None,
            Self::Direct(files) => Some(&files.files()[number as usize]),
        }
    }
}

impl UringLoader {
    /// A ring for each thread, with its share of the reads in flight. One ring suffices, so that a failure to make more is no
    /// error.
    fn rings(&self) -> io::Result<Vec<ReadRing<PartialRead>>> {
        let threads = match self.threads {
            0 => thread_count(0).min(MOST_THREADS),
            threads => threads,
        };
        // each ring holds at least one read
        let threads = threads.min(self.depth);
        let (each, more) = (self.depth / threads, self.depth % threads);
        let ring = |number| ReadRing::new(each + usize::from(number < more));
        let mut rings = vec![ring(0)?];
        rings.extend((1..threads).map_while(|number| ring(number).ok()));
        Ok(rings)
    }
}

impl Loader for UringLoader {
    fn name(&self) -> &'static str {
        if self.fallback.is_direct() {
            "io_uring, direct"
        } else {
            "io_uring"
        }
    }

    fn run<'c>(
        &self,
        context: &LoadContext<'c>,
        reads: &[ByteRange],
        consumer: Consumer<'_, 'c>,
    ) -> Result<()> {
        let report = Arc::new(ReportBuilder::new(Backend::IoUring, None));
        let sources = context.checkpoint.sources();
        // before the ring's thread starts: a fallback calls the consumer, which must be called once only
        let opened = RingFiles::open(sources, self.fallback.is_direct(), &report)
            .and_then(|files| Ok((files, self.rings()?)));
        let (files, rings) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                // once per process: each load would report the same
                static ONCE: Once = Once::new();
                ONCE.call_once(
                    || tracing::warn!(%error, "io_uring is not available: reading with threads"),
                );
                let why = Some(format!("no io_uring: {error}"));
                return self.fallback.run_as_fallback(context, reads, consumer, why);
            }
        };
        let list = coalesce(reads, context.max_gap, shared_extent(context.read_ahead));
        let layout = self.fallback.layout(files.align());
        let queue = ReadAhead::new(context, list, layout, Arc::clone(&report));
        let reader = RingReader {
            queue: &queue,
            files: &files,
            report: &report,
        };
        thread::scope(|scope| {
            let stop = queue.stop_on_drop();
            let (mut readers, reader) = (Vec::new(), &reader);
            for (number, ring) in rings.into_iter().enumerate() {
                let thread = thread::Builder::new().name(format!("io_uring-{number}"));
                match thread.spawn_scoped(scope, move || reader.run(ring)) {
                    Ok(thread) => readers.push(thread),
                    // one reader suffices, so that a failure to start more is no error
                    Err(_) if !readers.is_empty() => break,
                    Err(error) => return Err(error.into()),
                }
            }
            let outcome = consumer(&queue);
            // the queue must stop before the threads are joined, or one that waits for a request would never end
            drop(stop);
            // a thread that panicked has stopped the queue, and the consumer has returned that as an error
            readers.into_iter().for_each(|reader| drop(reader.join()));
            outcome
        })
    }
}

/// A request in progress.
struct PartialRead {
    request: ReadRequest,
    /// Bytes that were read.
    done: usize,
    /// Reads that were interrupted in succession.
    interruptions: u32,
    /// Whether the read in flight was started through the page cache.
    buffered: bool,
}

impl PartialRead {
    fn offset(&self) -> u64 {
        self.request.start + self.done as u64
    }
}

/// The state that the ring's thread works with.
struct RingReader<'r, 'c> {
    queue: &'r ReadAhead<'c>,
    files: &'r RingFiles,
    report: &'r ReportBuilder,
}

impl RingReader<'_, '_> {
    /// Keeps as many reads in flight as the ring holds until the queue is finished.
    fn run(&self, mut ring: impl RingOperations<PartialRead>) {
        let _stop = self.queue.stop_on_panic();
        loop {
            let mut finished = false;
            while !ring.is_full() {
                // waits for a request only if no read is in flight whose completion must be handled
                match self.queue.next(ring.is_empty()) {
                    NextRequest::Request(request, part) => {
                        let read = PartialRead {
                            request,
                            done: 0,
                            interruptions: 0,
                            buffered: false,
                        };
                        self.start(&mut ring, read, part);
                    }
                    NextRequest::Full => break,
                    NextRequest::Finished => {
                        finished = true;
                        break;
                    }
                }
            }
            match ring.wait() {
                Some(ended) => self.end(&mut ring, ended),
                None if finished => return,
                None => {}
            }
        }
    }

    /// Queues a read of the bytes of a request that are missing.
    fn start(
        &self,
        ring: &mut impl RingOperations<PartialRead>,
        mut read: PartialRead,
        part: BufferPart,
    ) {
        if let Some(error) = ring.refusal() {
            return self.read_without_ring(read, part, &error);
        }
        let number = read.request.file;
        // a direct read fills the whole part, whose end is aligned; the end of the needed bytes may not be
        let end = match self.files.direct_file(number) {
            Some(direct) => {
                read.buffered = direct.is_buffered();
                part.len()
            }
            None => read.request.needed,
        };
        let file: BorrowedFd<'_> = self.files.file(number).as_fd();
        ring.push(file, read.offset(), part, read.done..end, read);
    }

    /// After a read has ended: completes its request, continues it, or stops the queue.
    fn end(&self, ring: &mut impl RingOperations<PartialRead>, ended: EndedRead<PartialRead>) {
        let EndedRead {
            mut read,
            part,
            outcome,
        } = ended;
        let direct = self.files.direct_file(read.request.file);
        let continued = match outcome {
            // the ranges were checked against the length at opening, so the end of the file means that it was truncated
            // since
            Ok(0) => Err(truncated()),
            Ok(n) => {
                read.done += n;
                read.interruptions = 0;
                if let Some(direct) = direct {
                    direct.succeeded(read.buffered);
                }
                match self.files {
                    RingFiles::Direct(files) if read.done < read.request.needed => {
                        files.after_short_read(read.request.file, read.done)
                    }
                    _ => Ok(()),
                }
            }
            Err(None) => {
                let error = ring
                    .refusal()
                    .unwrap_or_else(|| io::ErrorKind::Unsupported.into());
                return self.read_without_ring(read, part, &error);
            }
            Err(Some(e)) if e.kind() == io::ErrorKind::Interrupted => {
                read.interruptions += 1;
                if read.interruptions < MAX_INTERRUPTIONS {
                    Ok(())
                } else {
                    Err(too_often_interrupted())
                }
            }
            Err(Some(e)) => match direct {
                // the file system may refuse direct reads only, and the page cache serves it then
                Some(direct) if !read.buffered => direct.failed(read.buffered, e),
                // some sandboxes allow the setup of a ring and refuse its operations
                _ if is_unknown_operation(&e) => return self.read_without_ring(read, part, &e),
                _ => Err(e),
            },
        };
        match continued {
            Ok(()) if read.done >= read.request.needed => self.queue.complete(read.request, part),
            Ok(()) => self.start(ring, read, part),
            Err(error) => self.queue.fail(read.request.file, read.offset(), error),
        }
    }

    /// Reads what is missing of a request with system calls, because the ring does not.
    fn read_without_ring(&self, mut read: PartialRead, mut part: BufferPart, why: &io::Error) {
        self.report
            .fall_back(format!("one by one: io_uring does not read here: {why}"));
        let (request, number) = (read.request, read.request.file);
        if let RingFiles::Direct(files) = self.files {
            // from the beginning, which is aligned
            return match files.read(number, request.start, &mut part, request.needed) {
                Ok(n) if n >= request.needed => self.queue.complete(request, part),
                Ok(n) => self
                    .queue
                    .fail(number, request.start + n as u64, truncated()),
                Err(error) => self.queue.fail(number, request.start, error),
            };
        }
        let file = self.files.file(number);
        while read.done < request.needed {
            let out = &mut part[read.done..request.needed];
            let start = request.start + read.done as u64;
            match uninterrupted(|| file.read_at(out, start)) {
                Ok(0) => return self.queue.fail(number, start, truncated()),
                Ok(n) => read.done += n,
                Err(error) => return self.queue.fail(number, start, error),
            }
        }
        self.queue.complete(request, part);
    }
}

/// Whether an error says that the kernel has io_uring, but not its read operation: before Linux 5.6, and in some
/// sandboxes.
fn is_unknown_operation(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let unknown = [Errno::INVAL, Errno::OPNOTSUPP, Errno::NOSYS];
    error
        .raw_os_error()
        .is_some_and(|code| unknown.iter().any(|errno| errno.raw_os_error() == code))
}
