//! Which read of a loader's list has the bytes of which tile.

use std::ops::{ControlFlow, Range};

use crate::catalog::{ByteRange, Catalog, TensorInfo};
use crate::load::{Chunk, Feed};
use crate::plan::{Job, Plan, Span, Work, addressable};

/// Reads in a list, at most about this many: a checkpoint of hundreds of gigabytes is brought in several.
const READS: usize = 1 << 16;
/// Tiles of one job that are put in a list.
const TILES: u64 = 16 << 16;
/// Strided spans are not read run by run: their part is brought whole, unless it is longer than this.
const WHOLE: u64 = 64 << 20;

/// The reads of some jobs, in the order in which workers take them: of each job what its tiles share, the parts that
/// are needed whole, then tile by tile the inputs. Where there is nothing to read for a place, it is of no bytes.
#[derive(Debug, Default)]
pub(super) struct Reads {
    pub(super) list: Vec<ByteRange>,
    jobs: Range<usize>,
    places: Vec<Place>,
}

#[derive(Debug)]
struct Place {
    first: usize,
    shared: usize,
    parts: usize,
    /// Inputs of a tile.
    inputs: usize,
}

impl Reads {
    /// Those of the jobs from `start` on, as many as make a list: at least one job.
    pub(super) fn of(plan: &Plan, catalog: &Catalog, start: usize) -> Self {
        let mut reads = Self {
            jobs: start..start,
            ..Self::default()
        };
        for job in &plan.jobs[start..] {
            reads.add(job, catalog);
            reads.jobs.end += 1;
            if reads.list.len() >= READS {
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
        let Work::Tiles { decoder, rows } = &job.work else {
            return self.places.push(Place {
                first,
                shared: 0,
                parts: 0,
                inputs: 0,
            });
        };
        let shared = decoder.shared();
        let (mut inputs, mut strided) = (0, vec![false; job.parts.len()]);
        // a list of very many tiles would take more memory than it saves time: those are lent or read one by one
        let listed = decoder.grid().tiles(*rows) <= TILES;
        for tile in job.tiles().take_while(|_| listed) {
            inputs = inputs.max(tile.inputs.len());
            tile.inputs
                .iter()
                .filter(|span| !is_run(span))
                .for_each(|span| strided[span.part] = true);
        }
        self.list
            .extend(shared.iter().map(|span| range(job, catalog, span)));
        self.list
            .extend(job.parts.iter().zip(strided).map(|(part, strided)| {
                let info = &catalog.tensors()[part.tensor];
                let whole = strided && addressable(info) && info.bytes.len <= WHOLE;
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
        self.places.push(Place {
            first,
            shared: shared.len(),
            parts: job.parts.len(),
            inputs,
        });
    }

    fn place(&self, job: usize) -> &Place {
        &self.places[job - self.jobs.start]
    }
}

fn is_run(span: &Span) -> bool {
    span.count <= 1 || span.stride == span.len
}

/// Where a span that is one run lies in its file; of no bytes where it has to be brought in another way.
fn range(job: &Job, catalog: &Catalog, span: &Span) -> ByteRange {
    let info = &catalog.tensors()[job.parts[span.part].tensor];
    let len = span.nbytes().filter(|_| addressable(info) && is_run(span));
    let inside = |len: u64| {
        span.start
            .checked_add(len)
            .is_some_and(|end| end <= info.bytes.len)
    };
    match len.filter(|&len| inside(len)) {
        Some(len) => ByteRange {
            file: info.bytes.file,
            start: info.bytes.start + span.start,
            len,
        },
        None => ByteRange {
            len: 0,
            ..info.bytes
        },
    }
}

/// A list of reads, and where to take them from.
#[derive(Clone, Copy)]
pub(super) struct Route<'r, 'c> {
    pub(super) reads: &'r Reads,
    pub(super) feed: &'r dyn Feed<'c>,
    /// Whether to go on: asked while bytes are waited for.
    pub(super) flow: &'r (dyn Fn() -> ControlFlow<()> + Sync),
}

impl<'c> Route<'_, 'c> {
    fn take(&self, read: usize) -> crate::Result<Option<Chunk<'c>>> {
        let take = || self.feed.take_watched(read, &mut |_| (self.flow)());
        if self.reads.list[read].len == 0 {
            Ok(None)
        } else {
            take().map(Some)
        }
    }

    /// What all tiles of a job share.
    pub(super) fn shared(&self, job: usize, number: usize) -> crate::Result<Option<Chunk<'c>>> {
        self.take(self.reads.place(job).first + number)
    }

    /// A part of a job as a whole, if it is brought so.
    pub(super) fn part(&self, job: usize, part: usize) -> crate::Result<Option<Chunk<'c>>> {
        let place = self.reads.place(job);
        self.take(place.first + place.shared + part)
    }

    /// An input of a tile.
    pub(super) fn input(
        &self,
        job: usize,
        tile: u64,
        number: usize,
    ) -> crate::Result<Option<Chunk<'c>>> {
        let place = self.reads.place(job);
        if number >= place.inputs {
            return Ok(None);
        }
        let tile = usize::try_from(tile).expect("as many as are in the list");
        self.take(place.first + place.shared + place.parts + tile * place.inputs + number)
    }

    /// Tells of a span that is lent or read without the loader.
    pub(super) fn beside(&self, info: &TensorInfo, span: &Span) {
        let reach = span
            .reach()
            .filter(|reach| span.start.saturating_add(*reach) <= info.bytes.len);
        let Some(reach) = reach else { return }; // that it is longer than its tensor is told where it is read
        let (count, len) = if span.stride > span.len {
            (span.count, span.len)
        } else {
            (1, reach)
        };
        for i in 0..count {
            let start = info.bytes.start + span.start + i * span.stride;
            self.feed.beside(ByteRange {
                file: info.bytes.file,
                start,
                len,
            });
        }
    }

    /// Tells of a tensor that is read without the loader.
    pub(super) fn whole_beside(&self, catalog: &Catalog, info: &TensorInfo) {
        catalog.stored(info, &mut |bytes, _| self.feed.beside(bytes));
    }
}
