//! The stored bytes that tiles are decoded from: read ahead by a loader, borrowed from the mapped file, or read.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use smallvec::SmallVec;

use super::routing::Routing;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::progress::RunProgress;
use crate::base::sync::{AtomicU64, PoisonMutex};
use crate::engine::load::Chunk;
use crate::plan::{Job, JobWork, PartBytes, PartRange, Plan, Tile, addressable, aligned_scratch};
use crate::read::catalog::{TensorInfo, quote};
use crate::read::checkpoint::Checkpoint;
use crate::read::source::read_exact_at;

/// The bytes that a loader has read for each input of a tile; `None` where it has not.
pub(super) type Prefetched<'c> = SmallVec<[Option<Chunk<'c>>; 3]>;

/// A worker's memory, reused for each tile.
#[derive(Default)]
pub(super) struct Buffers {
    pub(super) output: Vec<u8>,
    /// One per input of a tile.
    pub(super) input: Vec<Vec<u8>>,
}

/// The inputs of a job's tiles: where its parts are, and the bytes that all tiles share.
pub(super) struct JobInputs<'c> {
    parts: Vec<Location<'c>>,
    shared: Vec<(InputBytes<'c>, PartRange)>,
    /// Index of the job.
    number: usize,
}

/// Bytes that were borrowed, read here, or read by a loader.
enum InputBytes<'c> {
    Read(Cow<'c, [u8]>),
    Prefetched(Chunk<'c>),
}

impl Deref for InputBytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Read(bytes) => bytes,
            Self::Prefetched(bytes) => bytes,
        }
    }
}

/// Where the logical bytes of a part are.
enum Location<'c> {
    /// In the file, in stored order: any span can be read.
    File(&'c TensorInfo),
    /// In memory, because they had to be inflated, gathered or byte-swapped, or a loader has read all of them.
    Memory(InputBytes<'c>),
}

/// The inputs of each job: made by its first tile, released by its last.
pub(super) struct JobCache<'c> {
    jobs: Vec<CachedJob<'c>>,
}

struct CachedJob<'c> {
    /// Locked while the inputs are made, so that the other workers wait for them.
    inputs: PoisonMutex<Option<Arc<JobInputs<'c>>>>,
    /// Tiles that are not decoded.
    remaining: AtomicU64,
}

impl<'c> JobCache<'c> {
    pub(super) fn new(plan: &Plan) -> Self {
        let tiles = |job: &Job| match &job.work {
            JobWork::Tiles { decoder, rows } => decoder.grid().tiles(*rows),
            JobWork::Stream { .. } => 0,
        };
        let cached = |job| CachedJob {
            inputs: PoisonMutex::new(None),
            // counted in advance: a worker cannot see whether others still decode tiles of the job
            remaining: AtomicU64::new(tiles(job)),
        };
        Self {
            jobs: plan.jobs.iter().map(cached).collect(),
        }
    }

