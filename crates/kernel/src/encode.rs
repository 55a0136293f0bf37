//! Encoding rows of F32 to ggml's block types, byte for byte as `ggml_quantize_chunk` of llama.cpp does on x86-64.
//!
//! # Exactness
//!
//! The reference is `quantize_*` and `quantize_row_*_ref` of `ggml-quants.c`. Each product, sum and comparison is rounded to
//! F32 on its own, in the reference's order; there is no fused multiplication and addition. A block depends on nothing but
//! its elements and their importance, except that the weights of Q4_0 to Q5_1 depend on the mean square of the row.
//!
//! # Width
//!
//! **One block a lane**: 16 blocks are transposed, so that vector `i` holds element `i` of each. Then a search is written
//! as for one block, sums in order, branches as selections, and all instruction sets give the same bytes. The encoded bytes
//! are columns as well, [`EncodedColumns`], which are written back to blocks at the end.
//!
//! One type a file; the searches that types share are `symmetric.rs` (`make_qx_quants`, `make_q3_quants`), `affine.rs`
//! (`make_qkx2_quants`, `make_qkx3_quants`) and `positive.rs` (`make_qp_quants`); for the grids of the IQ types `lattice.rs`,
//! `magnitudes.rs` (IQ2, IQ3) and `ternary.rs` (IQ1).

#![allow(
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    clippy::needless_range_loop,
    reason = "codes and indices are small, and lanes, columns and elements are numbered in step"
)]

mod affine;
mod iq1_m;
mod iq1_s;
mod iq2_s;
mod iq2_xs;
mod iq2_xxs;
mod iq3_s;
mod iq3_xxs;
mod iq4;
mod k_affine;
mod lanes;
mod lattice;
mod magnitudes;
mod mxfp4;
mod nvfp4;
mod positive;
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
mod symmetric;
mod ternary;
mod tq1_0;
mod tq2_0;

use crate::block_format::{BlockFormat, Importance};
use crate::error::{Error, Result};
use crate::isa::{Isa, Vectorised, run_vectorised, vector_isas};
use crate::simd::Simd;

use lanes::{EncodedColumns, Lanes, MAX_BYTES, MAX_LEN, mean_squares_of_rows};

/// Encodes one block a lane.
pub(crate) trait BlockEncoder {
    /// Elements of a block.
    const LEN: usize;
    /// Bytes of a block.
    const BYTES: usize;
    /// Whether weights depend on the mean square of the row.
    const NEEDS_ROW: bool = false;

