//! Dequantisation kernels: packed codes in, F32, F16 or BF16 out, bit-exact.
//!
//! | input | entry point | source of the format |
//! |---|---|---|
//! | blocks of ggml's types (`Q4_K`, `IQ2_XS`, `MXFP4`, …) | [`dequantize`] | `ggml-common.h`, `dequantize_row_*` in `ggml-quants.c` |
//! | rows of codes with a scale per group (FP8, NF4, HQQ, MLX, …) | [`dequantize_rows`] | each scheme's reference code |
//! | matrices stored transposed, `[in, out]` (GPTQ, AWQ, EETQ) | [`dequantize_columns`] | GPTQModel, AutoAWQ, EETQ |
//! | plain F64, F32, F16, BF16 | [`cast()`] | PyTorch's rounding |
//! | rows of F32, to blocks of ggml's types | [`quantize`] | `ggml_quantize_chunk` in `ggml.c`, `quantize_*` in `ggml-quants.c` |
//!
//! [`count_floats`], [`count_integers`], [`sum_f32`] and [`count_and_sum_f32`] count and sum what was decoded.
//!
//! Input and output are byte slices, little-endian whatever the machine; neither needs alignment. A kernel does no I/O and
//! allocates nothing, except that [`dequantize_columns`] keeps a list of group boundaries.
//!
//! # Exactness
//!
//! Every build gives the same bits. Arithmetic is F32 in the reference's order of operations; Rust never contracts a
//! multiplication and an addition; one rounding to nearest even follows. NaNs are canonical in F16 and BF16.
//!
//! # How it works
//!
//! A kernel has one generic body, written in the operations of `simd.rs`. `kernel!` (`isa.rs`) compiles it once per
//! instruction set (AVX-512 with and without BF16, AVX2, NEON, baseline), and the best one that the machine supports is
//! chosen at run time. The crate's README describes the design and how to add a block type.
//!
//! The crate is separate from the library so that a change of the library does not recompile the kernels.

#![allow(clippy::cast_possible_truncation)] // unpacking truncates to a code's bits throughout

mod batch;
mod block;
mod block_format;
mod cast;
mod codebook;
mod columns;
mod dtype;
mod element;
mod encode;
mod error;
mod field;
mod grid;
mod half;
mod isa;
mod non_temporal;
mod numbers;
mod rows;
mod simd;
mod tables;
mod unpack;
mod unroll;
mod value;

pub use block_format::{BlockFormat, Importance, describe_foreign};
pub use columns::{
    AWQ_ORDER, CodeWidth, ColumnCodes, ColumnGeometry, ColumnGroups, column_code, unpack_8_nibbles,
};
pub use dtype::Dtype;
pub use encode::{encoder_builds, quantize, quantize_with};
pub use error::{Error, Result};
pub use half::{from_bf16, from_f16};
pub use non_temporal::{copy_non_temporal, fill_non_temporal};
pub use numbers::{
    FloatBits, NumberCounts, NumberSums, count_and_sum_f32, count_floats, count_integers, sum_f32,
};
pub use rows::{Formula, RowGeometry};
pub use unpack::{CodePacking, row_code};
pub use value::{CodeValue, E2M1_VALUES, code_values, e8m0};

use block::mxfp4_ollama;
use element::OutputElement;
use isa::{Kernel, kernel};
use simd::{Simd, Stage};

