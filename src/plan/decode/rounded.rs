//! The output of another decoder, rounded to a narrower float first.

use std::ops::Range;
use std::sync::Arc;

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::plan::{DecodeInput, Decoder, Grid, PartRanges};

use super::cast::cast;
use super::tile_rows::scratch;

/// Elements of `inner`, rounded to `dtype` before they become what is asked for.
#[derive(Debug)]
pub(crate) struct Rounded {
    inner: Arc<dyn Decoder>,
    dtype: Dtype,
}

impl Rounded {
    /// The elements of a decoder as they are in this dtype.
    pub(crate) fn through(inner: Arc<dyn Decoder>, dtype: Dtype) -> Arc<dyn Decoder> {
        match dtype {
            // which every decoder computes in
            Dtype::F32 => inner,
            _ => Arc::new(Self { inner, dtype }),
        }
    }
}

impl Decoder for Rounded {
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
        let asked = parts.dtype;
        let parts = DecodeInput {
            dtype: self.dtype,
            ..parts
        };
        if asked == self.dtype {
            return self.inner.decode(parts, out);
        }
        let mut rounded = scratch(out.len() / asked.width(), self.dtype.width())?;
        self.inner.decode(parts, &mut rounded)?;
        cast(self.dtype, &rounded, asked, out)
    }
}
