//! Reads lists of file ranges into the page cache once, ahead of a program that will read them: without events, policies and
//! privileges.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::cache::options::{MEMORY_THRESHOLD, PrefetchOptions};
use crate::cache::{MemoryMeter, MemoryScope, Prefetcher};
use crate::error::Result;
use crate::{FileRange, Namespace, PrefetchRequest, RangeList};

/// For how long a reading of the memory is reused: it parses several files of the control groups, and one of them makes the
/// kernel sum the counters of every core.
const MAX_AGE: Duration = Duration::from_millis(10);

/// Options of a [`Warmer`].
#[derive(Clone, Debug)]
pub struct WarmOptions {
    /// Whose memory limit applies.
    pub scope: MemoryScope,
    /// The fraction of the memory limit above which nothing is read. `None`: read regardless of memory.
    pub threshold: Option<f64>,
    /// Threads, also per list. `None`: 4, of which a list uses 1 on a device that reads ahead by 1 MiB or more.
    pub threads: Option<usize>,
    /// Limit on bytes per second; `None`: unlimited.
    pub bandwidth: Option<u64>,
    /// How long memory must have no room until warming ends.
    pub patience: Duration,
}

impl Default for WarmOptions {
    fn default() -> Self {
        Self {
            scope: MemoryScope::Own,
            threshold: Some(MEMORY_THRESHOLD),
            threads: None,
            bandwidth: None,
            // shorter stops end by writeback, after which there is room again
            patience: Duration::from_secs(1),
        }
    }
}

/// Whether a [`Warmer`] reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarmState {
    /// It reads, or waits for memory.
    Reading,
    /// All lists were read.
    Complete,
    /// Memory had no room for [`WarmOptions::patience`]: nothing more is read.
    MemoryFull,
}

/// The work that a [`Warmer`] has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WarmProgress {
    /// Bytes of all lists.
    pub nbytes: u64,
    /// Bytes that were read, including small gaps between ranges.
    pub read: u64,
    /// Bytes that were in the page cache.
    pub cached: u64,
    /// Files that could not be read, or had changed.
    pub unreadable: u64,
    /// The first of these errors.
    pub first_error: Option<String>,
}

/// Reads lists of ranges into the page cache, each list in its order and all at the same time. Dropping it ends the reads.
///
/// Bytes that were read are to stay cached until the program reads them. So the bytes read are bounded by what memory holds
/// beside the memory of programs, and nothing is ever evicted by it: a program is never made to read twice what it has read.
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use anamnesis_ppc::{FileEntry, Namespace, cache::{WarmOptions, WarmState, Warmer}};
///
/// # let dir = tempfile::tempdir()?;
/// # std::fs::write(dir.path().join("model.safetensors"), [0; 10_000])?;
/// let namespace = Arc::new(Namespace::of_files(dir.path(), ["model.safetensors"])?);
/// let list = namespace.entries().iter().map(FileEntry::whole).collect();
/// let mut warmer = Warmer::start(&namespace, vec![list], &WarmOptions::default())?;
/// while warmer.wait(Duration::from_millis(100)) == WarmState::Reading {}
/// assert_eq!(warmer.progress().nbytes, 10_000);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Warmer {
    prefetcher: Prefetcher,
    nbytes: u64,
    errors: Arc<Mutex<ReadErrors>>,
    patience: Duration,
    /// The counters at the last progress: bytes, and waits for memory.
    last: (u64, u64),
    progressed: Instant,
    full: bool,
}

#[derive(Debug, Default)]
struct ReadErrors {
    count: u64,
    first: Option<String>,
}

