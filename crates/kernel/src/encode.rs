//! Quantisation: rows of F32 to ggml's blocks, byte for byte as llama.cpp on x86-64 makes them.
//!
//! Source: `ggml-quants.c` of llama.cpp (commit 86a2835), `ggml_quantize_chunk` and the functions that it calls. Every product, sum and
//! comparison is rounded on its own, in the written order: other orders give other codes. A row is quantised on its own, as some types
//! have numbers of their whole row.

// codes become bytes as the reference casts them
#![allow(clippy::cast_sign_loss, clippy::cast_possible_wrap)]

mod direct;
mod fp4;
mod grid_search;
mod iq1;
mod iq2;
mod iq3;
mod iq4;
mod k;
mod legacy;
mod neighbours;
mod search;

use crate::block_format::BlockFormat;
use crate::error::{Error, Result};

/// Encodes one row into blocks; `false` if it has a value that the type's search cannot place.
type EncodeRow = fn(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) -> bool;

/// A type that rows are quantised to.
struct Encoder {
    name: &'static str,
    encode: EncodeRow,
    /// Whether rows cannot be quantised without importance.
    needs_importance: bool,
    /// Offsets of the block's scales of F16, which must be finite.
    scales: &'static [usize],
}

macro_rules! encoders {
    ($($name:literal $encode:path, $needs:literal, $scales:expr;)*) => {
        &[$(Encoder { name: $name, encode: $encode, needs_importance: $needs, scales: &$scales }),*]
    };
}

static ENCODERS: &[Encoder] = encoders![
    "Q1_0" direct::q1_0, false, [0];
    "Q2_0" direct::q2_0, false, [0];
    "Q4_0" legacy::q4_0, false, [0];
    "Q4_1" legacy::q4_1, false, [0, 2];
    "Q5_0" legacy::q5_0, false, [0];
    "Q5_1" legacy::q5_1, false, [0, 2];
    "Q8_0" direct::q8_0, false, [0];
    "Q2_K" k::q2_k, false, [80, 82];
    "Q3_K" k::q3_k, false, [108];
    "Q4_K" k::q4_k, false, [0, 2];
    "Q5_K" k::q5_k, false, [0, 2];
    "Q6_K" k::q6_k, false, [208];
    "IQ1_S" iq1::iq1_s, true, [0];
    "IQ1_M" iq1::iq1_m, false, [];
    "IQ2_XXS" iq2::iq2_xxs, true, [0];
    "IQ2_XS" iq2::iq2_xs, true, [0];
    "IQ2_S" iq2::iq2_s, false, [0];
    "IQ3_XXS" iq3::iq3_xxs, false, [0];
    "IQ3_S" iq3::iq3_s, false, [0];
    "IQ4_NL" iq4::iq4_nl, false, [0];
    "IQ4_XS" iq4::iq4_xs, false, [0];
    "TQ1_0" direct::tq1_0, false, [52];
    "TQ2_0" direct::tq2_0, false, [64];
    "MXFP4" fp4::mxfp4, false, [];
    "NVFP4" fp4::nvfp4, false, [];
];

impl BlockFormat {
    /// Whether [`quantize_rows`] makes this type.
    pub fn is_quantized_to(&self) -> bool {
        ENCODERS.iter().any(|encoder| encoder.name == self.name)
    }

    /// Whether [`quantize_rows`] makes this type only with importance.
    pub fn needs_importance(&self) -> bool {
        let own = ENCODERS.iter().find(|encoder| encoder.name == self.name);
        own.is_some_and(|encoder| encoder.needs_importance)
    }
}

