//! torchao's classes of 4-bit codes, each in the layout of one kernel.
//!
//! | class | codes | factors | formula |
//! |---|---|---|---|
//! | `Int4Tensor` | `[…, out, in / 2]`, two's complement | `scale`, `zero_point` `[…, groups, out]` | `q * scale + zero` |
//! | `Int4PlainInt32Tensor` (XPU) | I32 `[out, in / 8]` | the same, zero points I8 | `(q - zero) * scale` |
//! | `Int4PlainInt32Tensor` (NPU) | I32 `[out, in / 8]`, two's complement | the same, zero points floats | `(q - zero) * scale` |
//! | `Int4TilePackedTo4dTensor` | I32 `[…, out / 8, in / 16i, 32, i / 2]` | `scale_and_zero` `[…, groups, out, 2]` | `(q - 8) * scale + zero` |
//! | `Int4PreshuffledTensor` | see `preshuffled.rs` | | |
//!
//! Tiles are padded with rows and columns beyond the weight's `shape`. On ROCm they are of 16 rows, which nothing in a file
//! says; they are read in CUDA's layout, with a note in the plan.
//!
//! Sources: torchao 0.18 `quantization/quantize_/workflows/int4/*.py`, `quantization/quant_primitives.py`
//! (`_dequantize_affine_tinygemm`); MSLK's `pack_int4` and `int4_row_quantize_zp`; PyTorch's `int4mm.cu`
//! (`matrix_to_m16n8k16_Bint4_layout`) and, for XPU, its `WeightInt4PackKernel`; CANN's `aclnnConvertWeightToINT4Pack`.
//! None of it runs without its device.

use std::sync::Arc;

use serde_json::Value as Json;

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::base::kernel::{CodePacking, CodeValue, Formula};
use crate::plan::decode::{
    Codes, Composite, Factors, Grouped, PartOffset, PartView, Scales, TransposedFactors, Zeros,
};
use crate::quant::scheme::context::{Context, not_known, plain, unsupported};
use crate::quant::scheme::granularity::{filled, stack};
use crate::quant::scheme::modelopt::SIGNED_NIBBLES;
use crate::read::catalog::Shape;

use super::TorchaoWeight;
use super::flat_tensor::{FLOATS, TorchaoTensor, transposed_factors};
use super::tinygemm_tiles::TinygemmTiles;

type ClassReader = fn(&Context<'_>, &TorchaoTensor<'_>) -> Result<TorchaoWeight>;

/// The reader of this class, whose codes have this name.
pub(super) fn class(name: &str, codes: &str) -> Option<ClassReader> {
    Some(match name {
        // the class before 0.14 wrapped tiles as one of its layouts
        "AffineQuantizedTensor" if codes.ends_with("_packed_weight") => tile_packed,
        "Int4Tensor" => int4_tensor,
        "Int4PlainInt32Tensor" => plain_int32,
        "Int4TilePackedTo4dTensor" => tile_packed,
        "Int4PreshuffledTensor" => super::preshuffled::claim,
        _ => return None,
    })
}

fn int4_tensor(cx: &Context<'_>, stored: &TorchaoTensor<'_>) -> Result<TorchaoWeight> {
    if !matches!(plain(stored.info), Some(Dtype::I8 | Dtype::U8)) {
        return Err(stored.wrong());
    }
    let value = CodeValue::Table(Box::new(SIGNED_NIBBLES));
    rows(cx, stored, 2, value, Formula::ScaleOffset, FLOATS)
}

fn plain_int32(cx: &Context<'_>, stored: &TorchaoTensor<'_>) -> Result<TorchaoWeight> {
    if plain(stored.info) != Some(Dtype::I32) || stored.info.shape.len() != 2 {
        return Err(stored.wrong());
    }
    let zero = cx.info(stored.part(cx, "zero_point")?);
    match plain(zero) {
        Some(Dtype::I8) => rows(
            cx,
            stored,
            8,
            CodeValue::Unsigned,
            Formula::ZeroScale,
            &[Dtype::I8],
        ),
        Some(dtype) if FLOATS.contains(&dtype) => {
            cx.note(
                "torchao's 4-bit codes for NPUs are read as (q - zero) * scale, as they are quantised; their kernel is \
                 documented to add zero points",
            );
            let value = CodeValue::Table(Box::new(SIGNED_NIBBLES));
            rows(cx, stored, 8, value, Formula::ZeroScale, FLOATS)
        }
        _ => {
            let what = format!(
                "dtype {} of zero points: I8 (XPU) or a float (NPU) is expected",
                zero.encoding
            );
            Err(unsupported(zero, what))
        }
    }
}

