//! Kernels: blocks of codes, turned into elements.
//!
//! Each ggml block type has one body, generic over the output element, in its own file under `block/`; the codes
//! of other quantisation schemes are made into elements row by row ([`rows`]) or, where a matrix is stored the
//! other way round, column by column ([`columns`]). `kernel!` compiles a body once per instruction set; the
//! fastest that the machine has is chosen at run time. All builds give the same bits: arithmetic is F32 in the
//! reference's order of operations, Rust never contracts it, and one rounding to nearest even follows.
//!
//! A kernel does no I/O and allocates nothing. The crate is one of its own so that what uses it compiles without
//! compiling it again.

#![allow(clippy::cast_possible_truncation)] // codes are cut to their bits, on purpose and everywhere

mod batch;
mod block;
mod block_format;
mod cast;
mod codebook;
mod columns;
mod dtype;
mod element;
mod error;
mod grid;
mod half;
mod isa;
mod lanes;
mod rows;
mod stream;
mod tables;
mod unpack;
mod value;

pub use block_format::{BlockFormat, describe_foreign};
pub use columns::{AWQ, Codes as ColumnCodes, Columns, Groups, Width, eight_codes, packed_code};
pub use dtype::Dtype;
pub use error::{Error, Result};
pub use half::{from_bf16, from_f16};
pub use rows::{Form, Rows};
pub use stream::{stream, stream_made};
pub use unpack::{Packing, code};
pub use value::{E2M1, Value, e8m0, values};

use element::Element;
use isa::{Kernel, each, kernel};
use lanes::Lanes;

/// Turns blocks into elements of `dtype` (`F32`, `F16` or `BF16`), little endian, in order.
///
/// # Errors
/// If `dtype` is another, the type is none of ggml's, the blocks are not whole, or `out` is not as long as they need.
///
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
    check(format, blocks, dtype, out)?;
    kernel.best().run(dtype, &(), &[blocks], out)
}

/// The instruction sets that this machine can run a type's kernel with, fastest first.
///
/// # Errors
/// As [`dequantize`] for a type without a kernel.
pub fn builds(format: &BlockFormat) -> Result<Vec<&'static str>> {
    Ok(kernel_of(format)?
        .usable()
        .map(|build| build.isa.name())
        .collect())
}

/// As [`dequantize`], with the build for this instruction set: for tests and measurements.
///
/// # Errors
/// As [`dequantize`], and if this machine has no such build.
pub fn dequantize_with(
    isa: &str,
    format: &BlockFormat,
    blocks: &[u8],
    dtype: Dtype,
    out: &mut [u8],
) -> Result<()> {
    let kernel = kernel_of(format)?;
    check(format, blocks, dtype, out)?;
    let build = kernel.usable().find(|build| build.isa.name() == isa);
    build
        .ok_or_else(|| Error::Misfit(format!("no build for {isa} on this machine")))?
        .run(dtype, &(), &[blocks], out)
}

/// Whether [`cast`] knows these elements: F64, F32, F16 and BF16.
pub fn cast_from(from: Dtype) -> bool {
    cast::kernel_from(from).is_some()
}

/// Casts plain elements to F32, F16 or BF16: through F32, with one rounding to nearest even.
pub fn cast(from: Dtype, bytes: &[u8], to: Dtype, out: &mut [u8]) -> Result<()> {
    let kernel = cast::kernel_from(from)
        .ok_or_else(|| Error::Unsupported(format!("{from} is not cast to {to}")))?;
    if bytes.len() as u64 * to.bits() != out.len() as u64 * from.bits() {
        return Err(Error::Misfit(format!(
            "{} bytes of {from} and {} of {to} do not fit",
            bytes.len(),
            out.len()
        )));
    }
    kernel.best().run(to, &(), &[bytes], out)
}

/// Makes rows of codes into elements: see [`Rows`].
pub fn rows(
    geometry: &Rows,
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

/// Makes columns of a stored matrix into rows of elements: see [`Columns`].
pub fn columns(geometry: &Columns, codes: &[u8], dtype: Dtype, out: &mut [u8]) -> Result<()> {
    columns::KERNEL.best().run(dtype, geometry, &[codes], out)
}

fn kernel_of(format: &BlockFormat) -> Result<&'static Kernel> {
    let row = block::KERNELS.iter().find(|(name, _)| *name == format.name);
    let missing = || Error::Unsupported(format!("{} blocks have no kernel", format.name));
    row.map(|(_, kernel)| *kernel).ok_or_else(missing)
}

fn check(format: &BlockFormat, blocks: &[u8], dtype: Dtype, out: &[u8]) -> Result<()> {
    let whole = blocks.len().is_multiple_of(format.block_bytes as usize);
    let elements = blocks.len() / format.block_bytes as usize * format.block_len as usize;
    let bytes = dtype.item_bytes().unwrap_or_default();
    if !whole || (elements as u64).checked_mul(bytes) != Some(out.len() as u64) {
        return Err(Error::Misfit(format!(
            "{} bytes of {} and {} bytes for {dtype} do not fit each other",
            blocks.len(),
            format.name,
            out.len()
        )));
    }
    Ok(())
}
