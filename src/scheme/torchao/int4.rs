//! torchao's classes of 4 bits, laid out for a kernel each.
//!
//! | class | codes | factors | formula |
//! |---|---|---|---|
//! | `Int4Tensor` | `[…, out, in / 2]`, two's complement | `scale`, `zero_point` `[…, groups, out]` | `q * scale + zero` |
//! | `Int4PlainInt32Tensor` | I32 `[out, in / 8]`, of XPU's kernels | the same, zero points in I8 | `(q - zero) * scale` |
//! | the same | the same, two's complement, of NPUs' kernels | the same, zero points in floats | `(q - zero) * scale` |
//! | `Int4TilePackedTo4dTensor` | I32 `[…, out / 8, in / 16i, 32, i / 2]` | `scale_and_zero` `[…, groups, out, 2]` | `(q - 8) * scale + zero` |
//!
//! Tiles are filled up with rows and columns that the weight's `shape` does not have. On ROCm they are of 16 rows, and
//! nothing in a file tells: they are read as CUDA has them.
//!
//! Sources: torchao 0.18 `quantization/quantize_/workflows/int4/*.py`, `quantization/quant_primitives.py`
//! (`_dequantize_affine_tinygemm`); MSLK's `pack_int4` and `int4_row_quantize_zp`; PyTorch's `int4mm.cu`
//! (`matrix_to_m16n8k16_Bint4_layout`) and, for XPU, its `WeightInt4PackKernel`; CANN's `aclnnConvertWeightToINT4Pack`.
//! None of it runs without its device.

use std::sync::Arc;

use serde_json::Value as Json;

use crate::Dtype;
use crate::catalog::{Shape, TensorInfo};
use crate::decode::{
    Codes, Derived, Factors, Grouped, Place, Scales, Tiled, Transposed, View, Zeros,
};
use crate::error::Result;
use crate::kernel::{Form, Packing, Value};
use crate::scheme::context::{Context, malformed, plain, unsupported};
use crate::scheme::grain::{filled, stack};
use crate::scheme::modelopt::SIGNED_NIBBLES;
use crate::scheme::plain::missing;

use super::Made;

/// A tensor, and what is said of it.
pub(super) struct Said<'x> {
    pub(super) info: &'x TensorInfo,
    pub(super) tensor: usize,
    /// What the names of its parts begin with.
    pub(super) flat: &'x str,
    pub(super) said: &'x Json,
    pub(super) class: &'x str,
}

type Claim = fn(&Context<'_>, &Said<'_>) -> Result<Made>;

/// Who reads this class, whose codes have this name.
pub(super) fn class(name: &str, codes: &str) -> Option<Claim> {
    Some(match name {
        "AffineQuantizedTensor" if codes.ends_with("_packed_weight") => tiles,
        "Int4Tensor" => halves,
        "Int4PlainInt32Tensor" => words,
        "Int4TilePackedTo4dTensor" => tiles,
        "Int4PreshuffledTensor" => super::shuffled::claim,
        _ => return None,
    })
}

impl Said<'_> {
    pub(super) fn part(&self, cx: &Context<'_>, key: &str) -> Result<usize> {
        cx.beside(self.flat, &["_", key].concat())
            .ok_or_else(|| missing(self.info, key))
    }

    fn data(&self, key: &str) -> Option<&Json> {
        self.said.get("_data")?.get(key)
    }

    /// Columns that share a scale; rows do not.
    pub(super) fn group(&self) -> Result<u64> {
        let sides = self
            .data("block_size")
            .and_then(Json::as_array)
            .and_then(|sides| sides.split_last());
        let group = sides.filter(|(_, high)| high.iter().all(|n| n.as_u64() == Some(1)));
        let group = group
            .and_then(|(last, _)| last.as_u64())
            .filter(|group| *group > 0);
        group.ok_or_else(|| malformed(self.info, "its block_size is not one row of a group"))
    }

    pub(super) fn wrong(&self) -> crate::Error {
        let info = self.info;
        malformed(
            info,
            format!(
                "{} {:?} in a {}",
                info.encoding,
                info.shape.as_slice(),
                self.class
            ),
        )
    }

    /// The sizes of the codes, which fill words of so many, without those of the words.
    pub(super) fn sizes(&self, per_word: u64) -> Result<Shape> {
        filled(self.info, &self.info.shape)?;
        let mut shape = Shape::from_slice(&self.info.shape);
        let last = shape.last_mut().ok_or_else(|| self.wrong())?;
        *last = last.checked_mul(per_word).ok_or_else(|| self.wrong())?;
        if shape.len() < 2 || crate::catalog::elements(&shape).is_none() {
            return Err(self.wrong());
        }
        Ok(shape)
    }
}

