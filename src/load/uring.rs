//! Loading with io_uring: many reads in flight from one thread, into pool buffers.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::mpsc;
use std::sync::{Arc, OnceLock};
use std::thread;

use tokio::task::JoinSet;
use tokio_uring::buf::BoundedBuf;
use zeropool::BufferPart;

use super::coalesce::coalesce;
use super::pread::{BUFFERED_ALIGN, MAX_SHARED_EXTENT, truncated};
use super::read_ahead::{NextRequest, ReadAhead, ReadRequest};
use super::report::{Backend, ReportBuilder};
use super::{Consumer, LoadContext, Loader, PreadLoader, direct};
use crate::catalog::ByteRange;
use crate::error::{Error, Result};
use crate::source::Source;

/// Reads with io_uring, from a thread of its own. Falls back to [`PreadLoader`] if the kernel has no io_uring or a
/// source has no file descriptor.
#[derive(Clone, Copy, Debug)]
pub struct UringLoader {
    depth: usize,
    /// Holds the request size and direct I/O of both.
    fallback: PreadLoader,
}

impl Default for UringLoader {
    fn default() -> Self {
        Self {
            depth: 16,
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

/// The files, opened again for the ring: flags and read-ahead of the caller's descriptors stay as they are.
struct RingFiles {
    direct: Option<direct::DirectFiles>,
    /// The descriptors that the ring reads: those of `direct` if there are any.
    files: Vec<File>,
    align: u64,
}

impl RingFiles {
    fn open(
        sources: &[Box<dyn Source>],
        direct: bool,
        report: &Arc<ReportBuilder>,
    ) -> io::Result<Self> {
        if direct && let Some(direct) = direct::DirectFiles::open(sources, report) {
            let files = direct
                .files()
                .iter()
                .map(|file| file.file.try_clone())
                .collect::<io::Result<_>>()?;
            return Ok(Self {
                align: direct.align(),
                direct: Some(direct),
                files,
            });
        }
        let reopen = |source: &dyn Source| {
            let fd = source
                .as_fd()
                .ok_or_else(|| io::Error::other("a source has no descriptor"))?;
            direct::reopen(fd, rustix::fs::OFlags::empty())
        };
        let files = sources
            .iter()
            .map(|source| reopen(&**source))
            .collect::<io::Result<_>>()?;
        Ok(Self {
            direct: None,
            files,
            align: BUFFERED_ALIGN,
        })
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
        // why this process has no io_uring. Kept, because a tokio-uring runtime that fails to start leaks two
        // descriptors: it is tried once per process.
        static UNAVAILABLE: OnceLock<String> = OnceLock::new();
        if let Some(why) = UNAVAILABLE.get() {
            return self
                .fallback
                .run_as_fallback(context, reads, consumer, Some(why.clone()));
        }
        let report = Arc::new(ReportBuilder::new(Backend::IoUring, None));
        let sources = context.checkpoint.sources();
        // opened again before the ring's thread starts: a source without a descriptor falls back without a thread
        let files = match RingFiles::open(sources, self.fallback.is_direct(), &report) {
            Ok(files) => files,
            Err(error) => {
                let why = Some(format!("no io_uring: {error}"));
                return self.fallback.run_as_fallback(context, reads, consumer, why);
            }
        };
        let list = coalesce(reads, context.max_gap, MAX_SHARED_EXTENT);
        let layout = self.fallback.layout(files.align);
        let queue = ReadAhead::new(context, list, layout, Arc::clone(&report));
        let depth = self.depth;
        let has_ring = thread::scope(|scope| {
            let stop = queue.stop_on_drop();
            let (started, start) = mpsc::channel();
            let queue = &queue;
            let thread = thread::Builder::new()
                .name("io_uring".into())
                .spawn_scoped(scope, move || {
                    run_ring(queue, files, depth, report, &started)
                });
            let thread = thread.map_err(Error::from)?;
            // the thread reports whether it has a ring before the consumer starts, because a fallback must call the
            // consumer once only
            let outcome = match start.recv() {
                Ok(Ok(())) => consumer(queue).map(|()| true),
                Ok(Err(error)) => {
                    if UNAVAILABLE.set(format!("no io_uring: {error}")).is_ok() {
                        tracing::warn!(%error, "io_uring is not available: reading with threads");
                    }
                    Ok(false)
                }
                Err(_) => Err(Error::from(io::Error::other(
                    "the thread of io_uring panicked",
                ))),
            };
            // the queue must stop before the thread is joined, or a thread that waits for a request would never end
            drop(stop);
            // a thread that panicked has stopped the queue, and the consumer has returned that as an error
            drop(thread.join());
            outcome
        })?;
        if has_ring {
            Ok(())
        } else {
            let why = UNAVAILABLE.get().cloned();
            self.fallback.run_as_fallback(context, reads, consumer, why)
        }
    }
}

/// The ring's thread: sends whether the ring could be set up, then keeps `depth` reads in flight until the queue is
/// finished.
fn run_ring(
    queue: &ReadAhead<'_>,
    files: RingFiles,
    depth: usize,
    report: Arc<ReportBuilder>,
    started: &mpsc::Sender<io::Result<()>>,
) {
    let _stop = queue.stop_on_panic();
    let mut builder = tokio_uring::builder();
    builder.entries(u32::try_from(depth.next_power_of_two()).unwrap_or(64));
    let runtime = match tokio_uring::Runtime::new(&builder) {
        Ok(runtime) => runtime,
        Err(error) => return drop(started.send(Err(error))),
    };
    if started.send(Ok(())).is_err() {
        return;
    }
    runtime.block_on(read_requests(queue, files, depth, &report));
}

async fn read_requests(
    queue: &ReadAhead<'_>,
    files: RingFiles,
    depth: usize,
    report: &Arc<ReportBuilder>,
) {
    let RingFiles { direct, files, .. } = files;
    let open = |file: File| -> io::Result<Rc<RingFile>> {
        // a second descriptor, since tokio-uring's file cannot read without the ring
        let plain = file.try_clone()?;
        Ok(Rc::new(RingFile {
            plain,
            ring: tokio_uring::fs::File::from_std(file),
            report: Arc::clone(report),
        }))
    };
    let files = match files.into_iter().map(open).collect::<io::Result<Vec<_>>>() {
        Ok(files) => files,
        Err(error) => return queue.fail(0, 0, &error),
    };
    let direct = direct.map(Rc::new);
    let mut in_flight = JoinSet::new();
    loop {
        let mut finished = false;
        while in_flight.len() < depth {
            // waits for a request only if no read is in flight whose completion must be handled
            match queue.next(in_flight.is_empty()) {
                NextRequest::Request(request, part) => {
                    let file = files[request.file as usize].clone();
                    in_flight.spawn_local(read(file, direct.clone(), request, part));
                }
                NextRequest::Full => break,
                NextRequest::Finished => {
                    finished = true;
                    break;
                }
            }
        }
        match in_flight.join_next().await {
            Some(Ok((request, part, Ok(())))) => queue.complete(request, part),
            Some(Ok((request, _, Err((done, error))))) => {
                queue.fail(request.file, request.start + done as u64, &error)
            }
            // `stop_on_panic` then stops the queue, so that consumers do not wait
            Some(Err(panicked)) => std::panic::resume_unwind(panicked.into_panic()),
            None if finished => return,
            None => {}
        }
    }
}

/// A file that can be read with and without the ring.
struct RingFile {
    ring: tokio_uring::fs::File,
    plain: File,
    report: Arc<ReportBuilder>,
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

/// Fills the needed bytes of a request. An error comes with the number of bytes that were read before it.
async fn read(
    file: Rc<RingFile>,
    direct: Option<Rc<direct::DirectFiles>>,
    request: ReadRequest,
    mut part: BufferPart,
) -> (ReadRequest, BufferPart, Result<(), (usize, io::Error)>) {
    let mut done = 0;
    while done < request.needed {
        // a direct read fills the whole part, whose end is aligned; the end of the needed bytes may not be
        let end = if direct.is_some() {
            part.len()
        } else {
            request.needed
        };
        let direct_file = direct
            .as_ref()
            .map(|files| &files.files()[request.file as usize]);
        let buffered = direct_file.is_none_or(direct::DirectFile::is_buffered);
        let (read, slice) = file
            .ring
            .read_at(part.slice(done..end), request.start + done as u64)
            .await;
        // the buffer belongs to the ring while the read is in flight and comes back with the result, even after an
        // error
        part = slice.into_inner();
        let outcome = match read {
            // the ranges were checked against the length at opening, so the end of the file means that it was
            // truncated since
            Ok(0) => Err(truncated()),
            Ok(n) => {
                done += n;
                if let Some(direct) = direct_file {
                    direct.succeeded(buffered);
                }
                match &direct {
                    Some(files) if done < request.needed => {
                        files.after_short_read(request.file, done)
                    }
                    _ => Ok(()),
                }
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(e) => match direct_file {
                Some(direct) if !buffered => direct.failed(buffered, e),
                // some sandboxes allow the setup of a ring and refuse its operations; the thread then reads one by
                // one
                _ if is_unknown_operation(&e) => {
                    file.report
                        .fall_back(format!("one by one: io_uring does not read here: {e}"));
                    match file
                        .plain
                        .read_at(&mut part[done..request.needed], request.start + done as u64)
                    {
                        Ok(0) => Err(truncated()),
                        Ok(n) => {
                            done += n;
                            Ok(())
                        }
                        Err(e) => Err(e),
                    }
                }
                _ => Err(e),
            },
        };
        if let Err(error) = outcome {
            return (request, part, Err((done, error)));
        }
    }
    (request, part, Ok(()))
}
