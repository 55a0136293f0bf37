//! Bringing the bytes of tiles: lent where a file is mapped, read where not.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use smallvec::SmallVec;

use super::Course;
use super::route::Route;
use crate::catalog::{TensorInfo, quote};
use crate::checkpoint::Checkpoint;
use crate::error::{Error, ErrorKind, Result};
use crate::load::Chunk;
use crate::plan::{Job, Plan, Span, Strip, Tile, Work, addressable, room};
use crate::source::read_exact_at;

/// One per input of a tile: what a loader brought for it, if it did.
pub(super) type Brought<'c> = SmallVec<[Option<Chunk<'c>>; 3]>;

/// A worker's memory, used again for each tile.
#[derive(Default)]
pub(super) struct Buffers {
    pub(super) output: Vec<u8>,
    /// One per input of a tile.
    pub(super) input: Vec<Vec<u8>>,
}

/// A job's parts, ready to be read from: what is not addressable was brought whole.
pub(super) struct Ready<'c> {
    parts: Vec<Place<'c>>,
    shared: Vec<(Bytes<'c>, Span)>,
    /// Where the loader's reads are taken from, if there is a loader.
    number: usize,
}

/// Bytes that were lent, read, or brought by a loader.
enum Bytes<'c> {
    Own(Cow<'c, [u8]>),
    Brought(Chunk<'c>),
}

impl Deref for Bytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Brought(bytes) => bytes,
        }
    }
}

/// Where a part's logical bytes are.
enum Place<'c> {
    /// In the file, as they are.
    File(&'c TensorInfo),
    /// Here.
    Here(Bytes<'c>),
}

/// One slot per job: filled by the first of its tiles, emptied by the last.
pub(super) struct Slots<'c> {
    slots: Vec<Slot<'c>>,
}

struct Slot<'c> {
    ready: Mutex<Option<Arc<Ready<'c>>>>,
    left: AtomicU64,
}

impl<'c> Slots<'c> {
    pub(super) fn new(plan: &Plan) -> Self {
        let left = |job: &Job| match &job.work {
            Work::Tiles { decoder, rows } => decoder.grid().tiles(*rows),
            Work::Stream { .. } => 0,
        };
        let slot = |job| Slot {
            ready: Mutex::new(None),
            left: AtomicU64::new(left(job)),
        };
        Self {
            slots: plan.jobs.iter().map(slot).collect(),
        }
    }

    pub(super) fn get(
        &self,
        checkpoint: &'c Checkpoint,
        job: &Job,
        number: usize,
        route: Option<Route<'_, 'c>>,
        course: &Course<'_>,
    ) -> Result<Arc<Ready<'c>>> {
        let mut ready = self.slots[number]
            .ready
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(ready) = &*ready {
            return Ok(ready.clone());
        }
        let made = Arc::new(Ready::new(checkpoint, job, number, route, course)?);
        *ready = Some(made.clone());
        Ok(made)
    }

    /// Lets go of what the tiles of a job share after the last of them.
    pub(super) fn done(&self, number: usize) {
        let slot = &self.slots[number];
        if slot.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            *slot.ready.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}

impl<'c> Ready<'c> {
    fn new(
        checkpoint: &'c Checkpoint,
        job: &Job,
        number: usize,
        route: Option<Route<'_, 'c>>,
        course: &Course<'_>,
    ) -> Result<Self> {
        let Work::Tiles { decoder, .. } = &job.work else {
            unreachable!("streams share nothing")
        };
        let mut parts = Vec::with_capacity(job.parts.len());
        let mut shared = Vec::new();
        for (i, span) in decoder.shared().into_iter().enumerate() {
            let brought = route
                .map(|route| route.shared(number, i))
                .transpose()?
                .flatten();
            shared.push((brought, span));
        }
        for (i, part) in job.parts.iter().enumerate() {
            let info = &checkpoint.catalog().tensors()[part.tensor];
            let brought = route
                .map(|route| route.part(number, i))
                .transpose()?
                .flatten();
            parts.push(match brought {
                Some(whole) => Place::Here(Bytes::Brought(whole)),
                None if addressable(info) => Place::File(info),
                None => {
                    route
                        .iter()
                        .for_each(|route| route.whole_beside(checkpoint.catalog(), info));
                    let mut pace = course.begin(0);
                    let bytes = checkpoint
                        .tensor_at(part.tensor)
                        .bytes_watched(&mut |_, bytes| pace.work(bytes));
                    Place::Here(Bytes::Own(bytes?))
                }
            });
        }
        let mut ready = Self {
            parts,
            shared: Vec::new(),
            number,
        };
        for (brought, span) in shared {
            ready.tell(route, brought.is_some(), &span);
            let bytes = match (brought, ready.lend(checkpoint, &span)?) {
                (Some(chunk), _) => Bytes::Brought(chunk),
                (None, Some(lent)) => Bytes::Own(Cow::Borrowed(lent)),
                (None, None) => Bytes::Own(Cow::Owned(
                    ready.read(checkpoint, &span, &mut Vec::new())?.to_vec(),
                )),
            };
            ready.shared.push((bytes, span));
        }
        Ok(ready)
    }

