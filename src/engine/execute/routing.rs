//! The mapping between a loader's list of reads and the inputs of tiles.

use std::ops::{ControlFlow, Range};

use crate::engine::load::{Chunk, Feed};
use crate::plan::{Job, JobWork, PartRange, Plan, addressable};
use crate::read::catalog::{ByteRange, Catalog, TensorInfo};

/// Reads in a list, about: a checkpoint of hundreds of gigabytes is loaded with several lists, which bounds their
/// memory.
const MAX_READS: usize = 1 << 16;
/// Tiles of a job whose inputs are listed. The list of a job with more would take more memory than read-ahead saves time.
const MAX_TILES: u64 = 16 << 16;
/// Bytes of a part that is listed as a whole, because its spans are strided: a read per run would be too small.
const MAX_WHOLE_PART: u64 = 64 << 20;

/// The reads of some jobs, in the order in which workers need them: for each job what its tiles share, the parts that
/// are needed whole, then the inputs tile by tile. Each job has a fixed number of entries for each of these; an entry
/// without bytes stands for an input that is not read by the loader.
#[derive(Debug, Default)]
pub(super) struct ReadList {
    pub(super) list: Vec<ByteRange>,
    jobs: Range<usize>,
    layouts: Vec<JobLayout>,
}

/// Where the entries of a job are in the list.
#[derive(Debug)]
struct JobLayout {
    /// Index of the first entry.
    first: usize,
    /// Entries for what its tiles share.
    shared: usize,
    /// Entries for whole parts.
    parts: usize,
    /// Entries for the inputs of one tile.
    inputs: usize,
}

impl ReadList {
    /// The reads of the jobs from `start` on: of at least one job, and until the list has [`MAX_READS`].
    pub(super) fn new(plan: &Plan, catalog: &Catalog, start: usize) -> Self {
        let mut reads = Self {
            jobs: start..start,
            ..Self::default()
        };
        for job in &plan.jobs[start..] {
            reads.add(job, catalog);
            reads.jobs.end += 1;
            if reads.list.len() >= MAX_READS {
                break;
            }
        }
        reads
    }

    pub(super) fn jobs(&self) -> Range<usize> {
        self.jobs.clone()
    }

    fn add(&mut self, job: &Job, catalog: &Catalog) {
        let first = self.list.len();
        let JobWork::Tiles { decoder, rows } = &job.work else {
            return self.layouts.push(JobLayout {
                first,
                shared: 0,
                parts: 0,
                inputs: 0,
            });
        };
        let shared = decoder.shared();
        let (mut inputs, mut strided) = (0, vec![false; job.parts.len()]);
        let mut needed = vec![0u64; job.parts.len()];
        // both passes over the tiles use the same condition, or indices would not correspond
        let listed = decoder.grid().tiles(*rows) <= MAX_TILES;
        for tile in job.tiles().take_while(|_| listed) {
            // a tile across the end of a matrix has more inputs than others; all get the same number of entries, so
            // that an index is a product
            inputs = inputs.max(tile.inputs.len());
            for span in &tile.inputs {
                strided[span.part] |= !span.bytes.is_contiguous();
                needed[span.part] = needed[span.part].saturating_add(span.bytes.nbytes());
            }
        }
        self.list
            .extend(shared.iter().map(|span| range(job, catalog, span)));
        self.list
            .extend(job.parts.iter().enumerate().map(|(number, part)| {
                let info = &catalog.tensors()[part.tensor];
                // a stored `[in, out]` part is read with a run per row of inputs; one read of the whole part replaces
                // them, unless a slice needs less than half of it
                let whole = strided[number]
                    && addressable(info)
                    && info.bytes.len <= MAX_WHOLE_PART.min(needed[number].saturating_mul(2));
                if whole {
                    info.bytes
                } else {
                    ByteRange {
                        len: 0,
                        ..info.bytes
                    }
                }
            }));
        for tile in job.tiles().take_while(|_| listed) {
            let runs = tile.inputs.iter().map(|span| range(job, catalog, span));
            self.list.extend(
                runs.chain(std::iter::repeat(ByteRange::default()))
                    .take(inputs),
            );
        }
        self.layouts.push(JobLayout {
            first,
            shared: shared.len(),
            parts: job.parts.len(),
            inputs,
        });
    }