/// Quantises rows of `width` values each to blocks of `format`.
///
/// `importance` has a weight for each column, or is `None`; types without a search ignore it. `out` receives the blocks of the rows,
/// one after another.
///
/// # Errors
/// [`Error::Unsupported`] if the type is not made, or needs importance. [`Error::Mismatch`] if rows are no whole blocks, if a length
/// is wrong, or if values are too large for the type's scales; a value that is not finite is such a value.
///
/// # Examples
///
/// ```
/// use anamnesis_kernel::{BlockFormat, Dtype, dequantize, quantize_rows};
///
/// let q8_0 = BlockFormat::from_name("Q8_0").unwrap();
/// let row: Vec<f32> = (0..32).map(|i| i as f32 * 127.0 / 31.0).collect();
/// let mut block = [0; 34];
/// quantize_rows(q8_0, &row, 32, None, &mut block)?;
/// let mut values = [0; 32 * 4];
/// dequantize(q8_0, &block, Dtype::F32, &mut values)?;
/// assert_eq!(values[31 * 4..], 127_f32.to_le_bytes());
/// # Ok::<(), anamnesis_kernel::Error>(())
/// ```
pub fn quantize_rows(
    format: &BlockFormat,
    values: &[f32],
    width: usize,
    importance: Option<&[f32]>,
    out: &mut [u8],
) -> Result<()> {
    let encoder = ENCODERS.iter().find(|encoder| encoder.name == format.name);
    let encoder = encoder
        .ok_or_else(|| Error::Unsupported(format!("nothing is quantised to {}", format.name)))?;
    let (len, bytes) = (format.block_len as usize, format.block_bytes as usize);
    if width == 0 || !width.is_multiple_of(len) || !values.len().is_multiple_of(width) {
        return Err(Error::Mismatch(format!(
            "{} values in rows of {width} are no rows of whole blocks of {len}",
            values.len()
        )));
    }
    if Some(out.len()) != (values.len() / len).checked_mul(bytes) {
        return Err(Error::Mismatch(format!(
            "{} bytes do not fit {} values of {}",
            out.len(),
            values.len(),
            format.name
        )));
    }
    match importance {
        Some(weights) if weights.len() != width => {
            return Err(Error::Mismatch(format!(
                "{} weights for rows of {width} columns",
                weights.len()
            )));
        }
        None if encoder.needs_importance => {
            let what = format!("{} needs the importance of its columns", format.name);
            return Err(Error::Unsupported(what));
        }
        _ => {}
    }
    let row_bytes = width / len * bytes;
    for (row, out) in values
        .chunks_exact(width)
        .zip(out.chunks_exact_mut(row_bytes))
    {
        // the bytes of a block that a zero scale leaves out are zero
        out.fill(0);
        let placed =
            row.iter().all(|value| value.is_finite()) && (encoder.encode)(row, importance, out);
        if !placed || !out.chunks_exact(bytes).all(|block| encoder.is_sound(block)) {
            return Err(Error::Mismatch(format!(
                "a row has values that {} has no finite scale for",
                format.name
            )));
        }
    }
    Ok(())
}

impl Encoder {
    /// Whether the scales of a block are finite.
    fn is_sound(&self, block: &[u8]) -> bool {
        let is_finite = |half: u16| half & 0x7c00 != 0x7c00;
        match self.name {
            // its four bits each in four words
            "IQ1_M" => {
                let word =
                    |i: usize| u16::from_le_bytes([block[48 + 2 * i], block[49 + 2 * i]]) >> 12;
                is_finite(word(0) | word(1) << 4 | word(2) << 8 | word(3) << 12)
            }
            // the exponent's code of no number
            "MXFP4" => block[0] != 0xff,
            "NVFP4" => block[..4].iter().all(|scale| scale & 0x7f != 0x7f),
            _ => {
                let mut scales = self.scales.iter();
                scales.all(|&at| is_finite(u16::from_le_bytes([block[at], block[at + 1]])))
            }
        }
    }
}

/// The F16 nearest to a scale, and the value that readers have for it.
fn half(scale: f32) -> ([u8; 2], f32) {
    let bytes = crate::half::f16(scale).to_le_bytes();
    (bytes, crate::half::from_f16(bytes))
}

/// The sum of squares, one after another.
fn squares(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |sum, x| sum + x * x)
}
