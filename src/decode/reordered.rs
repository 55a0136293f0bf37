//! Rows of codes in another order than the natural one.

use std::ops::Range;

use crate::error::Result;
use crate::kernel::{self, Packing};
use crate::plan::{Decoder, Grid, Parts, Span, Spans, Strip};

use super::derived::{Place, View};
use super::grouped::Grouped;
use super::turned::Order;

/// As [`Grouped`], with the codes of each word or byte in this order.
#[derive(Debug)]
pub(crate) struct Reordered {
    pub(crate) inner: Grouped,
    pub(crate) order: Order,
}

impl Decoder for Reordered {
    fn grid(&self) -> Grid {
        self.inner.grid()
    }

    fn shared(&self) -> Spans {
        self.inner.shared()
    }

    fn inputs(&self, rows: Range<u64>) -> Spans {
        self.inner.inputs(rows)
    }

    fn decode(&self, parts: Parts<'_>, out: &mut [u8]) -> Result<()> {
        let Parts {
            shared,
            inputs,
            rows,
            dtype,
        } = parts;
        let (codes, factors) = inputs.split_last().expect("the codes were asked for last");
        let codes = self.order.undone(codes.bytes);
        let inputs: Vec<_> = factors
            .iter()
            .copied()
            .chain([Strip::whole(&codes)])
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

/// Zero points in such an order, one for each row, as whole bytes.
#[derive(Debug)]
pub(crate) struct PerRow {
    pub(crate) place: Place,
    pub(crate) rows: u64,
    pub(crate) order: Order,
    /// Of them in a word or byte.
    pub(crate) per_item: u64,
    pub(crate) bits: u64,
    /// Whether they are in two's complement.
    pub(crate) signed: bool,
}

impl View for PerRow {
    fn grid(&self) -> Grid {
        Grid {
            step: self.per_item,
            ..Grid::new(self.rows, 1)
        }
    }

    fn inputs(&self, rows: Range<u64>) -> Spans {
        let item = self.per_item * self.bits / 8;
        let bytes = rows.start / self.per_item * item..rows.end.div_ceil(self.per_item) * item;
        Spans::from_iter([self.place.of(Span::run(0, bytes))])
    }

    fn make(&self, _: Range<u64>, inputs: &[Strip<'_>], out: &mut [u8]) -> Result<()> {
        let (codes, bits) = (self.order.undone(inputs[0].bytes), self.bits as u32);
        for (row, out) in out.iter_mut().enumerate() {
            let code = kernel::code(Packing::Stream(bits), bits, &codes, row);
            let negative = self.signed && code >> (bits - 1) == 1;
            *out = if negative {
                code | u8::MAX << bits
            } else {
                code
            };
        }
        Ok(())
    }
}
