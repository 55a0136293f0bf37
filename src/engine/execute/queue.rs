//! The queue of work: tiles and streamed outputs, in file order.

use std::vec;

use crate::plan::{JobWork, Plan, Tile, tile};

/// A unit of work, and the sink's memory for its output.
pub(super) struct WorkItem<'r> {
    /// Index of the job.
    pub(super) job: usize,
    pub(super) unit: WorkUnit,
    /// `None` if the sink provides no memory.
    pub(super) out: Option<OutputMemory<'r>>,
}

/// The sink's memory for an output, or for a tile of it.
pub(super) struct OutputMemory<'r> {
    pub(super) bytes: &'r mut [u8],
    /// Whether elements are stored with non-temporal stores: see [`LARGE_OUTPUTS`].
    pub(super) non_temporal: bool,
}

/// Outputs of this many bytes in sum are stored with non-temporal stores, if their memory is resident. They exceed the
/// caches, so that the reader finds them in none, and a non-temporal store does not read the line first: half the time
/// for 200 MB (experiments 33 and 42 in `docs/perf-experiments.md`). Pages that are not resident are zeroed by the system
/// when they are first touched, which puts them into the caches; plain stores are faster there.
const LARGE_OUTPUTS: u64 = 64 << 20;

pub(super) enum WorkUnit {
    /// Some rows of an output.
    Tile {
        tile: Tile,
        /// Index among the tiles of the job.
        number: u64,
        /// Offset in the output, in bytes.
        start: u64,
        nbytes: usize,
    },
    /// A whole output, from its first element to its last.
    Whole,
}

/// The memory of later outputs, and what remains of the current one's.
type RemainingMemory<'r> = (vec::IntoIter<OutputMemory<'r>>, Option<OutputMemory<'r>>);

/// The work that no worker has taken.
pub(super) struct WorkQueue<'r> {
    plan: &'r Plan,
    /// Index of the current job.
    job: usize,
    /// Jobs in front of this one may be taken.
    end: usize,
    /// Index of the next tile of the current job.
    tile: u64,
    /// `None` if the sink provides no memory.
    memory: Option<RemainingMemory<'r>>,
}

impl<'r> WorkQueue<'r> {
    pub(super) fn new(plan: &'r Plan, memory: Option<Vec<&'r mut [u8]>>) -> Self {
        // all outputs together, as they compete for the same caches
        let large = plan.nbytes() >= LARGE_OUTPUTS;
        let memory = memory.map(|memory| {
            let output = |bytes: &'r mut [u8]| OutputMemory {
                non_temporal: large && anamnesis_os::residency::is_memory_resident(bytes),
                bytes,
            };
            let mut memory = memory
                .into_iter()
                .map(output)
                .collect::<Vec<_>>()
                .into_iter();
            let first = memory.next();
            (memory, first)
        });
        Self {
            plan,
            job: 0,
            end: plan.jobs.len(),
            tile: 0,
            memory,
        }
    }

    /// Allows the jobs in front of `end` to be taken.
    pub(super) fn set_end(&mut self, end: usize) {
        self.end = end;
    }

    pub(super) fn next(&mut self) -> Option<WorkItem<'r>> {
        loop {
            let job = self.plan.jobs[..self.end].get(self.job)?;
            let number = self.job;
            let JobWork::Tiles { decoder, rows } = &job.work else {
                let out = self.memory.as_mut().and_then(|(_, left)| left.take());
                self.next_job();
                return Some(WorkItem {
                    job: number,
                    unit: WorkUnit::Whole,
                    out,
                });
            };
            let grid = decoder.grid();
            if self.tile >= grid.tiles(*rows) {
                self.next_job();
                continue;
            }
            let tile_number = self.tile;
            // computed under the queue's mutex: it is arithmetic on a few integers, and lets the plan hold no tiles
            let tile = tile::tile(&**decoder, *rows, tile_number);
            self.tile += 1;
            let bytes = |rows: u64| job.output.dtype.nbytes(rows * grid.cols).expect("planned");
            let (start, end) = (bytes(tile.rows.start), bytes(tile.rows.end));
            let nbytes = usize::try_from(end - start).expect("a tile is small");
            let out = self.memory.as_mut().and_then(|(_, left)| {
                let OutputMemory {
                    bytes,
                    non_temporal,
                } = left.take()?;
                // each tile's memory is split off in order, so that workers write disjoint slices without a lock
                let (out, behind) = bytes.split_at_mut(nbytes);
                *left = Some(OutputMemory {
                    bytes: behind,
                    non_temporal,
                });
                Some(OutputMemory {
                    bytes: out,
                    non_temporal,
                })
            });
            return Some(WorkItem {
                job: number,
                unit: WorkUnit::Tile {
                    tile,
                    number: tile_number,
                    start,
                    nbytes,
                },
                out,
            });
        }
    }

    fn next_job(&mut self) {
        self.job += 1;
        self.tile = 0;
        if let Some((rest, left)) = &mut self.memory {
            *left = rest.next();
        }
    }
}