/// Dequantises whole blocks of a ggml type to elements of `dtype` (`F32`, `F16` or `BF16`), in order.
///
/// `blocks` holds `n * format.block_bytes` bytes; `out` receives `n * format.block_len` elements.
///
/// # Errors
/// [`Error::Unsupported`] if the type has no kernel. [`Error::Mismatch`] if `dtype` is none of the three, a block is
/// incomplete, or `out` has another length than the elements need.
///
/// # Examples
/// ```
/// use anamnesis_kernel::{BlockFormat, Dtype, dequantize};
///
/// let q8_0 = BlockFormat::from_name("Q8_0").unwrap();
/// let mut block = vec![0x00, 0x3c]; // scale 1.0 as F16
/// block.extend(0..32u8); // codes
/// let mut out = [0; 64];
/// dequantize(q8_0, &block, Dtype::BF16, &mut out)?;
/// assert_eq!(out[2..4], [0x80, 0x3f]); // 1.0
/// # Ok::<(), anamnesis_kernel::Error>(())
/// ```
pub fn dequantize(format: &BlockFormat, blocks: &[u8], dtype: Dtype, out: &mut [u8]) -> Result<()> {
    let kernel = kernel_of(format)?;
    check_lengths(format, blocks, dtype, out)?;
    run_blocks(kernel.best(), format, blocks, dtype, out)
}

/// The instruction sets with which this machine can run a type's kernel, fastest first.
///
/// # Errors
/// [`Error::Unsupported`] if the type has no kernel.
pub fn builds(format: &BlockFormat) -> Result<Vec<&'static str>> {
    Ok(kernel_of(format)?
        .supported()
        .map(|build| build.isa.name())
        .collect())
}

/// Like [`dequantize`], with the build for a given instruction set (one of [`builds`]): for tests and measurements.
///
/// # Errors
/// The errors of [`dequantize`], and [`Error::Mismatch`] if this machine cannot run such a build.
pub fn dequantize_with(
    isa: &str,
    format: &BlockFormat,
    blocks: &[u8],
    dtype: Dtype,
    out: &mut [u8],
) -> Result<()> {
    let kernel = kernel_of(format)?;
    check_lengths(format, blocks, dtype, out)?;
    let build = kernel.supported().find(|build| build.isa.name() == isa);
    let missing = || Error::Mismatch(format!("this machine cannot run a build for {isa}"));
    run_blocks(build.ok_or_else(missing)?, format, blocks, dtype, out)
}

/// Decodes whole blocks, whose lengths are checked.
fn run_blocks(
    build: &isa::Build<()>,
    format: &BlockFormat,
    blocks: &[u8],
    dtype: Dtype,
    out: &mut [u8],
) -> Result<()> {
    match format.ggml_type {
        mxfp4_ollama::ID => run_rearranged(build, blocks, dtype, out),
        _ => build.run(dtype, &(), &[blocks], out),
    }
}

/// Decodes Ollama's blocks as ggml's MXFP4.
// apart, so that every other type pays for a comparison alone
#[cold]
fn run_rearranged(
    build: &isa::Build<()>,
    blocks: &[u8],
    dtype: Dtype,
    out: &mut [u8],
) -> Result<()> {
    // in pieces that stay in the first-level cache
    let mut piece = [0; 64 * mxfp4_ollama::BYTES];
    let decoded = out.len() / (blocks.len() / mxfp4_ollama::BYTES).max(1);
    for (blocks, out) in blocks
        .chunks(piece.len())
        .zip(out.chunks_mut((64 * decoded).max(1)))
    {
        let piece = &mut piece[..blocks.len()];
        mxfp4_ollama::in_ggml_order(blocks, piece);
        build.run(dtype, &(), &[piece], out)?;
    }
    Ok(())
}

/// Whether [`cast()`] reads elements of this dtype: F64, F32, F16 and BF16.
pub fn can_cast_from(from: Dtype) -> bool {
    cast::kernel_from(from).is_some()
}

/// Casts plain elements to F32, F16 or BF16: through F32, with one rounding to nearest even.
///
/// # Errors
/// [`Error::Unsupported`] unless [`can_cast_from`] `from`. [`Error::Mismatch`] if `to` is none of the three, or the lengths
/// of `bytes` and `out` are of different numbers of elements.
pub fn cast(from: Dtype, bytes: &[u8], to: Dtype, out: &mut [u8]) -> Result<()> {
    let kernel = cast::kernel_from(from)
        .ok_or_else(|| Error::Unsupported(format!("{from} cannot be cast to {to}")))?;
    if bytes.len() as u64 * to.bits() != out.len() as u64 * from.bits() {
        return Err(Error::Mismatch(format!(
            "{} bytes of {from} and {} bytes of {to} are different numbers of elements",
            bytes.len(),
            out.len()
        )));
    }
    kernel.best().run(to, &(), &[bytes], out)
}

