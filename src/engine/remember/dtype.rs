//! The dtype that weights become when the caller leaves the choice to the checkpoint.

use crate::base::error::{Error, Result};
use crate::base::kernel::Dtype;
use crate::quant::scheme::QuantConfig;
use crate::read::catalog::{Catalog, Encoding};
use crate::read::format::gguf;

/// The dtype of dequantised weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputDtype {
    /// The dtype that the checkpoint's `config.json` states (`dtype`, `torch_dtype`); without one, the more frequent of BF16
    /// and F16 among the stored tensors; without any, F32 where tensors are F32 and the file is no GGUF; else BF16.
    Auto,
    /// As they are stored: [`convert`](crate::convert()) copies them, and [`remember`](crate::remember()) refuses it.
    Stored,
    /// This dtype: `BF16`, `F16` or `F32`.
    Of(Dtype),
}

impl From<Dtype> for OutputDtype {
    fn from(dtype: Dtype) -> Self {
        Self::Of(dtype)
    }
}

impl OutputDtype {
    /// The dtype for a checkpoint.
    pub(super) fn resolve(self, catalog: &Catalog, config: &QuantConfig) -> Result<Dtype> {
        match self {
            Self::Of(dtype) => Ok(dtype),
            Self::Auto => Ok(config
                .model()
                .dtype()
                .unwrap_or_else(|| of_tensors(catalog))),
            Self::Stored => Err(Error::invalid_argument(
                "dequantised weights have a dtype of their own: `convert` copies weights as they are stored",
            )),
        }
    }
}

fn of_tensors(catalog: &Catalog) -> Dtype {
    let count = |dtype| {
        let stored = catalog.tensors().iter();
        stored
            .filter(|info| info.encoding == Encoding::Plain(dtype))
            .count()
    };
    let (bf16, f16) = (count(Dtype::BF16), count(Dtype::F16));
    if bf16 > 0 || f16 > 0 {
        return if f16 > bf16 { Dtype::F16 } else { Dtype::BF16 };
    }
    // llama.cpp stores all one-dimensional tensors as F32, whatever the dtype of the model
    if catalog.format != gguf::FORMAT.name && count(Dtype::F32) > 0 {
        return Dtype::F32;
    }
    Dtype::BF16
}
