//! Comparison of values: the elements of two jobs in step, decoded as `remember` decodes them.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::base::progress::RunProgress;
use crate::base::sync::{AtomicBool, AtomicU64, PoisonMutex};
use crate::base::threads::side_by_side;
use crate::engine::execute::{JobRows, RowBuffers};
use crate::plan::{Job, JobWork};
use crate::read::checkpoint::Checkpoint;

use super::byte_reader::ByteReader;
use super::moments::Moments;
use super::ordered_sums::OrderedSums;
use super::piece_numbers::PieceNumbers;
use super::tensor_bytes::TensorBytes;

/// Elements of a piece at least: in F32 half a mebibyte of each side, which stays in the second-level cache.
const PIECE_ELEMENTS: u64 = 128 << 10;

/// A job and the checkpoint that it reads.
#[derive(Clone, Copy)]
pub(super) struct SideJob<'s> {
    pub(super) checkpoint: &'s Checkpoint,
    pub(super) job: &'s Job,
}

impl<'s> SideJob<'s> {
    fn dtype(&self) -> Dtype {
        self.job.output.dtype
    }

    fn is_stream(&self) -> bool {
        matches!(self.job.work, JobWork::Stream { .. })
    }

    fn stored(&self) -> Result<TensorBytes<'s>> {
        let tensor = self.job.parts[0].tensor;
        TensorBytes::new(
            self.checkpoint,
            &self.checkpoint.catalog().tensors()[tensor],
        )
    }
}

/// The rows that the pieces of a comparison share: made by the first, released by the last.
type SharedRows<'s> = PoisonMutex<Option<Arc<(JobRows<'s>, JobRows<'s>)>>>;

/// Two jobs of equally many elements, which are numbers.
pub(super) struct ValueComparison<'s> {
    a: SideJob<'s>,
    b: SideJob<'s>,
    elements: u64,
    /// Elements of a piece.
    step: u64,
    rows: SharedRows<'s>,
    /// Pieces that are not compared.
    remaining: AtomicU64,
    sums: PoisonMutex<OrderedSums>,
}

impl<'s> ValueComparison<'s> {
    /// # Errors
    /// A piece over [`Limits::tile_bytes`](crate::Limits::tile_bytes).
    pub(super) fn new(a: SideJob<'s>, b: SideJob<'s>, elements: u64) -> Result<Self> {
        let unit = |side: SideJob<'_>| JobRows::unit(side.job).unwrap_or(1);
        let unit = unit(a).max(unit(b));
        // whole units of the side that decodes more at a time; of the other side, few elements are decoded twice
        let step = PIECE_ELEMENTS
            .checked_next_multiple_of(unit)
            .unwrap_or(unit)
            .min(elements.max(1));
        for side in [a, b] {
            // a piece that begins and ends within units is decoded with the whole of both
            let around = unit.saturating_mul(2).saturating_add(step);
            JobRows::check_range(side.checkpoint, side.job, around.min(elements))?;
        }
        let comparison = Self {
            a,
            b,
            elements,
            step,
            rows: PoisonMutex::new(None),
            remaining: AtomicU64::new(0),
            sums: PoisonMutex::default(),
        };
        let pieces = comparison.pieces();
        comparison.remaining.store(pieces, Ordering::Relaxed);
        Ok(comparison)
    }

    /// Bytes that are decoded of A.
    pub(super) fn nbytes(&self) -> u64 {
        self.a.dtype().nbytes(self.elements).unwrap_or(u64::MAX)
    }

    fn pieces(&self) -> u64 {
        if self.a.is_stream() || self.b.is_stream() {
            // a stream has no ranges: one piece, whatever its length
            u64::from(self.elements > 0)
        } else {
            self.elements.div_ceil(self.step)
        }
    }

    /// The sums over all elements, once they have been compared.
    pub(super) fn sums(self) -> Moments {
        let sums = self
            .sums
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        sums.sum()
    }

    fn range(&self, piece: u64) -> Range<u64> {
        let start = piece * self.step;
        start..self.elements.min(start.saturating_add(self.step))
    }

    fn add(&self, piece: u64, sums: Moments) {
        let mut all = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        all.add(piece, sums);
    }

