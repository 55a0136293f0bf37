//! ggml's block types: one file each, one line each in [`KERNELS`].
//!
//! A block holds a fixed number of elements (32 to 256) that share a scale. Each file's header states the layout: byte
//! offsets, bit packing and the formula. The layouts are structs in ggml's `ggml-common.h` (`block_q4_K`, …), the formulas
//! functions in its `ggml-quants.c` (`dequantize_row_q4_K`, …); the arithmetic keeps their order of operations, so that the
//! results are theirs bit by bit.
//!
//! Where rounding happens: a product of an F16 (11 significant bits), a group's scale and a code is exact in F32, which
//! has 24. The widest are Q6_K's and IQ4_XS's, of 11 + 7 + 5 and 11 + 5 + 7 bits. Adding or subtracting a minimum rounds
//! (Q4_1, Q5_1, Q2_K, Q4_K, Q5_K), so does Q8_K's product, whose scale is an F32; then the output type rounds once.
//!
//! Terms: a *code* is what is stored per element, `d` the scale of a block, a *group* is a part of a block with a scale of
//! its own (`d` times a few bits), a *minimum* is subtracted (K-types) or added (Q4_1, Q5_1). "Low nibbles first" means that
//! the low nibbles of a run of bytes are the first half of their elements, the high nibbles the second half.

mod iq1_m;
mod iq1_s;
mod iq2_s;
mod iq2_xs;
mod iq2_xxs;
mod iq3_s;
mod iq3_xxs;
mod iq4_nl;
mod iq4_xs;
mod mxfp4;
pub(crate) mod mxfp4_ollama;
mod nvfp4;
mod q1_0;
mod q2_0;
mod q2_k;
mod q3_k;
mod q4_0;
mod q4_1;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;
mod q8_1;
mod q8_k;
mod tq1_0;
mod tq2_0;

use super::Kernel;

/// The kernels by ggml's name of the type, in the order of the rows of `block_format.rs`, which has the geometry.
pub(crate) static KERNELS: &[(&str, &Kernel)] = &[
    ("Q4_0", &q4_0::KERNEL),
    ("Q4_1", &q4_1::KERNEL),
    // after `mxfp4_ollama::in_ggml_order`
    ("MXFP4_OLLAMA", &mxfp4::KERNEL),
    ("Q5_0", &q5_0::KERNEL),
    ("Q5_1", &q5_1::KERNEL),
    ("Q8_0", &q8_0::KERNEL),
    ("Q8_1", &q8_1::KERNEL),
    ("Q2_K", &q2_k::KERNEL),
    ("Q3_K", &q3_k::KERNEL),
    ("Q4_K", &q4_k::KERNEL),
    ("Q5_K", &q5_k::KERNEL),
    ("Q6_K", &q6_k::KERNEL),
    ("Q8_K", &q8_k::KERNEL),
    ("IQ2_XXS", &iq2_xxs::KERNEL),
    ("IQ2_XS", &iq2_xs::KERNEL),
    ("IQ3_XXS", &iq3_xxs::KERNEL),
    ("IQ1_S", &iq1_s::KERNEL),
    ("IQ4_NL", &iq4_nl::KERNEL),
    ("IQ3_S", &iq3_s::KERNEL),
    ("IQ2_S", &iq2_s::KERNEL),
    ("IQ4_XS", &iq4_xs::KERNEL),
    ("IQ1_M", &iq1_m::KERNEL),
    ("TQ1_0", &tq1_0::KERNEL),
    ("TQ2_0", &tq2_0::KERNEL),
    ("MXFP4", &mxfp4::KERNEL),
    ("NVFP4", &nvfp4::KERNEL),
    ("Q1_0", &q1_0::KERNEL),
    ("Q2_0", &q2_0::KERNEL),
];