/// Rows of codes, the lowest bits first, with transposed factors.
fn rows(
    cx: &Context<'_>,
    stored: &TorchaoTensor<'_>,
    per_word: u64,
    value: CodeValue,
    formula: Formula,
    zeros: &[Dtype],
) -> Result<TorchaoWeight> {
    let (shape, group) = (stored.sizes(per_word)?, stored.group()?);
    let parts = vec![
        ("codes", stored.tensor),
        ("scale", stored.part(cx, "scale")?),
        ("zero_point", stored.part(cx, "zero_point")?),
    ];
    stored.check_groups(group, shape.last().copied().unwrap_or_default())?;
    let (scales, first) = transposed_factors(cx, parts[1].1, 1, &shape, group, FLOATS)?;
    let (zeros, second) = transposed_factors(cx, parts[2].1, 2, &shape, group, zeros)?;
    let (rows, cols, matrix_rows) = stack(&shape);
    let codes = Codes::new(CodePacking::LowNibbles, value, cols / 2);
    let (scales, zeros) = (Scales::Stored(scales), Zeros::Stored(zeros));
    let inner = Grouped {
        rows,
        cols,
        matrix_rows,
        codes,
        formula,
        scales,
        zeros,
    };
    let decoder = Composite::new(inner, parts.len(), vec![(1, first), (2, second)]);
    Ok(TorchaoWeight {
        shape,
        parts,
        decoder: Box::new(decoder),
    })
}

fn tile_packed(cx: &Context<'_>, stored: &TorchaoTensor<'_>) -> Result<TorchaoWeight> {
    let info = stored.info;
    filled(info, &info.shape)?;
    let &[ref outer @ .., tiles, steps, 32, words @ (1 | 2 | 4)] = &info.shape[..] else {
        return Err(stored.wrong());
    };
    if plain(info) != Some(Dtype::I32) {
        return Err(stored.wrong());
    }
    let sizes = stored.data("shape").and_then(Json::as_array);
    let shape: Option<Shape> = sizes.and_then(|sizes| sizes.iter().map(Json::as_u64).collect());
    // a step covers `16 * inner_k_tiles` columns, and a line of it has `inner_k_tiles / 2` words
    let (high, wide) = (tiles.checked_mul(8), steps.checked_mul(32 * words));
    let fits = |shape: &Shape| {
        let (rows, cols, matrix_rows) = stack(shape);
        shape.len() == outer.len() + 2
            && shape[..outer.len()] == *outer
            && rows > 0
            && cols > 0
            && matrix_rows.div_ceil(8) == tiles
            // padding beyond the weight's columns is read and not used
            && wide.is_some_and(|wide| cols <= wide)
    };
    let (Some(shape), Some(high), Some(wide)) = (shape.filter(fits), high, wide) else {
        return Err(not_known(
            info,
            format!(
                "the described shape does not fit tiles of shape {:?}",
                info.shape.as_slice()
            ),
        ));
    };
    let (rows, cols, matrix_rows) = stack(&shape);
    let (group, factors) = (stored.group()?, stored.part(cx, "scale_and_zero")?);
    stored.check_groups(group, wide)?;
    let (there, lines) = (cx.info(factors), wide / group);
    // one entry for each padded row and group, scale and zero point side by side
    let expected: Vec<u64> = outer.iter().copied().chain([lines, high, 2]).collect();
    let Some(dtype) =
        plain(there).filter(|d| FLOATS.contains(d) && there.shape[..] == expected[..])
    else {
        let what = format!(
            "{} {:?} instead of {expected:?}",
            there.encoding,
            there.shape.as_slice()
        );
        return Err(not_known(there, what));
    };
    // both have the same shape; a note is all that can be given, since the file does not record the device
    cx.note("torchao's 4-bit tiles are read in CUDA's layout; ROCm's has the same shape");
    // scale and zero point of an entry are two parts of the decoder, and one stored part of the plan
    let parts = vec![("codes", stored.tensor), ("scale_and_zero", factors)];
    let bytes = dtype.bits() / 8;
    // each view takes one of the two numbers of an entry
    let half = |from: u64| -> Arc<dyn PartView> {
        Arc::new(TransposedFactors {
            place: PartOffset::whole(1),
            rows,
            matrix_rows,
            padded_rows: high,
            groups: cols.div_ceil(group),
            lines,
            entry: 2 * bytes,
            factor: from..from + bytes,
        })
    };
    let tiled = TinygemmTiles {
        place: PartOffset::whole(0),
        rows,
        matrix_rows,
        padded_cols: wide,
        inner: words * 2,
    };
    let mut table = [0.0; 16];
    table
        .iter_mut()
        // tinygemm centres the codes: `(q - 8) * scale + zero`, so the table holds `q - 8`
        .zip(-8i8..)
        .for_each(|(value, code)| *value = code.into());
    let inner = Grouped {
        rows,
        cols,
        matrix_rows,
        codes: Codes::new(
            CodePacking::LowNibbles,
            CodeValue::Table(Box::new(table)),
            wide / 2,
        ),
        formula: Formula::ScaleOffset,
        scales: Scales::Stored(Factors::per_group(1, dtype, group)),
        zeros: Zeros::Stored(Factors::per_group(2, dtype, group)),
    };
    let decoder = Composite::new(
        inner,
        3,
        vec![(0, Arc::new(tiled)), (1, half(0)), (2, half(bytes))],
    );
    Ok(TorchaoWeight {
        shape,
        parts,
        decoder: Box::new(decoder),
    })
}