    pub(super) fn get(
        &self,
        checkpoint: &'c Checkpoint,
        job: &Job,
        number: usize,
        routing: Option<Routing<'_, 'c>>,
        progress: &RunProgress<'_>,
    ) -> Result<Arc<JobInputs<'c>>> {
        let mut inputs = self.jobs[number]
            .inputs
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(inputs) = &*inputs {
            return Ok(inputs.clone());
        }
        // made under the job's lock: two workers at the same job must not inflate its parts twice
        let made = Arc::new(JobInputs::new(checkpoint, job, number, routing, progress)?);
        *inputs = Some(made.clone());
        Ok(made)
    }

    /// Whether no inputs are kept.
    #[cfg(all(test, shuttle))]
    pub(super) fn is_released(&self) -> bool {
        let mut jobs = self.jobs.iter();
        jobs.all(|job| job.inputs.lock().expect("no panic under a lock").is_none())
    }

    /// Counts a decoded tile, and releases the inputs of its job after the last one.
    pub(super) fn tile_done(&self, number: usize) {
        let job = &self.jobs[number];
        // relaxed: the count decides who releases, and the mutex orders the release itself
        if job.remaining.fetch_sub(1, Ordering::Relaxed) == 1 {
            *job.inputs.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}

impl<'c> JobInputs<'c> {
    pub(super) fn new(
        checkpoint: &'c Checkpoint,
        job: &Job,
        number: usize,
        routing: Option<Routing<'_, 'c>>,
        progress: &RunProgress<'_>,
    ) -> Result<Self> {
        let JobWork::Tiles { decoder, .. } = &job.work else {
            unreachable!("streams share nothing")
        };
        // the shared entries of the list come first (`ReadList`), and entries must be consumed in about their order
        let mut parts = Vec::with_capacity(job.parts.len());
        let mut shared = Vec::new();
        for (i, span) in decoder.shared().into_iter().enumerate() {
            let prefetched = routing
                .map(|routing| routing.shared(number, i))
                .transpose()?
                .flatten();
            shared.push((prefetched, span));
        }
        for (i, part) in job.parts.iter().enumerate() {
            let info = &checkpoint.catalog().tensors()[part.tensor];
            let prefetched = routing
                .map(|routing| routing.part(number, i))
                .transpose()?
                .flatten();
            parts.push(match prefetched {
                Some(whole) => Location::Memory(InputBytes::Prefetched(whole)),
                None if addressable(info) => Location::File(info),
                None => {
                    routing
                        .iter()
                        .for_each(|routing| routing.report_tensor(checkpoint.catalog(), info));
                    // read whole, once per job: such a part has no address for a range of rows. No progress of its
                    // own, but cancellable
                    let mut task = progress.task(0);
                    let bytes = checkpoint
                        .tensor_at(part.tensor)
                        .bytes_watched(&mut |_, bytes| task.worked(bytes));
                    Location::Memory(InputBytes::Read(bytes?))
                }
            });
        }
        let mut inputs = Self {
            parts,
            shared: Vec::new(),
            number,
        };
        for (prefetched, span) in shared {
            inputs.report_unless(routing, prefetched.is_some(), &span);
            let bytes = match (prefetched, inputs.borrow(checkpoint, &span)?) {
                (Some(chunk), _) => InputBytes::Prefetched(chunk),
                (None, Some(borrowed)) => InputBytes::Read(Cow::Borrowed(borrowed)),
                (None, None) => InputBytes::Read(Cow::Owned(
                    // a copy of its own, since the buffers of a worker are reused for its next tile
                    inputs.read(checkpoint, &span, &mut Vec::new())?.to_vec(),
                )),
            };
            inputs.shared.push((bytes, span));
        }
        Ok(inputs)
    }

    /// The bytes that all tiles share, one strip per span.
    pub(super) fn shared(&self) -> SmallVec<[PartBytes<'_>; 4]> {
        self.shared
            .iter()
            .map(|(bytes, span)| strip(bytes, span))
            .collect()
    }

    /// The bytes that a loader has read for a tile's inputs; empty without a loader.
    pub(super) fn prefetched(
        &self,
        routing: Option<Routing<'_, 'c>>,
        tile: &Tile,
        tile_number: u64,
    ) -> Result<Prefetched<'c>> {
        let Some(routing) = routing else {
            return Ok(Prefetched::new());
        };
        let input = |(i, span): (usize, &PartRange)| {
            let prefetched = routing.input(self.number, tile_number, i)?;
            self.report_unless(Some(routing), prefetched.is_some(), span);
            Ok(prefetched)
        };
        tile.inputs.iter().enumerate().map(input).collect()
    }

    /// Reports a span of the file to the loader's feed, unless the loader has read it.
    fn report_unless(&self, routing: Option<Routing<'_, 'c>>, prefetched: bool, span: &PartRange) {
        if let (Some(routing), false, Location::File(info)) =
            (routing, prefetched, &self.parts[span.part])
        {
            routing.report_span(info, span);
        }
    }

    /// The bytes of a tile's inputs, one strip per span.
    pub(super) fn tile<'b>(
        &'b self,
        checkpoint: &'c Checkpoint,
        tile: &Tile,
        prefetched: &'b Prefetched<'c>,
        buffers: &'b mut Vec<Vec<u8>>,
    ) -> Result<SmallVec<[PartBytes<'b>; 4]>> {
        if buffers.len() < tile.inputs.len() {
            // one buffer per input, because the inputs of a tile are borrowed together
            buffers.resize_with(tile.inputs.len(), Vec::new);
        }
        let mut strips = SmallVec::new();
        for (i, (span, buffer)) in tile.inputs.iter().zip(buffers).enumerate() {
            if let Some(Some(chunk)) = prefetched.get(i) {
                strips.push(strip(chunk, span));
                continue;
            }
            let in_memory = match &self.parts[span.part] {
                Location::Memory(bytes) => Some(cut(bytes, span)?),
                Location::File(_) => self.borrow(checkpoint, span)?,
            };
            strips.push(match in_memory {
                Some(bytes) => strip(bytes, span),
                None => strip(self.read(checkpoint, span, buffer)?, span),
            });
        }
        Ok(strips)
    }

    /// The bytes from the first run of a span to its last; `None` if the file is not mapped.
    fn borrow(&self, checkpoint: &'c Checkpoint, span: &PartRange) -> Result<Option<&'c [u8]>> {
        let Location::File(info) = &self.parts[span.part] else {
            return Ok(None);
        };
        let Some(map) = checkpoint.source(info.bytes.file).mapped() else {
            return Ok(None);
        };
        let (start, reach) = within(info, span)?;
        let end = start
            .checked_add(reach)
            .and_then(|end| usize::try_from(end).ok());
        let bytes = usize::try_from(start)
            .ok()
            .zip(end)
            .and_then(|(start, end)| map.get(start..end));
        // the file was longer when its header was read
        let truncated =
            || Error::new(ErrorKind::Io(std::io::ErrorKind::UnexpectedEof.into())).at(start);
        bytes
            .map(Some)
            .ok_or_else(|| checkpoint.place(truncated(), info.bytes.file))
    }

    /// Reads the runs of a span into one buffer, without the gaps.
    fn read<'b>(
        &self,
        checkpoint: &Checkpoint,
        span: &PartRange,
        buffer: &'b mut Vec<u8>,
    ) -> Result<&'b [u8]> {
        let info = match &self.parts[span.part] {
            Location::File(info) => info,
            Location::Memory(bytes) => {
                let bytes = cut(bytes, span)?;
                let (len, stride) = (to_usize(span.bytes.len)?, to_usize(span.bytes.stride)?);
                let total = to_usize(span.bytes.nbytes())?;
                let out = aligned_scratch(buffer, total)?;
                for (i, out) in out.chunks_mut(len.max(1)).enumerate() {
                    out.copy_from_slice(&bytes[i * stride..][..len]);
                }
                return Ok(out);
            }
        };
        let (start, _) = within(info, span)?;
        let (len, total) = (to_usize(span.bytes.len)?, to_usize(span.bytes.nbytes())?);
        let source = checkpoint.source(info.bytes.file);
        let out = aligned_scratch(buffer, total)?;
        let mut at = start;
        // one read per run: the gaps belong to other rows, and reading them would multiply the bytes
        for run in out.chunks_mut(len.max(1)) {
            read_exact_at(source, at, run)
                .map_err(|e| checkpoint.place(Error::from(e).at(at), info.bytes.file))?;
            at += span.bytes.stride;
        }
        Ok(out)
    }
}