    pub(super) fn shared(&self) -> SmallVec<[Strip<'_>; 4]> {
        self.shared
            .iter()
            .map(|(bytes, span)| strip(bytes, span))
            .collect()
    }

    /// What a loader brought for a tile, one place per input.
    pub(super) fn brought(
        &self,
        route: Option<Route<'_, 'c>>,
        tile: &Tile,
        tile_number: u64,
    ) -> Result<Brought<'c>> {
        let Some(route) = route else {
            return Ok(Brought::new());
        };
        let input = |(i, span): (usize, &Span)| {
            let brought = route.input(self.number, tile_number, i)?;
            self.tell(Some(route), brought.is_some(), span);
            Ok(brought)
        };
        tile.inputs.iter().enumerate().map(input).collect()
    }

    /// Tells whoever brings bytes of those that are lent or read without him.
    fn tell(&self, route: Option<Route<'_, 'c>>, brought: bool, span: &Span) {
        if let (Some(route), false, Place::File(info)) = (route, brought, &self.parts[span.part]) {
            route.beside(info, span);
        }
    }

    /// The bytes of a tile's inputs.
    pub(super) fn inputs<'b>(
        &'b self,
        checkpoint: &'c Checkpoint,
        tile: &Tile,
        brought: &'b Brought<'c>,
        buffers: &'b mut Vec<Vec<u8>>,
    ) -> Result<SmallVec<[Strip<'b>; 4]>> {
        if buffers.len() < tile.inputs.len() {
            buffers.resize_with(tile.inputs.len(), Vec::new);
        }
        let mut strips = SmallVec::new();
        for (i, (span, buffer)) in tile.inputs.iter().zip(buffers).enumerate() {
            if let Some(Some(chunk)) = brought.get(i) {
                strips.push(strip(chunk, span));
                continue;
            }
            let here = match &self.parts[span.part] {
                Place::Here(bytes) => Some(cut(bytes, span)?),
                Place::File(_) => self.lend(checkpoint, span)?,
            };
            strips.push(match here {
                Some(bytes) => strip(bytes, span),
                None => strip(self.read(checkpoint, span, buffer)?, span),
            });
        }
        Ok(strips)
    }

    /// The bytes from the first run of a span to its last, where the file is mapped.
    fn lend(&self, checkpoint: &'c Checkpoint, span: &Span) -> Result<Option<&'c [u8]>> {
        let Place::File(info) = &self.parts[span.part] else {
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
        let gone = || Error::new(ErrorKind::Io(std::io::ErrorKind::UnexpectedEof.into())).at(start);
        bytes
            .map(Some)
            .ok_or_else(|| checkpoint.place(gone(), info.bytes.file))
    }

    /// Reads the runs of a span, one behind the other.
    fn read<'b>(
        &self,
        checkpoint: &Checkpoint,
        span: &Span,
        buffer: &'b mut Vec<u8>,
    ) -> Result<&'b [u8]> {
        let info = match &self.parts[span.part] {
            Place::File(info) => info,
            Place::Here(bytes) => {
                let bytes = cut(bytes, span)?;
                let (len, stride) = (to_usize(span.len)?, to_usize(span.stride)?);
                let total = to_usize(span.nbytes().unwrap_or(u64::MAX))?;
                let out = room(buffer, total)?;
                for (i, out) in out.chunks_mut(len.max(1)).enumerate() {
                    out.copy_from_slice(&bytes[i * stride..][..len]);
                }
                return Ok(out);
            }
        };
        let (start, _) = within(info, span)?;
        let (len, total) = (
            to_usize(span.len)?,
            to_usize(span.nbytes().unwrap_or(u64::MAX))?,
        );
        let source = checkpoint.source(info.bytes.file);
        let out = room(buffer, total)?;
        let mut at = start;
        for run in out.chunks_mut(len.max(1)) {
            read_exact_at(source, at, run)
                .map_err(|e| checkpoint.place(Error::from(e).at(at), info.bytes.file))?;
            at += span.stride;
        }
        Ok(out)
    }
}

fn strip<'b>(bytes: &'b [u8], span: &Span) -> Strip<'b> {
    let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    // what was read lies run behind run, what was lent as in the file
    let packed = bytes.len() as u64 == span.nbytes().unwrap_or(u64::MAX);
    Strip {
        bytes,
        len: size(span.len),
        stride: size(if packed { span.len } else { span.stride }),
    }
}

/// Where a span begins in the file, and how far it reaches; it must lie inside its tensor.
fn within(info: &TensorInfo, span: &Span) -> Result<(u64, u64)> {
    let reach = span.reach().filter(|&reach| {
        span.start
            .checked_add(reach)
            .is_some_and(|end| end <= info.bytes.len)
    });
    let outside = || {
        Error::malformed(format!(
            "tensor {} is shorter than its weight needs",
            quote(&info.name)
        ))
    };
    reach
        .map(|reach| (info.bytes.start + span.start, reach))
        .ok_or_else(outside)
}

fn cut<'b>(bytes: &'b [u8], span: &Span) -> Result<&'b [u8]> {
    let (start, reach) = (
        to_usize(span.start)?,
        to_usize(span.reach().unwrap_or(u64::MAX))?,
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
