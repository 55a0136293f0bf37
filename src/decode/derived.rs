//! Weights some of whose parts are not stored as their decoder wants them: they are made first, row by row.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use crate::Dtype;
use crate::error::Result;
use crate::plan::{Decoder, Grid, Parts, Span, Spans, Strip};

/// A decoder that is given its parts as it wants them, from where they really are.
#[derive(Debug)]
pub(crate) struct Derived {
    /// Asks for single runs of what is made.
    pub(crate) inner: Arc<dyn Decoder>,
    /// For each part of `inner`, in their order; those that all of its tiles share are stored.
    pub(crate) parts: Vec<Source>,
}

/// Where a part comes from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Stored(Place),
    Made(Arc<dyn View>),
}

/// Bytes of a stored part, from `start` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) part: usize,
    pub(crate) start: u64,
}

/// Bytes of a part that are made from stored ones, in rows.
pub(crate) trait View: Debug + Send + Sync {
    /// Its rows; a column is a byte.
    fn grid(&self) -> Grid;

    /// What these rows are made from.
    fn inputs(&self, rows: Range<u64>) -> Spans;

    /// Makes them, from a strip for each of those spans.
    fn make(&self, rows: Range<u64>, inputs: &[Strip<'_>], out: &mut [u8]) -> Result<()>;
}

/// What another decoder makes, in F32, of parts that are at these places; its tiles share nothing.
#[derive(Debug)]
pub(crate) struct Numbers {
    pub(crate) decoder: Arc<dyn Decoder>,
    pub(crate) places: Vec<Place>,
}

impl Derived {
    /// Over so many parts, each as it is stored but for those that are made.
    pub(crate) fn new(
        inner: impl Decoder + 'static,
        count: usize,
        made: Vec<(usize, Arc<dyn View>)>,
    ) -> Self {
        let mut parts: Vec<_> = (0..count)
            .map(|part| Source::Stored(Place::whole(part)))
            .collect();
        made.into_iter()
            .for_each(|(part, view)| parts[part] = Source::Made(view));
        Self {
            inner: Arc::new(inner),
            parts,
        }
    }
}

impl Place {
    /// All of a part.
    pub(crate) fn whole(part: usize) -> Self {
        Self { part, start: 0 }
    }

    /// The span that lies so in what is at this place.
    pub(super) fn of(self, span: Span) -> Span {
        Span {
            part: self.part,
            start: self.start.saturating_add(span.start),
            ..span
        }
    }
}

impl View for Numbers {
    fn grid(&self) -> Grid {
        let grid = self.decoder.grid();
        Grid {
            cols: grid.cols.saturating_mul(4),
            ..grid
        }
    }

    fn inputs(&self, rows: Range<u64>) -> Spans {
        self.decoder
            .inputs(rows)
            .into_iter()
            .map(|span| self.places[span.part].of(span))
            .collect()
    }

    fn make(&self, rows: Range<u64>, inputs: &[Strip<'_>], out: &mut [u8]) -> Result<()> {
        self.decoder.decode(
            Parts {
                shared: &[],
                inputs,
                rows,
                dtype: Dtype::F32,
            },
            out,
        )
    }
}

/// The rows that have these bytes.
fn rows_of(grid: Grid, span: &Span) -> Range<u64> {
    let Grid {
        rows, cols, step, ..
    } = grid;
    let row = |byte: u64| byte / cols.max(1);
    let end = row((span.start + span.len).saturating_sub(1)) + 1;
    row(span.start) / step * step..end.checked_next_multiple_of(step).unwrap_or(rows).min(rows)
}

/// A strip of the inner decoder: read, or made and then from this byte on.
enum Ready<'i> {
    Read(Strip<'i>),
    Made(Vec<u8>, usize),
}

impl Ready<'_> {
    fn strip(&self, span: &Span) -> Strip<'_> {
        match self {
            Self::Read(strip) => *strip,
            Self::Made(bytes, skipped) => Strip::whole(&bytes[*skipped..][..span.len as usize]),
        }
    }
}

impl Decoder for Derived {
    fn grid(&self) -> Grid {
        self.inner.grid()
    }

    fn shared(&self) -> Spans {
        let stored = |span: Span| match &self.parts[span.part] {
            Source::Stored(place) => place.of(span),
            Source::Made(_) => unreachable!("what all tiles share is stored"),
        };
        self.inner.shared().into_iter().map(stored).collect()
    }

    fn inputs(&self, rows: Range<u64>) -> Spans {
        let mut spans = Spans::new();
        for span in self.inner.inputs(rows) {
            match &self.parts[span.part] {
                Source::Stored(place) => spans.push(place.of(span)),
                Source::Made(view) => spans.extend(view.inputs(rows_of(view.grid(), &span))),
            }
        }
        spans
    }

    fn decode(&self, parts: Parts<'_>, out: &mut [u8]) -> Result<()> {
        let Parts {
            shared,
            inputs,
            rows,
            dtype,
        } = parts;
        let spans = self.inner.inputs(rows.clone());
        let (mut ready, mut left) = (Vec::with_capacity(spans.len()), inputs);
        for span in &spans {
            let count = match &self.parts[span.part] {
                Source::Stored(_) => {
                    ready.push(Ready::Read(left[0]));
                    1
                }
                Source::Made(view) => {
                    let grid = view.grid();
                    let rows = rows_of(grid, span);
                    let count = view.inputs(rows.clone()).len();
                    let mut bytes =
                        super::scratch((rows.end - rows.start) as usize, grid.cols as usize)?;
                    let skipped = span.start - rows.start * grid.cols;
                    view.make(rows, &left[..count], &mut bytes)?;
                    ready.push(Ready::Made(bytes, skipped as usize));
                    count
                }
            };
            left = &left[count..];
        }
        let inputs: Vec<_> = ready
            .iter()
            .zip(&spans)
            .map(|(ready, span)| ready.strip(span))
            .collect();
        self.inner.decode(
            Parts {
                shared,
                inputs: &inputs,
                rows,
                dtype,
            },
            out,
        )
    }
}