    /// Encodes 16 blocks. All that it calls is `#[inline(always)]`.
    fn encode<S: Simd>(simd: S, blocks: &Lanes<'_, S>, out: &mut EncodedColumns);
}

/// The encoder of a type: rows in, bytes out, and the first block that is refused.
type Encode = fn(Isa, &Rows<'_>, &mut [u8]) -> Result<(), RefusedBlock>;

/// The encoders by ggml's name of the type.
static ENCODERS: &[(&str, Encode)] = &[
    ("Q4_0", encode_rows::<q4_0::SymmetricQ4>),
    ("Q4_1", encode_rows::<q4_1::AffineQ4>),
    ("Q5_0", encode_rows::<q5_0::SymmetricQ5>),
    ("Q5_1", encode_rows::<q5_1::AffineQ5>),
    ("Q8_0", encode_rows::<q8_0::Q8_0>),
    ("Q2_K", encode_rows::<q2_k::Q2K>),
    ("Q3_K", encode_rows::<q3_k::Q3K>),
    ("Q4_K", encode_rows::<q4_k::Q4K>),
    ("Q5_K", encode_rows::<q5_k::Q5K>),
    ("Q6_K", encode_rows::<q6_k::Q6K>),
    ("IQ2_XXS", encode_rows::<iq2_xxs::Iq2Xxs>),
    ("IQ2_XS", encode_rows::<iq2_xs::Iq2Xs>),
    ("IQ3_XXS", encode_rows::<iq3_xxs::Iq3Xxs>),
    ("IQ1_S", encode_rows::<iq1_s::Iq1S>),
    ("IQ3_S", encode_rows::<iq3_s::Iq3S>),
    ("IQ2_S", encode_rows::<iq2_s::Iq2S>),
    ("IQ1_M", encode_rows::<iq1_m::Iq1M>),
    ("IQ4_NL", encode_rows::<iq4::Iq4Nl>),
    ("IQ4_XS", encode_rows::<iq4::Iq4Xs>),
    ("TQ1_0", encode_rows::<tq1_0::Tq1_0>),
    ("TQ2_0", encode_rows::<tq2_0::Tq2_0>),
    ("MXFP4", encode_rows::<mxfp4::Mxfp4>),
    ("NVFP4", encode_rows::<nvfp4::Nvfp4>),
    ("Q1_0", encode_rows::<q1_0::Q1_0>),
    ("Q2_0", encode_rows::<q2_0::Q2_0>),
];

/// The input: whole rows, and the importance of each column.
struct Rows<'r> {
    elements: &'r [f32],
    len: usize,
    importance: Option<&'r [f32]>,
}

/// A block that cannot be encoded.
struct RefusedBlock {
    block: usize,
    why: &'static str,
}

/// Encodes whole rows as blocks of `format`, byte for byte as llama.cpp's quantiser does on x86-64.
///
/// `rows` holds `n` rows of `row_len` elements, one after the other. `importance` holds a weight for each column, `row_len`
/// of them, as an importance matrix has them; types that make no use of it ([`BlockFormat::importance`]) ignore it. `out`
/// receives `n * row_len / format.block_len * format.block_bytes` bytes. Rows do not depend on each other, so that threads
/// can encode parts of a tensor.
///
/// F16 and BF16 are written by [`cast()`](crate::cast()).
///
/// Source of the formulas: `ggml_quantize_chunk` in `ggml.c`, `quantize_*` in `ggml-quants.c` of llama.cpp.
///
/// # Errors
/// [`Error::Unsupported`] if the type cannot be encoded. [`Error::Mismatch`] if `row_len` is not a multiple of
/// `format.block_len`, an incomplete row or another length of `importance` or `out` is given, or the type needs an
/// importance and has none. [`Error::Unencodable`] if an element or an importance is NaN or infinite, or a scale exceeds what
/// the type stores, as values beyond F16's range do: what was written to `out` is then unspecified.
///
/// # Examples
/// ```
/// use anamnesis_kernel::{BlockFormat, Dtype, dequantize, quantize};
///
/// let q8_0 = BlockFormat::from_name("Q8_0").unwrap();
/// let row: Vec<f32> = (0..64).map(|x| x as f32).collect();
/// let mut blocks = [0; 2 * 34];
/// quantize(q8_0, &row, 64, None, &mut blocks)?;
///
/// let mut decoded = [0; 64 * 4];
/// dequantize(q8_0, &blocks, Dtype::F32, &mut decoded)?;
/// let last = f32::from_le_bytes(*decoded.last_chunk().unwrap());
/// assert!((last - 63.0).abs() < 0.1);
/// # Ok::<(), anamnesis_kernel::Error>(())
/// ```
pub fn quantize(
    format: &BlockFormat,
    rows: &[f32],
    row_len: usize,
    importance: Option<&[f32]>,
    out: &mut [u8],
) -> Result<()> {
    let best = vector_isas()
        .next()
        .expect("the baseline is always supported");
    run(best, format, rows, row_len, importance, out)
}

/// The instruction sets with which this machine can encode, fastest first.
pub fn encoder_builds() -> Vec<&'static str> {
    vector_isas().map(Isa::name).collect()
}

/// Like [`quantize`], with the build for a given instruction set (one of [`encoder_builds`]): for tests and measurements.
///
/// # Errors
/// The errors of [`quantize`], and [`Error::Mismatch`] if this machine cannot run such a build.
pub fn quantize_with(
    isa: &str,
    format: &BlockFormat,
    rows: &[f32],
    row_len: usize,
    importance: Option<&[f32]>,
    out: &mut [u8],
) -> Result<()> {
    let missing = || Error::Mismatch(format!("this machine cannot run a build for {isa}"));
    let isa = vector_isas().find(|found| found.name() == isa);
    run(
        isa.ok_or_else(missing)?,
        format,
        rows,
        row_len,
        importance,
        out,
    )
}

fn run(
    isa: Isa,
    format: &BlockFormat,
    rows: &[f32],
    row_len: usize,
    importance: Option<&[f32]>,
    out: &mut [u8],
) -> Result<()> {
    let missing = || Error::Unsupported(format!("{} blocks cannot be encoded", format.name));
    let (_, encode) = ENCODERS
        .iter()
        .find(|row| row.0 == format.name)
        .ok_or_else(missing)?;
    let name = format.name;
    let mismatch = |text: String| Err(Error::Mismatch(text));
    let (len, bytes) = (format.block_len as usize, format.block_bytes as usize);
    if row_len == 0 || !row_len.is_multiple_of(len) {
        return mismatch(format!(
            "a row of {row_len} elements is not a whole number of {name} blocks of {len}"
        ));
    }
    if !rows.len().is_multiple_of(row_len)
        || Some(out.len()) != (rows.len() / len).checked_mul(bytes)
    {
        return mismatch(format!(
            "{} elements in rows of {row_len} do not encode to {} bytes of {name} (blocks of {len} elements and {bytes} bytes)",
            rows.len(),
            out.len()
        ));
    }
    let importance = match (format.importance, importance) {
        (None | Some(Importance::Unused), _) => None,
        (Some(Importance::Required), None) => {
            return mismatch(format!(
                "{name} is encoded only with the importance of each column"
            ));
        }
        (_, importance) => importance,
    };
    if let Some(found) = importance {
        if found.len() != row_len {
            return mismatch(format!(
                "the importance has {} numbers for rows of {row_len} elements",
                found.len()
            ));
        }
        if let Some(column) = found.iter().position(|x| !x.is_finite()) {
            return Err(Error::Unencodable(format!(
                "the importance of column {column} is {}",
                found[column]
            )));
        }
    }
    let rows = Rows {
        elements: rows,
        len: row_len,
        importance,
    };
    encode(isa, &rows, out).map_err(|RefusedBlock { block, why }| {
        let column = block * len % row_len;
        Error::Unencodable(format!(
            "row {}, elements {column} to {}: {why} as {name}",
            block * len / row_len,
            column + len - 1,
        ))
    })
}

