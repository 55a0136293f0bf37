//! Reading a part of one tensor.

use std::borrow::Cow;
use std::ops::Range;

use crate::base::error::{Error, Result};
use crate::read::slice::{SliceLayout, TensorSlice};
use crate::read::source::read_exact_at;

use super::Tensor;

/// Runs of a slice that are this long on average are read one by one. With shorter ones a read costs more than the bytes
/// between them.
const LONG_RUN: u64 = 4 << 10;

impl<'c> Tensor<'c> {
    /// The logical values of these indices of the first axis, as [`bytes`](Self::bytes) gives all values: one row of a large
    /// table costs one short read, or none in a map.
    ///
    /// ```
    /// let checkpoint = anamnesis::Checkpoint::open("fixtures/safetensors/sharded")?;
    /// let table = checkpoint.tensor("model.embed_tokens.weight").expect("it exists");
    /// // one row of 16 BF16
    /// assert_eq!(*table.rows(3..4)?, table.bytes()?[3 * 32..4 * 32]);
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`slice_bytes`](Self::slice_bytes).
    pub fn rows(&self, rows: Range<u64>) -> Result<Cow<'c, [u8]>> {
        self.slice_bytes(&TensorSlice::Rows(rows))
    }

    /// The logical values of a slice, in C order without gaps. No other bytes are read, where the elements are stored in this
    /// order, without a checksum, and in runs of pages; else all of the tensor is, in bounded memory.
    ///
    /// # Errors
    /// The errors of [`bytes`](Self::bytes); a slice out of bounds, or one that splits a block or a byte.
    pub fn slice_bytes(&self, slice: &TensorSlice) -> Result<Cow<'c, [u8]>> {
        let info = self.info;
        let layout = slice.layout("tensor", &info.name, &info.shape, &info.encoding);
        let layout = self.in_file(layout)?;
        if layout.runs.count() <= 1
            && let Some(bytes) = self.in_file(self.mapped_values())?
        {
            let run = layout.first();
            let to_usize = |at: u64| usize::try_from(at).expect("within the map");
            return Ok(Cow::Borrowed(
                &bytes[to_usize(run.start)..to_usize(run.end)],
            ));
        }
        let memory = self.readable().and_then(|()| self.bounded());
        let memory = memory.and_then(|()| self.allocate(layout.nbytes()));
        let mut out = self.in_file(memory)?;
        // a checksum covers all of the tensor
        if self.is_stored_as_values() && !self.has_integrity_check() && is_in_long_runs(&layout) {
            self.in_file(self.read_runs(&layout, &mut out))?;
        } else {
            self.read_slice(&layout, &mut out, &mut |_, _| Ok(()))?;
        }
        Ok(Cow::Owned(out))
    }

    /// Reads the runs of a slice, each by itself.
    fn read_runs(&self, layout: &SliceLayout, mut out: &mut [u8]) -> Result<()> {
        let bytes = self.info.bytes;
        let source = self.checkpoint.source(bytes.file);
        for number in 0..layout.runs.count() {
            let run = layout.run(number);
            let len = usize::try_from(run.end - run.start).expect("memory for all runs");
            let part = out.split_off_mut(..len).expect("as long as the slice");
            let start = bytes.start.saturating_add(run.start);
            read_exact_at(source, start, part).map_err(|e| Error::from(e).at(start))?;
        }
        Ok(())
    }
}

fn is_in_long_runs(layout: &SliceLayout) -> bool {
    let count = layout.runs.count();
    count <= 1 || layout.nbytes() / count >= LONG_RUN
}