/// Dequantises rows of codes that have a scale per group: see [`RowGeometry`] and [`Formula`].
///
/// `scales` holds [`RowGeometry::groups`] values for each row of scales, `zeros` as many or none.
///
/// # Errors
/// [`Error::Mismatch`] if `dtype` is not F32, F16 or BF16.
///
/// # Panics
/// `codes`, `scales` or `zeros` are shorter than the geometry needs.
///
/// # Examples
/// ```
/// use anamnesis_kernel::{CodePacking, CodeValue, Dtype, Formula, RowGeometry, dequantize_rows};
///
/// let geometry = RowGeometry {
///     cols: 4,
///     stride: 4,
///     packing: CodePacking::Bytes,
///     value: CodeValue::Signed,
///     formula: Formula::Scale,
///     group: 2,
///     rows_per_factor: 1,
///     rows_per_matrix: 1,
///     first: 0,
/// };
/// let mut out = [0; 16];
/// dequantize_rows(&geometry, &[1, 2, 3, 0xfc], &[0.5, 10.0], &[], Dtype::F32, &mut out)?;
/// let values: Vec<f32> = out.chunks(4).map(|x| f32::from_le_bytes(x.try_into().unwrap())).collect();
/// assert_eq!(values, [0.5, 1.0, 30.0, -40.0]);
/// # Ok::<(), anamnesis_kernel::Error>(())
/// ```
pub fn dequantize_rows(
    geometry: &RowGeometry,
    codes: &[u8],
    scales: &[f32],
    zeros: &[f32],
    dtype: Dtype,
    out: &mut [u8],
) -> Result<()> {
    let parts = [
        codes,
        bytemuck::cast_slice(scales),
        bytemuck::cast_slice(zeros),
    ];
    rows::KERNEL.best().run(dtype, geometry, &parts, out)
}

/// Dequantises columns of a stored matrix `[in, out]` to rows `[out, in]`: see [`ColumnGeometry`].
///
/// # Errors
/// [`Error::Mismatch`] if `dtype` is not F32, F16 or BF16.
///
/// # Panics
/// The scales or zero points of `geometry`, or `out`, are shorter than it says.
pub fn dequantize_columns(
    geometry: &ColumnGeometry,
    codes: &[u8],
    dtype: Dtype,
    out: &mut [u8],
) -> Result<()> {
    columns::KERNEL.best().run(dtype, geometry, &[codes], out)
}

fn kernel_of(format: &BlockFormat) -> Result<&'static Kernel> {
    // both tables have the same rows; numbers are compared faster than names
    let row = BlockFormat::all()
        .iter()
        .position(|row| row.ggml_type == format.ggml_type);
    let row = row.and_then(|row| block::KERNELS.get(row));
    let missing = || Error::Unsupported(format!("there is no kernel for {} blocks", format.name));
    row.map(|(_, kernel)| *kernel).ok_or_else(missing)
}

fn check_lengths(format: &BlockFormat, blocks: &[u8], dtype: Dtype, out: &[u8]) -> Result<()> {
    let whole = blocks.len().is_multiple_of(format.block_bytes as usize);
    let elements = blocks.len() / format.block_bytes as usize * format.block_len as usize;
    let bytes = dtype.item_bytes().unwrap_or_default();
    // checked here, so that kernels work on whole blocks: their chunks leave an incomplete rest unread
    if !whole || (elements as u64).checked_mul(bytes) != Some(out.len() as u64) {
        return Err(Error::Mismatch(format!(
            "{} bytes of {} (blocks of {} bytes and {} elements) do not decode to {} bytes of {dtype}",
            blocks.len(),
            format.name,
            format.block_bytes,
            format.block_len,
            out.len()
        )));
    }
    Ok(())
}
