//! Weights some of whose parts are not stored as their decoder expects: a [`PartView`] computes these parts first, for the
//! rows of a tile.
//!
//! So a layout that is new only in where its bytes are (interleaved rows, tiles of a kernel, inline scales) needs a view
//! that reorders bytes, and keeps the decoders, formulas and kernels of the plain layout. The price is one more pass over
//! the bytes of a tile.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use anamnesis_template::StridedRange;

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::plan::{CodeNumbers, DecodeInput, Decoder, Grid, PartBytes, PartRange, PartRanges};

use super::elements::rows_with;
use super::input_cursor::InputCursor;

/// A decoder, with the source of each of its parts.
#[derive(Debug)]
pub(crate) struct Composite {
    /// Its ranges of computed parts are single runs, not strided.
    pub(crate) inner: Arc<dyn Decoder>,
    /// One for each part of `inner`, in order. Parts that all tiles share are stored ones.
    pub(crate) parts: Vec<PartSource>,
}

/// Where a decoder's part comes from.
#[derive(Clone, Debug)]
pub(crate) enum PartSource {
    Stored(PartOffset),
    Computed(Arc<dyn PartView>),
}

/// A stored part of the weight, from byte `start` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartOffset {
    pub(crate) part: usize,
    pub(crate) start: u64,
}

/// A part that is computed from stored ones, row by row.
pub(crate) trait PartView: Debug + Send + Sync {
    /// Its rows; a column is one byte.
    fn grid(&self) -> Grid;

    /// The ranges that these rows are computed from.
    fn inputs(&self, rows: Range<u64>) -> PartRanges;

    /// Computes these rows from the bytes of each of those ranges.
    fn make(&self, rows: Range<u64>, inputs: &[PartBytes<'_>], out: &mut [u8]) -> Result<()>;
}

/// The output of another decoder in F32, such as scales that are quantised themselves. The decoder shares no range among
/// its tiles.
#[derive(Debug)]
pub(crate) struct DecodedPart {
    pub(crate) decoder: Arc<dyn Decoder>,
    pub(crate) places: Vec<PartOffset>,
}

impl Composite {
    /// A decoder of `count` parts: those in `made` are computed, the others are stored.
    pub(crate) fn new(
        inner: impl Decoder + 'static,
        count: usize,
        made: Vec<(usize, Arc<dyn PartView>)>,
    ) -> Self {
        let mut parts: Vec<_> = (0..count)
            .map(|part| PartSource::Stored(PartOffset::whole(part)))
            .collect();
        made.into_iter()
            .for_each(|(part, view)| parts[part] = PartSource::Computed(view));
        Self {
            inner: Arc::new(inner),
            parts,
        }
    }
}

impl PartOffset {
    /// The whole part.
    pub(crate) fn whole(part: usize) -> Self {
        Self { part, start: 0 }
    }

    /// Translates a range of this part into a range of the stored tensor.
    pub(crate) fn of(self, span: PartRange) -> PartRange {
        let start = self.start.saturating_add(span.bytes.start);
        PartRange {
            part: self.part,
            bytes: StridedRange {
                start,
                ..span.bytes
            },
        }
    }
}

impl PartView for DecodedPart {
    fn grid(&self) -> Grid {
        let grid = self.decoder.grid();
        Grid {
            // a column of a view is one byte, and F32 has four
            cols: grid.cols.saturating_mul(4),
            ..grid
        }
    }

    fn inputs(&self, rows: Range<u64>) -> PartRanges {
        self.decoder
            .inputs(rows)
            .into_iter()
            .map(|span| self.places[span.part].of(span))
            .collect()
    }

    fn make(&self, rows: Range<u64>, inputs: &[PartBytes<'_>], out: &mut [u8]) -> Result<()> {
        self.decoder.decode(
            DecodeInput {
                shared: &[],
                inputs,
                rows,
                dtype: Dtype::F32,
            },
            out,
        )
    }
}

/// The rows of a view that contain these bytes. It computes whole steps, whose rows share stored bytes; what is in front of
/// the range is skipped afterwards.
fn rows_of(grid: Grid, span: &PartRange) -> Range<u64> {
    let start = span.bytes.start;
    rows_with(grid, &(start..start + span.bytes.len.max(1)))
}

/// The bytes of one range of the inner decoder: read, or computed (the range begins at this byte).
enum PartData<'i> {
    Read(PartBytes<'i>),
    Computed(Vec<u8>, usize),
}

impl PartData<'_> {
    fn strip(&self, span: &PartRange) -> PartBytes<'_> {
        match self {
            Self::Read(strip) => *strip,
            Self::Computed(bytes, skipped) => {
                PartBytes::whole(&bytes[*skipped..][..span.bytes.len as usize])
            }
        }
    }
}

impl Decoder for Composite {
    fn numbers(&self) -> Option<CodeNumbers> {
        self.inner.numbers()
    }

    fn grid(&self) -> Grid {
        self.inner.grid()
    }

    fn shared(&self) -> PartRanges {
        let stored = |span: PartRange| match &self.parts[span.part] {
            PartSource::Stored(place) => place.of(span),
            PartSource::Computed(_) => unreachable!("parts that all tiles share are stored ones"),
        };
        self.inner.shared().into_iter().map(stored).collect()
    }

    fn inputs(&self, rows: Range<u64>) -> PartRanges {
        let mut spans = PartRanges::new();
        for span in self.inner.inputs(rows) {
            match &self.parts[span.part] {
                PartSource::Stored(place) => spans.push(place.of(span)),
                // the ranges of the view, in place of the range that the inner decoder named
                PartSource::Computed(view) => {
                    spans.extend(view.inputs(rows_of(view.grid(), &span)))
                }
            }
        }
        spans
    }

    fn decode(&self, parts: DecodeInput<'_>, out: &mut [u8]) -> Result<()> {
        let DecodeInput {
            shared,
            inputs,
            rows,
            dtype,
        } = parts;
        let spans = self.inner.inputs(rows.clone());
        // ranges are consumed in the order in which `inputs` listed them
        let (mut ready, mut cursor) = (Vec::with_capacity(spans.len()), InputCursor::new(inputs));
        for span in &spans {
            ready.push(match &self.parts[span.part] {
                PartSource::Stored(_) => PartData::Read(cursor.next()),
                PartSource::Computed(view) => {
                    let grid = view.grid();
                    // the same computation as in `inputs`, so that ranges and bytes correspond
                    let rows = rows_of(grid, span);
                    let count = view.inputs(rows.clone()).len();
                    let mut bytes = super::tile_rows::scratch(
                        (rows.end - rows.start) as usize,
                        grid.cols as usize,
                    )?;
                    // the view's rows may begin before the range
                    let skipped = span.bytes.start - rows.start * grid.cols;
                    view.make(rows, cursor.take(count), &mut bytes)?;
                    PartData::Computed(bytes, skipped as usize)
                }
            });
        }
        let inputs: Vec<_> = ready
            .iter()
            .zip(&spans)
            .map(|(ready, span)| ready.strip(span))
            .collect();
        self.inner.decode(
            DecodeInput {
                shared,
                inputs: &inputs,
                rows,
                dtype,
            },
            out,
        )
    }
}
