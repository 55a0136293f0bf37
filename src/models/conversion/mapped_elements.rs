//! Another decoder, and a function of each element, in F32 before the only rounding.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::base::error::Result;
use crate::plan::decode::through_f32;
use crate::plan::{DecodeInput, Decoder, Grid, PartRanges};

/// `function` of each element of `inner`.
pub(in crate::models) struct MappedElements {
    pub(in crate::models) inner: Arc<dyn Decoder>,
    pub(in crate::models) function: fn(f32) -> f32,
}

/// The function by some of its values: its address changes from run to run, and ids of plans are digests of this form.
impl fmt::Debug for MappedElements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappedElements")
            .field("inner", &self.inner)
            .field("function", &[-2.0, 0.5, 3.0].map(self.function))
            .finish()
    }
}

impl Decoder for MappedElements {
    fn grid(&self) -> Grid {
        self.inner.grid()
    }

    fn shared(&self) -> PartRanges {
        self.inner.shared()
    }

    fn inputs(&self, rows: Range<u64>) -> PartRanges {
        self.inner.inputs(rows)
    }

    fn decode(&self, parts: DecodeInput<'_>, out: &mut [u8]) -> Result<()> {
        through_f32(&*self.inner, parts, out, |values| {
            for cell in values {
                *cell = (self.function)(f32::from_le_bytes(*cell)).to_le_bytes();
            }
            Ok(())
        })
    }
}
