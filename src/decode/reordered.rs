//! Rows of codes of 4 bits in AWQ's order.

use std::ops::Range;

use crate::error::Result;
use crate::plan::{Decoder, Grid, Parts, Spans, Strip};

use super::grouped::Grouped;
use super::turned::natural;

/// As [`Grouped`], with the codes of each word of 32 bits in AWQ's order.
#[derive(Debug)]
pub(crate) struct Reordered {
    pub(crate) inner: Grouped,
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
        let codes: Vec<u8> = natural(codes.bytes).collect();
        let inputs: Vec<_> = factors.iter().copied().chain([Strip::whole(&codes)]).collect();
        self.inner.decode(Parts { shared, inputs: &inputs, rows, dtype }, out)
    }
}
