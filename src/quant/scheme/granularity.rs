//! The granularity of scales, per tensor, channel, group or block, derived from the shapes of weight and scales.

use crate::base::error::{Error, Result};
use crate::base::kernel::Dtype;
use crate::plan::decode::Factors;
use crate::read::catalog::TensorInfo;

use super::context::{Context, not_known, plain};

/// A shape as a stack of matrices: `(rows of all matrices, columns, rows of one matrix)`.
pub(super) fn stack(shape: &[u64]) -> (u64, u64, u64) {
    let cols = shape.last().copied().unwrap_or(1);
    let outer = &shape[..shape.len().saturating_sub(1)];
    // next to a dimension of 0, the product of the others may overflow
    let rows = crate::read::catalog::elements(outer).unwrap_or(0);
    let matrix = if shape.len() >= 2 {
        shape[shape.len() - 2]
    } else {
        rows
    };
    (rows, cols, matrix)
}

/// Like [`stack`], for elements whose rows have no meaning (one scale for all): rows that are short enough for tiles.
pub(super) fn flat(elements: u64) -> (u64, u64, u64) {
    let cols = 1 << elements.trailing_zeros().min(12);
    let (rows, cols) = if cols < 64 && elements < 1 << 24 {
        (1, elements.max(1))
    } else {
        (elements / cols, cols)
    };
    let rows = if elements == 0 { 0 } else { rows };
    (rows, cols, rows.max(1))
}

/// The granularity of the scales (or zero points) in tensor `scale` for a weight of shape `weight`: one for all, per channel,
/// per group, or per block with smaller blocks at the edges. The sides of a block follow from the shapes. Where several
/// sizes fit, the configured `block` decides, else the power of two is taken and noted.
///
/// Scales in U8 are read as E8M0.
pub(super) fn factors(
    cx: &Context<'_>,
    part: usize,
    scale: usize,
    weight: &[u64],
    block: Option<(u64, u64)>,
) -> Result<Factors> {
    let info = cx.info(scale);
    let dtype = scale_dtype(info)?;
    let (rows, cols, matrix) = stack(weight);
    // ModelOpt's blocks of `FP8_PB_WO`, whose sides it keeps as dimensions of 1
    let (squeezed, block) = match info.shape[..] {
        [down, 1, across, 1] if weight.len() == 2 => {
            (Some([down, across]), block.or(Some((128, 128))))
        }
        _ => (None, block),
    };
    let shape = squeezed
        .as_ref()
        .map_or(&info.shape[..], |shape| &shape[..]);
    let mismatch = || {
        let what = format!(
            "{} {:?} does not scale a weight of {:?}",
            info.encoding, shape, weight
        );
        not_known(info, what)
    };
    // before the shapes are compared: writers store one scale as `[]`, `[1]` or `[1, 1]`
    if info.elements() == 1 {
        return Ok(Factors::one(part, dtype));
    }
    if rows == 0 || cols == 0 || info.elements() == 0 {
        return Err(mismatch());
    }
    // a vector is one per output channel in every scheme that stores vectors
    if shape.len() == 1 && weight.len() == 2 && shape[0] == rows {
        return Ok(Factors::per_group(part, dtype, cols));
    }
    // musubi-tuner: blocks along the columns, with a dimension of 1 behind
    if let (&[high, blocks, 1], &[_, _]) = (shape, weight)
        && high == rows
        && cols.is_multiple_of(blocks)
    {
        return Ok(Factors::per_group(part, dtype, cols / blocks));
    }
    // ModelOpt: one per row of each matrix of a stack, or, if that does not fit, one per column
    if shape.len() == 2 && weight.len() == 3 && shape[0] == weight[0] && shape[1] > 1 {
        // both readings have the same shape, and the wrong one would scale every element wrongly
        if matrix == cols {
            let what = "scales of square matrices may be per row or per column; ModelOpt refuses to write this case";
            return Err(not_known(info, what));
        }
        if shape[1] == matrix {
            return Ok(Factors::per_group(part, dtype, cols));
        }
        if shape[1] == cols {
            return Ok(Factors::per_block(part, dtype, matrix, 1));
        }
    }
    // one per matrix of a stack
    if weight.len() > 2 && info.elements() == rows / matrix && shape[0] == rows / matrix {
        return Ok(Factors::per_block(part, dtype, matrix, cols));
    }
    if shape.len() != weight.len()
        || shape.len() < 2
        || shape[..shape.len() - 2] != weight[..weight.len() - 2]
    {
        return Err(mismatch());
    }
    let (across, along) = (shape[shape.len() - 2], shape[shape.len() - 1]);
    // a column of scales that was stored as a row
    if across == 1 && along == matrix && matrix > 1 && block.is_none_or(|(high, _)| high < matrix) {
        let what = format!(
            "{} {shape:?} for a weight of {weight:?}: one scale for each row, or one for blocks of columns",
            info.encoding
        );
        return Err(not_known(info, what));
    }
    let side = |len, count, configured| side(len, count, configured).ok_or_else(mismatch);
    let high = side(matrix, across, block.map(|b| b.0))?;
    let wide = side(cols, along, block.map(|b| b.1))?;
    if !high.sure || !wide.sure {
        cx.note(format!(
            "blocks of {} by {}, from shapes such as {:?} and {:?}: other sizes fit too, \
             and the configuration names none",
            high.len, wide.len, weight, shape
        ));
    }
    Ok(Factors::per_block(part, dtype, high.len, wide.len))
}

/// Whether factors are spread over a weight of this shape in blocks of this size.
pub(super) fn are_of_blocks(factors: &Factors, shape: &[u64], (high, wide): (u64, u64)) -> bool {
    grid(shape, factors.rows, factors.cols) == grid(shape, high, wide)
}