    fn layout(&self, job: usize) -> &JobLayout {
        &self.layouts[job - self.jobs.start]
    }
}

/// The bytes of a span in its file; without bytes if it is strided, out of bounds, or not stored as it is.
fn range(job: &Job, catalog: &Catalog, span: &PartRange) -> ByteRange {
    let info = &catalog.tensors()[job.parts[span.part].tensor];
    let bytes = span.bytes;
    let end = bytes
        .checked_end()
        .filter(|&end| addressable(info) && bytes.is_contiguous() && end <= info.bytes.len);
    match end.map(|end| end - bytes.start) {
        Some(len) => ByteRange {
            file: info.bytes.file,
            start: info.bytes.start + bytes.start,
            len,
        },
        None => ByteRange {
            len: 0,
            ..info.bytes
        },
    }
}

/// A list of reads, and the feed of their bytes.
#[derive(Clone, Copy)]
pub(super) struct Routing<'r, 'c> {
    pub(super) reads: &'r ReadList,
    pub(super) feed: &'r dyn Feed<'c>,
    /// Checks for cancellation while a worker waits for bytes.
    pub(super) flow: &'r (dyn Fn() -> ControlFlow<()> + Sync),
}

impl<'c> Routing<'_, 'c> {
    /// The bytes of an entry; `None` if the loader does not read it.
    fn get(&self, read: usize) -> crate::base::error::Result<Option<Chunk<'c>>> {
        let get = || self.feed.get_cancellable(read, &mut |_| (self.flow)());
        // entries without bytes keep the arithmetic of indices simple; their inputs are read without the loader
        if self.reads.list[read].len == 0 {
            Ok(None)
        } else {
            get().map(Some)
        }
    }

    /// The bytes of a span that all tiles of a job share.
    pub(super) fn shared(
        &self,
        job: usize,
        number: usize,
    ) -> crate::base::error::Result<Option<Chunk<'c>>> {
        self.get(self.reads.layout(job).first + number)
    }

    /// The bytes of a whole part.
    pub(super) fn part(
        &self,
        job: usize,
        part: usize,
    ) -> crate::base::error::Result<Option<Chunk<'c>>> {
        let layout = self.reads.layout(job);
        self.get(layout.first + layout.shared + part)
    }

    /// The bytes of a tile's input.
    pub(super) fn input(
        &self,
        job: usize,
        tile: u64,
        number: usize,
    ) -> crate::base::error::Result<Option<Chunk<'c>>> {
        let layout = self.reads.layout(job);
        // a job that is not listed has no entries for its tiles
        if number >= layout.inputs {
            return Ok(None);
        }
        let tile = usize::try_from(tile).expect("no more tiles than the list has");
        self.get(layout.first + layout.shared + layout.parts + tile * layout.inputs + number)
    }

    /// Reports a span that is borrowed or read without the loader.
    pub(super) fn report_span(&self, info: &TensorInfo, span: &PartRange) {
        let bytes = span.bytes;
        // a span out of bounds is refused where it is read
        if bytes.checked_end().is_none_or(|end| end > info.bytes.len) {
            return;
        }
        let bytes = if bytes.stride > bytes.len {
            bytes
        } else {
            bytes.covering()
        };
        for start in bytes.starts() {
            self.feed.on_direct_read(ByteRange {
                file: info.bytes.file,
                start: info.bytes.start + start,
                len: bytes.len,
            });
        }
    }

    /// Reports a tensor that is read without the loader.
    pub(super) fn report_tensor(&self, catalog: &Catalog, info: &TensorInfo) {
        catalog.stored(info, &mut |bytes, _| self.feed.on_direct_read(bytes));
    }
}