fn strip<'b>(bytes: &'b [u8], span: &PartRange) -> PartBytes<'b> {
    let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    // runs that were read have no gaps; borrowed ones have the gaps of the file: a range of one run is packed in both cases,
    // and stride and length are then the same
    let packed = bytes.len() as u64 == span.bytes.nbytes();
    PartBytes {
        bytes,
        len: size(span.bytes.len),
        stride: size(if packed {
            span.bytes.len
        } else {
            span.bytes.stride
        }),
    }
}

/// Where a span begins in the file, and its length with gaps. Refused if it exceeds its tensor.
fn within(info: &TensorInfo, span: &PartRange) -> Result<(u64, u64)> {
    let end = span
        .bytes
        .checked_end()
        .filter(|&end| end <= info.bytes.len);
    let outside = || {
        Error::malformed(format!(
            "tensor {} is shorter than its weight needs",
            quote(&info.name)
        ))
    };
    end.map(|end| (info.bytes.start + span.bytes.start, end - span.bytes.start))
        .ok_or_else(outside)
}

fn cut<'b>(bytes: &'b [u8], span: &PartRange) -> Result<&'b [u8]> {
    let (start, reach) = (
        to_usize(span.bytes.start)?,
        to_usize(span.bytes.extent().unwrap_or(u64::MAX))?,
    );
    let outside = || Error::malformed("a tensor is shorter than its weight needs");
    start
        .checked_add(reach)
        .and_then(|end| bytes.get(start..end))
        .ok_or_else(outside)
}

fn to_usize(n: u64) -> Result<usize> {
    usize::try_from(n)
        .map_err(|_| Error::unsupported("more bytes at a time than this machine can address"))
}