/// Blocks of this size, down and across a matrix of a weight.
pub(super) fn grid(shape: &[u64], high: u64, wide: u64) -> (u64, u64) {
    let (_, cols, matrix) = stack(shape);
    (matrix.div_ceil(high.max(1)), cols.div_ceil(wide.max(1)))
}

/// Whether there is one factor for all, or one for each row.
pub(super) fn are_of_rows(factors: &Factors, shape: &[u64]) -> bool {
    let (_, cols, _) = stack(shape);
    factors.is_one() || (factors.rows == 1 && factors.cols >= cols)
}

/// The error for scales of another shape than their writer has.
pub(super) fn other_scales(cx: &Context<'_>, scale: usize, shape: &[u64], what: &str) -> Error {
    let found = cx.info(scale);
    let shown = format!(
        "{} {:?} instead of {what} of {shape:?}",
        found.encoding,
        found.shape.as_slice()
    );
    not_known(found, shown)
}

/// Zero points that are stored one by one, with the shape of the scales. Bytes have the sign of the codes: bytes of the other sign
/// may be the same numbers plus half of the range.
pub(super) fn zeros_like(
    cx: &Context<'_>,
    part: usize,
    zero: usize,
    scale: usize,
    scales: &Factors,
    is_signed: bool,
) -> Result<Factors> {
    let (info, like) = (cx.info(zero), cx.info(scale));
    let single = info.elements() == 1 && like.elements() == 1;
    let dtype = plain(info).filter(|d| d.item_bytes().is_some_and(|bytes| bytes <= 8));
    match dtype.filter(|d| zero_dtype(*d, is_signed) && (single || info.shape == like.shape)) {
        Some(dtype) => Ok(Factors {
            part,
            dtype,
            ..scales.clone()
        }),
        None => {
            let what = format!(
                "{} {:?} instead of zero points of the scales' shape {:?}",
                info.encoding, info.shape, like.shape
            );
            Err(not_known(info, what))
        }
    }
}

pub(super) fn zero_dtype(dtype: Dtype, is_signed: bool) -> bool {
    use Dtype::{BF16, F16, F32, I8, I32, I64, U8};
    match dtype {
        I8 => is_signed,
        U8 => !is_signed,
        I32 | I64 | F32 | F16 | BF16 => true,
        _ => false,
    }
}

/// Refuses shapes with a dimension of 0 or too many elements: quantised weights are not empty, and decoders divide by
/// these sizes.
pub(super) fn filled(info: &TensorInfo, shape: &[u64]) -> Result<()> {
    if shape.contains(&0) || crate::read::catalog::elements(shape).is_none() {
        return Err(not_known(
            info,
            format!("invalid shape {shape:?} of a quantised weight"),
        ));
    }
    Ok(())
}

/// The length of a block along one dimension.
struct BlockSide {
    len: u64,
    /// Whether no other length fits, or the configuration names this one.
    sure: bool,
}

/// The length of a block if `count` blocks cover `len` elements.
fn side(len: u64, count: u64, configured: Option<u64>) -> Option<BlockSide> {
    if count == 0 || count > len {
        return None;
    }
    // the lengths b with ceil(len / b) == count
    let (least, most) = (
        len.div_ceil(count),
        if count == 1 {
            len
        } else {
            (len - 1) / (count - 1)
        },
    );
    if least > most {
        return None;
    }
    // one block, or one element per block, whatever was configured
    if count == 1 || count == len {
        return Some(BlockSide {
            len: len.div_ceil(count),
            sure: true,
        });
    }
    if let Some(b) = configured.filter(|b| (least..=most).contains(b)) {
        return Some(BlockSide { len: b, sure: true });
    }
    // block sizes of all known writers are powers of two; DeepSeek's `kv_a_proj` has 576 rows in 5 blocks of 128
    let power = least.next_power_of_two();
    let sure = least == most || (len.is_multiple_of(count) && least.is_power_of_two());
    Some(BlockSide {
        len: if power <= most { power } else { least },
        sure,
    })
}

/// The dtype of scales; U8 is read as E8M0.
pub(super) fn scale_dtype(info: &TensorInfo) -> Result<Dtype> {
    match plain(info) {
        // older versions of safetensors had no E8M0, so that MX exponents are often stored as bytes
        Some(Dtype::U8) => Ok(Dtype::F8_E8M0),
        Some(
            d @ (Dtype::F32
            | Dtype::F16
            | Dtype::BF16
            | Dtype::F64
            | Dtype::F8_E8M0
            | Dtype::F8_E4M3
            | Dtype::F8_E5M2),
        ) => Ok(d),
        _ => Err(not_known(
            info,
            format!("dtype {} instead of a dtype of scales", info.encoding),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_length_follows_from_the_block_count() {
        let found = |len, count, configured| side(len, count, configured).map(|s| (s.len, s.sure));
        assert_eq!(found(256, 2, None), Some((128, true)));
        assert_eq!(found(576, 5, None), Some((128, false))); // DeepSeek's kv_a_proj
        assert_eq!(found(576, 5, Some(128)), Some((128, true)));
        assert_eq!(found(576, 5, Some(64)), Some((128, false))); // a configured size that does not fit
        assert_eq!(found(100, 1, None), Some((100, true)));
        assert_eq!(found(100, 100, None), Some((1, true)));
        assert_eq!(found(96, 3, None), Some((32, true)));
        assert_eq!(found(10, 11, None), None);
        assert_eq!(found(10, 0, None), None);
        assert_eq!(found(10, 7, None), None); // ceil(10/b) is never 7
    }
}
