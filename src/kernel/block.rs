//! The block types: one file each, one line each in [`KERNELS`].
//!
//! Source of all of them: `dequantize_row_*` in `ggml-quants.c`, block layouts in `ggml-common.h`.

mod q4_0;
mod q8_0;

mod iq1_m;
mod iq1_s;
mod iq2_s;
mod iq2_xs;
mod iq2_xxs;
mod iq3_s;
mod iq3_xxs;

use super::Kernel;

/// Kernels by ggml's name of the block type.
pub(crate) static KERNELS: &[(&str, &Kernel)] = &[
    ("Q4_0", &q4_0::KERNEL),
    ("Q8_0", &q8_0::KERNEL),
    ("IQ1_S", &iq1_s::KERNEL),
    ("IQ1_M", &iq1_m::KERNEL),
    ("IQ2_XXS", &iq2_xxs::KERNEL),
    ("IQ2_XS", &iq2_xs::KERNEL),
    ("IQ2_S", &iq2_s::KERNEL),
    ("IQ3_XXS", &iq3_xxs::KERNEL),
    ("IQ3_S", &iq3_s::KERNEL),
];
