//! The dtypes of keys and values in a cache.

use std::fmt;
use std::str::FromStr;

use crate::base::error::{Error, Result};
use crate::base::kernel::BlockFormat;
use crate::base::kernel::Dtype;
use crate::base::quote::quote;

/// How the keys, or the values, of a cache are stored.
///
/// ```
/// use anamnesis::fit::CacheType;
///
/// let quantised: CacheType = "q8_0".parse()?;
/// assert_eq!(quantised.to_string(), "Q8_0");
/// // 8 heads of 128 elements: 32 blocks of 34 bytes
/// assert_eq!(quantised.row_nbytes(8, 128), Some(32 * 34));
/// # Ok::<(), anamnesis::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum CacheType {
    /// Elements of a dtype.
    Plain(Dtype),
    /// Blocks of a ggml type, which the elements of a token fill.
    Block(&'static BlockFormat),
    /// One byte per element, and an F32 scale per head and token.
    PerTokenHead(Dtype),
    /// NVFP4: half a byte per element, and a scale per 16.
    Nvfp4,
    /// FP8 of latent attention in vLLM's sparse kernels: 656 bytes per token.
    DsMla,
}

/// Bytes of a token in [`CacheType::DsMla`].
const DS_MLA: u64 = 656;

impl CacheType {
    /// Bytes of a token with this many heads of this many elements; `None` if they do not fit in 64 bits.
    pub fn row_nbytes(self, heads: u64, dim: u64) -> Option<u64> {
        let elements = heads.checked_mul(dim)?;
        match self {
            Self::Plain(dtype) => {
                dtype.nbytes(elements.checked_next_multiple_of(elements_per_byte(dtype))?)
            }
            Self::Block(block) => elements
                .div_ceil(block.block_len.into())
                .checked_mul(block.block_bytes.into()),
            // the scale is an F32
            Self::PerTokenHead(_) => heads.checked_mul(dim.checked_add(4)?),
            Self::Nvfp4 => heads.checked_mul(dim.div_ceil(2).checked_add(dim.div_ceil(16))?),
            Self::DsMla => Some(DS_MLA),
        }
    }

    /// Whether the elements of a token fill whole blocks, without which llama.cpp refuses the type.
    pub(super) fn divides(self, heads: u64, dim: u64) -> bool {
        match self {
            Self::Block(block) => heads
                .checked_mul(dim)
                .is_some_and(|n| n.is_multiple_of(block.block_len.into())),
            _ => true,
        }
    }
}

/// Elements that share a byte.
fn elements_per_byte(dtype: Dtype) -> u64 {
    let bits = dtype.bits();
    // eight of any width fill whole bytes
    if bits >= 8 { 1 } else { 8 }
}

impl fmt::Display for CacheType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Plain(dtype) => dtype.name(),
            Self::Block(block) => block.name,
            Self::PerTokenHead(Dtype::I8) => "int8_per_token_head",
            Self::PerTokenHead(_) => "fp8_per_token_head",
            Self::Nvfp4 => "nvfp4",
            Self::DsMla => "fp8_ds_mla",
        })
    }
}

impl FromStr for CacheType {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        // dtypes are written in small letters, block types of ggml in capitals; both are accepted
        let lower = name.to_ascii_lowercase();
        let upper = name.to_ascii_uppercase();
        Ok(match &*lower {
            "f32" | "float32" => Self::Plain(Dtype::F32),
            "f16" | "float16" => Self::Plain(Dtype::F16),
            "bf16" | "bfloat16" => Self::Plain(Dtype::BF16),
            "fp8" | "fp8_e4m3" | "f8_e4m3" => Self::Plain(Dtype::F8_E4M3),
            "fp8_e5m2" | "f8_e5m2" => Self::Plain(Dtype::F8_E5M2),
            "int8" | "i8" => Self::Plain(Dtype::I8),
            "int8_per_token_head" => Self::PerTokenHead(Dtype::I8),
            "fp8_per_token_head" => Self::PerTokenHead(Dtype::F8_E4M3),
            "nvfp4" => Self::Nvfp4,
            "fp8_ds_mla" => Self::DsMla,
            _ => Self::Block(BlockFormat::from_name(&upper).ok_or_else(|| {
                Error::invalid_argument(format!(
                    "{} is no type of a cache; f32, f16, bf16, fp8, int8, a block type of ggml such as q8_0, \
                     fp8_per_token_head, int8_per_token_head, nvfp4 and fp8_ds_mla are",
                    quote(name)
                ))
            })?),
        })
    }
}