fn encode_rows<E: BlockEncoder>(
    isa: Isa,
    rows: &Rows<'_>,
    out: &mut [u8],
) -> Result<(), RefusedBlock> {
    let squares = if E::NEEDS_ROW && rows.importance.is_some() {
        mean_squares_of_rows(rows.elements, rows.len)
    } else {
        Vec::new()
    };
    let (len, per_row) = (16 * E::LEN, rows.len / E::LEN);
    for (batch, (elements, out)) in rows
        .elements
        .chunks(len)
        .zip(out.chunks_mut(16 * E::BYTES))
        .enumerate()
    {
        let first = 16 * batch;
        if !all_finite(elements) {
            let bad = |block: &[f32]| !all_finite(block);
            let block = elements.chunks(E::LEN).position(bad).unwrap_or_default();
            return Err(RefusedBlock {
                block: first + block,
                why: "an element is NaN or infinite, which cannot be encoded",
            });
        }
        // the last batch repeats its last block
        let count = elements.len() / E::LEN;
        let mut starts = [(0, 0); 16];
        let mut row_squares = [0.0; 16];
        for (lane, (start, square)) in starts.iter_mut().zip(&mut row_squares).enumerate() {
            let block = lane.min(count - 1);
            *start = (block * E::LEN, (first + block) % per_row * E::LEN);
            if let Some(found) = squares.get((first + block) / per_row) {
                *square = *found;
            }
        }
        let refused = run_vectorised(
            isa,
            Batch::<E> {
                elements,
                importance: rows.importance,
                starts,
                row_squares,
                out,
                encoder: std::marker::PhantomData,
            },
        );
        if refused != 0 {
            return Err(RefusedBlock {
                block: first + (refused.trailing_zeros() as usize).min(count - 1),
                why: "the values exceed what its scales hold, or need scales that are no numbers, so they cannot be encoded",
            });
        }
    }
    Ok(())
}

/// Whether no element is NaN or infinite.
fn all_finite(elements: &[f32]) -> bool {
    let mut special = false;
    for x in elements {
        special |= x.to_bits() & 0x7f80_0000 == 0x7f80_0000;
    }
    !special
}

/// Up to 16 blocks.
struct Batch<'b, E> {
    elements: &'b [f32],
    importance: Option<&'b [f32]>,
    /// For each lane, the first element of its block and its column.
    starts: [(usize, usize); 16],
    row_squares: [f32; 16],
    out: &'b mut [u8],
    encoder: std::marker::PhantomData<E>,
}

impl<E: BlockEncoder> Vectorised for Batch<'_, E> {
    /// The lanes that are refused.
    type Output = u16;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> u16 {
        let (mut x, mut weights) = ([simd.splat(0.0); MAX_LEN], [simd.splat(0.0); MAX_LEN]);
        let mut at = [0; 16];
        for (at, start) in at.iter_mut().zip(&self.starts) {
            *at = start.0;
        }
        lanes::transpose(simd, self.elements, at, &mut x[..E::LEN]);
        if let Some(importance) = self.importance {
            for (at, start) in at.iter_mut().zip(&self.starts) {
                *at = start.1;
            }
            lanes::transpose(simd, importance, at, &mut weights[..E::LEN]);
        }
        let blocks = Lanes {
            x: &x[..E::LEN],
            importance: self.importance.is_some().then_some(&weights[..E::LEN]),
            row_square: simd.load_f32(&self.row_squares),
            count: self.out.len() / E::BYTES,
        };
        let mut columns = EncodedColumns {
            bytes: [[0; 16]; MAX_BYTES],
            refused: 0,
        };
        E::encode(simd, &blocks, &mut columns);
        for (lane, out) in self.out.chunks_exact_mut(E::BYTES).enumerate() {
            for (out, column) in out.iter_mut().zip(&columns.bytes) {
                *out = column[lane];
            }
        }
        columns.refused
    }
}
