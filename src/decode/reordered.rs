//! Rows of codes in another order than the natural one.

use std::ops::Range;

use crate::error::Result;
use crate::plan::{Decoder, Grid, Parts, Spans, Strip};

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
        let Parts { shared, inputs, rows, dtype } = parts;
        let (codes, factors) = inputs.split_last().expect("the codes were asked for last");
        let codes = self.order.undone(codes.bytes);
        let inputs: Vec<_> = factors.iter().copied().chain([Strip::whole(&codes)]).collect();
        self.inner.decode(Parts { shared, inputs: &inputs, rows, dtype }, out)
    }
}
