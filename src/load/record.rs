//! A loader that remembers what was read of it, in the order in which it was wanted: a recorded template.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anamnesis_template::{Builder, Template};

use super::{Body, Chunk, Coming, Feed, Loader, Reading, Way};
use crate::catalog::ByteRange;
use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::predict::Files;

/// Wraps a loader and records what is taken of it. Clones record together.
///
/// What is recorded is what whoever loads asked for, when, and in which order; not in which pieces the loader read it
/// ahead. Bytes that are read beside the loader (tensors that are inflated, what is checked in front of the members of
/// an archive) are recorded too.
///
/// ```
/// use anamnesis::load::{Pread, Recording};
/// use anamnesis::{Checkpoint, load, predict, template};
///
/// let checkpoint = Checkpoint::open("fixtures/safetensors/sharded")?;
/// let recording = Recording::new(Pread::new());
/// load(&checkpoint).loader(recording.clone()).run()?;
/// let recorded = recording.template()?;
///
/// let predicted = predict(&checkpoint).template()?;
/// let covered = template::coverage(&recorded, &predicted);
/// assert_eq!((covered.share(), covered.order), (1.0, Some(1.0)));
/// # Ok::<(), anamnesis::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Recording<L> {
    loader: L,
    rank: u32,
    log: Arc<Mutex<Log>>,
}

/// What was taken so far.
#[derive(Debug, Default)]
struct Log {
    begun: Option<Instant>,
    files: Known,
    taken: Vec<(ByteRange, u64)>,
}

/// The files that were read.
#[derive(Debug, Default)]
enum Known {
    #[default]
    Nothing,
    Files(Files),
    /// No template can speak of them, and why.
    Unnamed(String),
}

impl<L: Loader> Recording<L> {
    /// Records what is taken of this loader, as worker 0.
    pub fn new(loader: L) -> Self {
        Self {
            loader,
            rank: 0,
            log: Arc::default(),
        }
    }

    /// As which worker of a service.
    #[must_use]
    pub fn rank(mut self, rank: u32) -> Self {
        self.rank = rank;
        self
    }

    /// The template: the headers of all files, which opening them has read, then what was taken, with times in
    /// microseconds since the first load began.
    ///
    /// # Errors
    /// If nothing was loaded with it, or several checkpoints were; for a checkpoint that was not opened from a path,
    /// and files that changed since.
    pub fn template(&self) -> Result<Template> {
        let log = self.log();
        let files = match &log.files {
            Known::Nothing => {
                return Err(Error::misuse(
                    "nothing was recorded: no load ran with this loader",
                ));
            }
            Known::Unnamed(why) => return Err(Error::misuse(why.clone())),
            Known::Files(files) => files,
        };
        let mut builder = Builder::new();
        files.add_to(&mut builder)?;
        let headers = files.headers().iter().map(|header| (*header, 0));
        for (bytes, at) in headers.chain(log.taken.iter().copied()) {
            builder.access(self.rank, bytes, Some(at))?;
        }
        Ok(builder.finish())
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        // what was pushed before somebody died is whole
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When the first load began.
    fn begin(&self, checkpoint: &Checkpoint) -> Instant {
        let now = match Files::of(checkpoint) {
            Ok(files) => Known::Files(files),
            Err(error) => Known::Unnamed(error.to_string()),
        };
        let mut log = self.log();
        log.files = match (std::mem::take(&mut log.files), now) {
            (Known::Nothing, now) => now,
            (Known::Files(before), Known::Files(now)) if before == now => Known::Files(now),
            (Known::Unnamed(why), _) => Known::Unnamed(why),
            (Known::Files(_), _) => {
                Known::Unnamed("a recording is of one checkpoint, and there were several".into())
            }
        };
        *log.begun.get_or_insert_with(Instant::now)
    }
}

impl<L: Loader> Loader for Recording<L> {
    fn name(&self) -> &'static str {
        self.loader.name()
    }

    fn run<'c>(
        &self,
        reading: &Reading<'c>,
        reads: &[ByteRange],
        body: Body<'_, 'c>,
    ) -> Result<()> {
        let begun = self.begin(reading.checkpoint);
        self.loader.run(reading, reads, &mut |feed| {
            body(&Noted {
                feed,
                reads,
                begun,
                log: &self.log,
            })
        })
    }
}

/// A feed whose reads are noted.
struct Noted<'r, 'c> {
    feed: &'r dyn Feed<'c>,
    reads: &'r [ByteRange],
    begun: Instant,
    log: &'r Mutex<Log>,
}

impl Noted<'_, '_> {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its number among what was noted.
    fn note(&self, bytes: ByteRange) -> usize {
        let mut log = self.log();
        let at = u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX >> 2);
        log.taken.push((bytes, at));
        log.taken.len() - 1
    }

    /// Notes a read before it is waited for: this is when it was wanted. One that fails is of no bytes.
    fn noted<'c>(
        &self,
        read: usize,
        take: impl FnOnce() -> Result<Chunk<'c>>,
    ) -> Result<Chunk<'c>> {
        let noted = self.reads.get(read).map(|bytes| self.note(*bytes));
        let taken = take();
        if let (Err(_), Some(noted)) = (&taken, noted) {
            self.log().taken[noted].0.len = 0;
        }
        taken
    }
}

impl<'c> Feed<'c> for Noted<'_, 'c> {
    fn take(&self, read: usize) -> Result<Chunk<'c>> {
        self.noted(read, || self.feed.take(read))
    }

    fn take_watched(&self, read: usize, watch: Coming<'_>) -> Result<Chunk<'c>> {
        self.noted(read, || self.feed.take_watched(read, watch))
    }

    fn beside(&self, bytes: ByteRange) {
        self.note(bytes);
        self.feed.beside(bytes);
    }

    fn way(&self) -> Option<Way> {
        self.feed.way()
    }
}