impl Warmer {
    /// Starts to read. An empty list is complete.
    ///
    /// # Errors
    ///
    /// An option is invalid, the control group does not exist, or a thread cannot be started.
    pub fn start(
        namespace: &Arc<Namespace>,
        lists: Vec<Vec<FileRange>>,
        options: &WarmOptions,
    ) -> Result<Self> {
        let defaults = PrefetchOptions::default();
        let errors = Arc::new(Mutex::new(ReadErrors::default()));
        let collected = Arc::clone(&errors);
        let room = match options.threshold {
            Some(threshold) => Some(MemoryRoom::new(&options.scope, threshold)?),
            None => None,
        };
        let prefetcher = Prefetcher::new(PrefetchOptions {
            threads: options.threads.unwrap_or(defaults.threads),
            threads_per_queue: options.threads,
            bandwidth: options.bandwidth,
            headroom: room.map(|room| -> super::MemoryHeadroom {
                Arc::new(move |processed| room.left(processed))
            }),
            on_error: Some(Arc::new(move |_, error| {
                let mut errors = collected.lock().unwrap_or_else(PoisonError::into_inner);
                errors.count += 1;
                // one is shown: a failing device gives thousands that say the same
                errors.first.get_or_insert_with(|| error.to_string());
            })),
            ..defaults
        })?;
        let mut nbytes = 0u64;
        for (queue, ranges) in (0..).zip(lists) {
            nbytes = ranges
                .iter()
                .map(|range| range.len)
                .fold(nbytes, u64::saturating_add);
            let ranges = RangeList::from(ranges);
            // a queue for each list, so that no worker waits for the bytes of another
            prefetcher.submit(namespace, &PrefetchRequest { ranges, queue })?;
        }
        Ok(Self {
            prefetcher,
            nbytes,
            errors,
            patience: options.patience,
            last: (0, 0),
            progressed: Instant::now(),
            full: false,
        })
    }

    /// Waits until everything was read or memory is full, for at most `timeout`.
    pub fn wait(&mut self, timeout: Duration) -> WarmState {
        if self.full {
            return WarmState::MemoryFull;
        }
        if self.prefetcher.wait(timeout) {
            return WarmState::Complete;
        }
        let progress = self.prefetcher.progress();
        let processed = progress.bytes_read.saturating_add(progress.bytes_skipped);
        if processed != self.last.0 || progress.memory_waits == self.last.1 {
            // a slow device is waited for: only waits for memory count
            (self.last, self.progressed) = ((processed, progress.memory_waits), Instant::now());
        } else if self.progressed.elapsed() >= self.patience {
            self.prefetcher.interrupt_all();
            self.full = true;
            return WarmState::MemoryFull;
        }
        WarmState::Reading
    }

    /// The work that was done so far.
    pub fn progress(&self) -> WarmProgress {
        let progress = self.prefetcher.progress();
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        WarmProgress {
            nbytes: self.nbytes,
            read: progress.bytes_read,
            cached: progress.bytes_skipped,
            unreadable: errors.count,
            first_error: errors.first.clone(),
        }
    }
}

/// How many bytes memory has room for, read at most every [`MAX_AGE`].
struct MemoryRoom {
    memory: MemoryMeter,
    threshold: f64,
    last: Mutex<Option<RoomReading>>,
}

#[derive(Clone, Copy)]
struct RoomReading {
    at: Instant,
    /// Bytes that the prefetcher had processed.
    processed: u64,
    room: u64,
}

impl MemoryRoom {
    fn new(scope: &MemoryScope, threshold: f64) -> Result<Self> {
        Ok(Self {
            memory: MemoryMeter::of(scope)?,
            threshold,
            last: Mutex::default(),
        })
    }

    fn left(&self, processed: u64) -> u64 {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let reading = match last.filter(|last| last.at.elapsed() < MAX_AGE) {
            Some(reading) => reading,
            // where nothing is known of the memory, as without /proc, nothing bounds it
            None => RoomReading {
                at: Instant::now(),
                processed,
                room: self
                    .memory
                    .cache_room(self.threshold, processed)
                    .unwrap_or(u64::MAX),
            },
        };
        *last = Some(reading);
        // bytes that were read since the reading are in memory by now, though it does not show them
        let since = processed.saturating_sub(reading.processed);
        reading.room.saturating_sub(since)
    }
}

impl fmt::Debug for MemoryRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryRoom")
            .field("threshold", &self.threshold)
            .finish_non_exhaustive()
    }
}