/// Factors `[…, groups, out]` of a weight of this shape, in one of these dtypes.
pub(super) fn transposed(
    cx: &Context<'_>,
    tensor: usize,
    part: usize,
    shape: &[u64],
    group: u64,
    dtypes: &[Dtype],
) -> Result<(Factors, Arc<dyn View>)> {
    let info = cx.info(tensor);
    let (rows, cols, matrix_rows) = stack(shape);
    let (groups, last) = (cols.div_ceil(group), shape.len() - 2);
    let fits = info.shape.len() == shape.len()
        && info.shape[..last] == shape[..last]
        && info.shape[last..] == [groups, matrix_rows];
    let Some(dtype) = plain(info).filter(|dtype| fits && dtypes.contains(dtype)) else {
        let what = format!(
            "{} {:?} does not scale {shape:?} by groups of {group}",
            info.encoding,
            info.shape.as_slice()
        );
        return Err(malformed(info, what));
    };
    let entry = dtype.bits() / 8;
    let view = Transposed {
        place: Place::whole(part),
        rows,
        matrix_rows,
        room: matrix_rows,
        groups,
        lines: groups,
        entry,
        factor: 0..entry,
    };
    Ok((Factors::per_group(part, dtype, group), Arc::new(view)))
}

pub(super) const FLOATS: &[Dtype] = &[Dtype::F32, Dtype::F16, Dtype::BF16];

fn halves(cx: &Context<'_>, said: &Said<'_>) -> Result<Made> {
    if !matches!(plain(said.info), Some(Dtype::I8 | Dtype::U8)) {
        return Err(said.wrong());
    }
    let value = Value::Table(Box::new(SIGNED_NIBBLES));
    rows(cx, said, 2, value, Form::ScaleOffset, FLOATS)
}

fn words(cx: &Context<'_>, said: &Said<'_>) -> Result<Made> {
    if plain(said.info) != Some(Dtype::I32) || said.info.shape.len() != 2 {
        return Err(said.wrong());
    }
    let zero = cx.info(said.part(cx, "zero_point")?);
    match plain(zero) {
        Some(Dtype::I8) => rows(cx, said, 8, Value::Unsigned, Form::ZeroScale, &[Dtype::I8]),
        Some(dtype) if FLOATS.contains(&dtype) => {
            cx.note(
                "torchao's 4 bits of NPUs are read as they are quantised, (q - zero) * scale: of the kernel they are for \
                 it is said that it adds zero points",
            );
            let value = Value::Table(Box::new(SIGNED_NIBBLES));
            rows(cx, said, 8, value, Form::ZeroScale, FLOATS)
        }
        _ => {
            let what = format!(
                "{} where zero points in I8 belong, as XPU has them, or floats, as NPUs do",
                zero.encoding
            );
            Err(unsupported(zero, what))
        }
    }
}

/// Rows of codes, the lowest bits first, with factors the other way round.
fn rows(
    cx: &Context<'_>,
    said: &Said<'_>,
    per_word: u64,
    value: Value,
    form: Form,
    zeros: &[Dtype],
) -> Result<Made> {
    let (shape, group) = (said.sizes(per_word)?, said.group()?);
    let parts = vec![
        ("codes", said.tensor),
        ("scale", said.part(cx, "scale")?),
        ("zero_point", said.part(cx, "zero_point")?),
    ];
    let (scales, first) = transposed(cx, parts[1].1, 1, &shape, group, FLOATS)?;
    let (zeros, second) = transposed(cx, parts[2].1, 2, &shape, group, zeros)?;
    let (rows, cols, matrix_rows) = stack(&shape);
    let codes = Codes::new(Packing::LowNibbles, value, cols / 2);
    let (scales, zeros) = (Scales::Stored(scales), Zeros::Stored(zeros));
    let inner = Grouped {
        rows,
        cols,
        matrix_rows,
        codes,
        form,
        scales,
        zeros,
    };
    let decoder = Derived::new(inner, parts.len(), vec![(1, first), (2, second)]);
    Ok(Made {
        shape,
        parts,
        decoder: Box::new(decoder),
    })
}

