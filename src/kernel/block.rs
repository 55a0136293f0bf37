//! The block types: one file each, one line each in [`KERNELS`].
//!
//! Source of all of them: `dequantize_row_*` in `ggml-quants.c`, block layouts in `ggml-common.h`.

mod q4_0;
mod q8_0;

use super::Kernel;

/// Kernels by ggml's name of the block type.
pub(crate) static KERNELS: &[(&str, &Kernel)] = &[("Q4_0", &q4_0::KERNEL), ("Q8_0", &q8_0::KERNEL)];