    fn rows(&self, progress: &RunProgress<'_>) -> Result<Arc<(JobRows<'s>, JobRows<'s>)>> {
        // made under the lock: two threads must not inflate the same part twice
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rows) = &*rows {
            return Ok(Arc::clone(rows));
        }
        let open = |side: SideJob<'s>| JobRows::new(side.checkpoint, side.job, progress);
        Ok(Arc::clone(
            rows.insert(Arc::new((open(self.a)?, open(self.b)?))),
        ))
    }

    /// Compares a piece whose elements both sides decode wherever they begin.
    fn compare_piece(
        &self,
        piece: u64,
        room: &mut ValueRoom,
        progress: &RunProgress<'_>,
    ) -> Result<Moments> {
        let rows = self.rows(progress)?;
        let range = self.range(piece);
        room.resize(self, &range);
        rows.0.decode(&range, &mut room.a_inputs, &mut room.a)?;
        rows.1.decode(&range, &mut room.b_inputs, &mut room.b)?;
        // before the count, so that the last piece frees them
        drop(rows);
        // released at once and not at the end of the run: shared parts may be as large as the tensor
        // relaxed: the rows have a lock of their own
        if self.remaining.fetch_sub(1, Ordering::Relaxed) == 1 {
            *self.rows.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        Ok(self.moments(room, range.start))
    }

    fn moments(&self, room: &ValueRoom, start: u64) -> Moments {
        Moments::of((self.a.dtype(), &room.a), (self.b.dtype(), &room.b), start)
    }

    /// Compares jobs of which one is read from its first element to its last.
    fn compare_in_order(
        &self,
        room: &mut ValueRoom,
        stop: &AtomicBool,
        first_only: bool,
        progress: &RunProgress<'_>,
    ) -> Result<()> {
        std::thread::scope(|scope| {
            let open = |side: SideJob<'s>| -> Result<_> {
                Ok(if side.is_stream() {
                    ElementReader::InOrder(ByteReader::new(&side.stored()?, scope)?)
                } else {
                    let rows = JobRows::new(side.checkpoint, side.job, progress)?;
                    ElementReader::Rows(Box::new(rows))
                })
            };
            let (mut a, mut b) = (open(self.a)?, open(self.b)?);
            for piece in 0..self.elements.div_ceil(self.step) {
                let range = self.range(piece);
                room.resize(self, &range);
                a.read(&range, &mut room.a_inputs, &mut room.a)?;
                b.read(&range, &mut room.b_inputs, &mut room.b)?;
                let sums = self.moments(room, range.start);
                self.add(piece, sums);
                progress.add(room.a.len() as u64)?;
                if first_only && sums.differing > 0 {
                    stop.store(true, Ordering::Relaxed);
                    return Ok(());
                }
            }
            a.finish()?;
            b.finish()
        })
    }
}

/// The elements of one side.
enum ElementReader<'s, 'c> {
    Rows(Box<JobRows<'c>>),
    InOrder(ByteReader<'s, 'c>),
}

impl ElementReader<'_, '_> {
    fn read(&mut self, range: &Range<u64>, inputs: &mut RowBuffers, out: &mut [u8]) -> Result<()> {
        match self {
            Self::Rows(rows) => rows.decode(range, inputs, out),
            Self::InOrder(reader) => reader.read(out),
        }
    }

    fn finish(&mut self) -> Result<()> {
        match self {
            Self::Rows(_) => Ok(()),
            Self::InOrder(reader) => reader.finish(),
        }
    }
}

/// A thread's memory: the elements of both sides, and what they are decoded from.
#[derive(Default)]
struct ValueRoom {
    a: Vec<u8>,
    b: Vec<u8>,
    a_inputs: RowBuffers,
    b_inputs: RowBuffers,
}

impl ValueRoom {
    /// Makes room for these elements.
    fn resize(&mut self, comparison: &ValueComparison<'_>, range: &Range<u64>) {
        let count = usize::try_from(range.end - range.start).expect("checked against the limits");
        self.a.resize(count * comparison.a.dtype().width(), 0);
        self.b.resize(count * comparison.b.dtype().width(), 0);
    }
}

/// Compares all of them. `first_only`: ends with the first difference.
pub(super) fn compare(
    list: &[ValueComparison<'_>],
    first_only: bool,
    threads: usize,
    progress: &RunProgress<'_>,
) -> Result<()> {
    let numbers = PieceNumbers::new(list.iter().map(ValueComparison::pieces));
    let stop = AtomicBool::new(false);
    side_by_side(
        "diff",
        numbers.count(),
        threads,
        progress,
        ValueRoom::default,
        |piece, room| {
            // pieces that were distributed before the difference was found
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let (item, number) = numbers.find(piece);
            let comparison = &list[item];
            if comparison.a.is_stream() || comparison.b.is_stream() {
                return comparison.compare_in_order(room, &stop, first_only, progress);
            }
            let sums = comparison.compare_piece(number, room, progress)?;
            if first_only && sums.differing > 0 {
                stop.store(true, Ordering::Relaxed);
            }
            comparison.add(number, sums);
            progress.add(room.a.len() as u64)
        },
    )
}
