//! A loader that records what is read through it, in the order of the requests: a recorded I/O template.

#[cfg(all(test, shuttle))]
mod interleavings;

use std::sync::{Arc, PoisonError};
use std::time::Instant;

use anamnesis_template::{Template, TemplateBuilder};

use super::{Chunk, Consumer, Feed, IoReport, LoadContext, Loader, OnBytes};
use crate::base::error::{Error, Result};
use crate::base::sync::{PoisonMutex, PoisonMutexGuard};
use crate::read::catalog::ByteRange;
use crate::read::checkpoint::{Checkpoint, TemplateFiles};

/// Wraps a loader and records what is read through it. Clones share one recording.
///
/// It records the byte ranges that the consumer got, when, and in which order; not the requests in which the loader read
/// them ahead. Bytes that the consumer reads without the loader (tensors that are inflated, verified headers of archive
/// members) are recorded as well.
///
/// ```
/// use anamnesis::load::{PreadLoader, RecordingLoader};
/// use anamnesis::{Checkpoint, load, predict, template};
///
/// let checkpoint = Checkpoint::open("fixtures/safetensors/sharded")?;
/// let recording = RecordingLoader::new(PreadLoader::new());
/// load(&checkpoint).loader(recording.clone()).run()?;
/// let recorded = recording.template()?;
///
/// let predicted = predict(&checkpoint).template()?;
/// let covered = template::coverage(&recorded, &predicted);
/// assert_eq!((covered.share(), covered.order), (1.0, Some(1.0)));
/// # Ok::<(), anamnesis::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RecordingLoader<L> {
    loader: L,
    rank: u32,
    log: Arc<PoisonMutex<Log>>,
}

/// The recording so far.
#[derive(Debug, Default)]
struct Log {
    started: Option<Instant>,
    files: RecordedFiles,
    accesses: Vec<(ByteRange, u64)>,
}

/// The files that were read.
#[derive(Debug, Default)]
enum RecordedFiles {
    #[default]
    Nothing,
    Files(TemplateFiles),
    /// No template can name them; the reason.
    Unnamed(String),
}

impl<L: Loader> RecordingLoader<L> {
    /// Records the reads of this loader, as worker 0.
    pub fn new(loader: L) -> Self {
        Self {
            loader,
            rank: 0,
            log: Arc::default(),
        }
    }

    /// The rank under which the reads are recorded. Default 0.
    #[must_use]
    pub fn rank(mut self, rank: u32) -> Self {
        self.rank = rank;
        self
    }

    /// The template: the headers of all files, which were read when they were opened, then the recorded reads, with times
    /// in microseconds since the first load started.
    ///
    /// # Errors
    /// Nothing was loaded with it, or more than one checkpoint; the checkpoint was not opened from a path; or a file has
    /// changed since.
    pub fn template(&self) -> Result<Template> {
        let log = self.log();
        let files = match &log.files {
            RecordedFiles::Nothing => {
                return Err(Error::invalid_argument(
                    "nothing was recorded: no load used this loader",
                ));
            }
            // a checkpoint that was opened from bytes can be loaded and not recorded: the error comes with the
            // template
            RecordedFiles::Unnamed(why) => return Err(Error::invalid_argument(why.clone())),
            RecordedFiles::Files(files) => files,
        };
        let mut builder = TemplateBuilder::new();
        files.add_to(&mut builder)?;
        let headers = files.headers().iter().map(|header| (*header, 0));
        for (bytes, at) in headers.chain(log.accesses.iter().copied()) {
            builder.access(self.rank, bytes, Some(at))?;
        }
        Ok(builder.finish())
    }

    fn log(&self) -> PoisonMutexGuard<'_, Log> {
        // each critical section pushes one entry, so that the log is consistent after a panic
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a load. Returns when the first load started.
    fn start(&self, checkpoint: &Checkpoint) -> Instant {
        let now = match TemplateFiles::of(checkpoint) {
            Ok(files) => RecordedFiles::Files(files),
            Err(error) => RecordedFiles::Unnamed(error.to_string()),
        };
        let mut log = self.log();
        log.files = match (std::mem::take(&mut log.files), now) {
            (RecordedFiles::Nothing, now) => now,
            // several loads of one checkpoint are one recording, in the order of their reads
            (RecordedFiles::Files(before), RecordedFiles::Files(now)) if before == now => {
                RecordedFiles::Files(now)
            }
            (RecordedFiles::Unnamed(why), _) => RecordedFiles::Unnamed(why),
            (RecordedFiles::Files(_), _) => RecordedFiles::Unnamed(
                "a recording covers one checkpoint, and more than one was loaded".into(),
            ),
        };
        *log.started.get_or_insert_with(Instant::now)
    }
}

impl<L: Loader> Loader for RecordingLoader<L> {
    fn name(&self) -> &'static str {
        self.loader.name()
    }

    fn run<'c>(
        &self,
        context: &LoadContext<'c>,
        reads: &[ByteRange],
        consumer: Consumer<'_, 'c>,
    ) -> Result<()> {
        let started = self.start(context.checkpoint);
        self.loader.run(context, reads, &mut |feed| {
            consumer(&RecordingFeed {
                feed,
                reads,
                started,
                log: &self.log,
            })
        })
    }
}

/// A feed that records its reads.
struct RecordingFeed<'r, 'c> {
    feed: &'r dyn Feed<'c>,
    reads: &'r [ByteRange],
    started: Instant,
    log: &'r PoisonMutex<Log>,
}

impl RecordingFeed<'_, '_> {
    fn log(&self) -> PoisonMutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends an access. Returns its index in the log.
    fn record(&self, bytes: ByteRange) -> usize {
        let mut log = self.log();
        // from the first load on, so that templates of two runs can be compared; the format has times below 2⁶²
        let at = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX >> 2);
        log.accesses.push((bytes, at));
        log.accesses.len() - 1
    }

    /// Records a read before it blocks, which is when the consumer requested it. A read that fails gets length 0.
    fn recorded<T>(&self, read: usize, get: impl FnOnce() -> Result<T>) -> Result<T> {
        let index = self.reads.get(read).map(|bytes| self.record(*bytes));
        let got = get();
        if let (Err(_), Some(index)) = (&got, index) {
            // kept, with no bytes: removing it would shift the indices of reads that other threads have under way
            self.log().accesses[index].0.len = 0;
        }
        got
    }
}

impl<'c> Feed<'c> for RecordingFeed<'_, 'c> {
    fn get(&self, read: usize) -> Result<Chunk<'c>> {
        self.recorded(read, || self.feed.get(read))
    }

    fn get_cancellable(&self, read: usize, on_bytes: OnBytes<'_>) -> Result<Chunk<'c>> {
        self.recorded(read, || self.feed.get_cancellable(read, on_bytes))
    }

    fn get_into(&self, read: usize, out: &mut [u8], on_bytes: OnBytes<'_>) -> Result<()> {
        self.recorded(read, || self.feed.get_into(read, out, on_bytes))
    }

    fn reading_threads(&self) -> Option<usize> {
        self.feed.reading_threads()
    }

    fn on_direct_read(&self, bytes: ByteRange) {
        self.record(bytes);
        self.feed.on_direct_read(bytes);
    }

    fn report(&self) -> Option<IoReport> {
        self.feed.report()
    }
}