fn tiles(cx: &Context<'_>, said: &Said<'_>) -> Result<Made> {
    let info = said.info;
    filled(info, &info.shape)?;
    let &[ref outer @ .., tiles, steps, 32, words @ (1 | 2 | 4)] = &info.shape[..] else {
        return Err(said.wrong());
    };
    if plain(info) != Some(Dtype::I32) {
        return Err(said.wrong());
    }
    let sizes = said.data("shape").and_then(Json::as_array);
    let shape: Option<Shape> = sizes.and_then(|sizes| sizes.iter().map(Json::as_u64).collect());
    let (high, wide) = (tiles.checked_mul(8), steps.checked_mul(32 * words));
    let fits = |shape: &Shape| {
        let (rows, cols, matrix_rows) = stack(shape);
        shape.len() == outer.len() + 2
            && shape[..outer.len()] == *outer
            && rows > 0
            && cols > 0
            && matrix_rows.div_ceil(8) == tiles
            && wide.is_some_and(|wide| cols <= wide)
    };
    let (Some(shape), Some(high), Some(wide)) = (shape.filter(fits), high, wide) else {
        return Err(malformed(
            info,
            format!(
                "its shape does not go with tiles of {:?}",
                info.shape.as_slice()
            ),
        ));
    };
    let (rows, cols, matrix_rows) = stack(&shape);
    let (group, factors) = (said.group()?, said.part(cx, "scale_and_zero")?);
    let (there, lines) = (cx.info(factors), wide.div_ceil(group));
    let expected: Vec<u64> = outer.iter().copied().chain([lines, high, 2]).collect();
    let Some(dtype) =
        plain(there).filter(|d| FLOATS.contains(d) && there.shape[..] == expected[..])
    else {
        let what = format!(
            "{} {:?} where {expected:?} belongs",
            there.encoding,
            there.shape.as_slice()
        );
        return Err(malformed(there, what));
    };
    cx.note("torchao's tiles of 4 bits are read as CUDA's kernels have them: ROCm's look the same from outside");
    // the two numbers of an entry are parts to the decoder, and one to the plan
    let parts = vec![("codes", said.tensor), ("scale_and_zero", factors)];
    let bytes = dtype.bits() / 8;
    let half = |from: u64| -> Arc<dyn View> {
        Arc::new(Transposed {
            place: Place::whole(1),
            rows,
            matrix_rows,
            room: high,
            groups: cols.div_ceil(group),
            lines,
            entry: 2 * bytes,
            factor: from..from + bytes,
        })
    };
    let tiled = Tiled {
        place: Place::whole(0),
        rows,
        matrix_rows,
        room: wide,
        inner: words * 2,
    };
    let mut table = [0.0; 16];
    table
        .iter_mut()
        .zip(-8i8..)
        .for_each(|(value, code)| *value = code.into());
    let inner = Grouped {
        rows,
        cols,
        matrix_rows,
        codes: Codes::new(Packing::LowNibbles, Value::Table(Box::new(table)), wide / 2),
        form: Form::ScaleOffset,
        scales: Scales::Stored(Factors::per_group(1, dtype, group)),
        zeros: Zeros::Stored(Factors::per_group(2, dtype, group)),
    };
    let decoder = Derived::new(
        inner,
        3,
        vec![(0, Arc::new(tiled)), (1, half(0)), (2, half(bytes))],
    );
    Ok(Made {
        shape,
        parts,
        decoder: Box::new(decoder),
    })
}
