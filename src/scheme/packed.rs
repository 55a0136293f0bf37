//! compressed-tensors' `pack-quantized`: whole numbers of 1 to 8 bits in words of 32.
//!
//! `X.weight_packed` I32 `[…, out, words]`, `X.weight_shape`, `X.weight_scale`, and maybe
//! `X.weight_zero_point` (packed along the rows: `[…, words, groups]`) and, in older files,
//! `X.weight_g_idx`, the group of each column. `w = (q - zero) * scale`; what is stored is
//! `q + 2^(bits - 1)`, for zero points too.
//!
//! Words are filled in one of two ways, and the number of words tells which: up to 0.17 with whole
//! codes (the rest of a word is wasted), from 0.18 on with a stream of bits.
//!
//! Sources: compressed-tensors 0.20, `compressors/pack_quantized/{base,helpers}.py` and
//! `quantization/lifecycle/forward_helpers.py`; for whole codes and `weight_g_idx`, version 0.9 of the same.

use crate::Dtype;
use crate::catalog::TensorInfo;
use crate::decode::{Codes, Factors, Grouped, Indexed, Scales, Zeros};
use crate::error::Result;
use crate::kernel::{Form, Packing, Value};

use super::Weight;
use super::context::{Context, malformed, shown, stem};
use super::grain::{factors, filled, stack};
use super::plain::missing;

const NAME: &str = "compressed-tensors";

pub(super) fn claim(cx: &Context<'_>, tensor: usize) -> Result<Option<Weight>> {
    let info = cx.info(tensor);
    let (Some(stem), Some(Dtype::I32)) = (stem(info, ".weight_packed"), cx.dtype(tensor)) else {
        return Ok(None);
    };
    if cx.beside(stem, ".meta").is_some() {
        return Ok(None); // Marlin 2:4
    }
    let part = |suffix: &str| {
        cx.beside(stem, suffix)
            .ok_or_else(|| missing(info, &suffix[1..]))
    };
    let (scale, sizes) = (part(".weight_scale")?, part(".weight_shape")?);
    let shape = logical_shape(cx, info, sizes)?;
    let (rows, cols, matrix_rows) = stack(&shape);
    let words = *info.shape.last().expect("as many sizes as the weight has");
    let zero = cx.beside(stem, ".weight_zero_point");
    let index = cx.beside(stem, ".weight_g_idx");
    let (bits, packing) = packing(cx, info, cols, words)?;

    let mut parts = vec![("codes", tensor), ("scale", scale), ("shape", sizes)];
    let mut role = |name, tensor| {
        parts.push((name, tensor));
        parts.len() - 1
    };
    let mut scales = group_scales(cx, scale, &shape)?;
    if rows == 1 && cx.info(scale).elements() == 1 {
        (scales.rows, scales.cols) = (1, cols);
    }
    let offset = f32::from(1u16 << (bits - 1));
    let zeros = match zero {
        None => Zeros::All(offset),
        Some(zero) if cx.info(zero).elements() == 1 && cx.dtype(zero) != Some(Dtype::I32) => {
            // one for the whole tensor is not packed
            role("zero_point", zero);
            let value = i16::try_from(cx.peek_integers(zero)?[0]);
            Zeros::All(
                offset
                    + f32::from(value.map_err(|_| malformed(cx.info(zero), "not a zero point"))?),
            )
        }
        Some(zero) => {
            let words = packed_zeros(
                cx,
                zero,
                &shape,
                cols.div_ceil(scales.cols.min(cols)),
                packing,
            )?;
            if scales.rows != 1 {
                let what = "zero points per row, and scales that rows share";
                return Err(malformed(cx.info(zero), what));
            }
            let (part, groups) = (
                role("zero_point", zero),
                cols.div_ceil(scales.cols.min(cols)),
            );
            Zeros::PackedRows {
                part,
                packing,
                bits,
                words,
                groups,
            }
        }
    };
    let codes = Codes::new(packing, Value::Unsigned, words * 4);
    let grouped = |scales| Grouped {
        rows,
        cols,
        matrix_rows,
        codes,
        form: Form::ZeroScale,
        scales,
        zeros,
    };
    let name = [stem, ".weight"].concat();
    let Some(index) = index else {
        return Ok(Some(cx.weight(
            NAME,
            name,
            &shape,
            &parts,
            grouped(Scales::Stored(scales)),
        )));
    };
    let found = cx.info(index);
    if cx.dtype(index) != Some(Dtype::I32) || found.shape[..] != [cols] {
        let what = format!(
            "{} {} is not a group for each of {cols} columns",
            found.encoding,
            shown(&found.shape)
        );
        return Err(malformed(found, what));
    }
    let part = role("group_index", index);
    if scales.rows != 1 || scales.cols >= cols {
        return Ok(Some(cx.weight(
            NAME,
            name,
            &shape,
            &parts,
            grouped(Scales::Stored(scales)),
        )));
    }
    let decoder = Indexed {
        inner: grouped(Scales::Stored(scales)),
        index: part,
    };
    Ok(Some(cx.weight(NAME, name, &shape, &parts, decoder)))
}

/// The weight's sizes, which must agree with those of its codes.
fn logical_shape(cx: &Context<'_>, info: &TensorInfo, sizes: usize) -> Result<Vec<u64>> {
    let stored = cx.info(sizes);
    let shape: Option<Vec<u64>> = cx
        .peek_integers(sizes)?
        .iter()
        .map(|&n| u64::try_from(n).ok())
        .collect();
    let shape = shape.filter(|s| s.len() >= 2 && s.len() == info.shape.len());
    let agree = |s: &Vec<u64>| s[..s.len() - 1] == info.shape[..s.len() - 1];
    let shape = shape.filter(agree).ok_or_else(|| {
        malformed(
            stored,
            format!(
                "not the shape of a weight packed into {}",
                shown(&info.shape)
            ),
        )
    })?;
    filled(info, &info.shape)?;
    filled(stored, &shape)?;
    Ok(shape)
}

/// Bits of a code, and how they fill the words.
fn packing(cx: &Context<'_>, info: &TensorInfo, cols: u64, words: u64) -> Result<(u32, Packing)> {
    let mut fit = Vec::new();
    for bits in [4, 8, 2, 3, 5, 6, 1, 7] {
        for packing in [Packing::Stream(bits), Packing::Words(bits)] {
            let whole = 32 % bits == 0;
            let bytes = packing.row_bytes(cols).map(|b| b.div_ceil(4));
            if bytes == Some(words) && !(whole && packing == Packing::Words(bits)) {
                fit.push((bits, packing));
            }
        }
    }
    let configured = configured_bits(cx);
    let agree: Vec<_> = fit
        .iter()
        .copied()
        .filter(|(bits, _)| configured.contains(bits))
        .collect();
    let candidates = if agree.is_empty() { fit } else { agree };
    match candidates[..] {
        [] => Err(malformed(
            info,
            format!("{words} words hold no {cols} codes of 1 to 8 bits"),
        )),
        [one] => Ok(one),
        // both layouts of the same codes: the version of the writer decides
        [(bits, dense), (other, _)] if bits == other && cols <= u64::from(32 / bits) => {
            Ok((bits, dense))
        }
        [(bits, dense), (other, whole)] if bits == other => {
            let old = version(cx).is_some_and(|v| v < (0, 18));
            let (chosen, how) = if old {
                (whole, "whole codes per word")
            } else {
                (dense, "a stream of bits")
            };
            cx.note(format!("{bits}-bit codes in {words} words, as {how}: the configured version decides between the two layouts of compressed-tensors"));
            Ok((bits, chosen))
        }
        [(bits, packing), ..] => {
            if configured.is_empty() || !configured.contains(&bits) || configured.len() > 1 {
                cx.note(format!("{cols} codes in {words} words are taken for {bits} bits each: others would fit, and the configuration does not say"));
            }
            Ok((bits, packing))
        }
    }
}

/// Bits of the weights of every configured group.
fn configured_bits(cx: &Context<'_>) -> Vec<u32> {
    let mut bits: Vec<u32> = weights(cx)
        .filter_map(|w| u32::try_from(w.get("num_bits")?.as_u64()?).ok())
        .collect();
    bits.sort_unstable();
    bits.dedup();
    bits
}

/// Scales of part 1, where groups are whole unless the configuration says how long they are.
pub(super) fn group_scales(cx: &Context<'_>, scale: usize, shape: &[u64]) -> Result<Factors> {
    let configured = group_size(cx);
    let scales = factors(cx, 1, scale, shape, configured.map(|g| (1, g)))?;
    let cols = shape[shape.len() - 1];
    if scales.rows == 1 && !cols.is_multiple_of(scales.cols) && configured != Some(scales.cols) {
        let info = cx.info(scale);
        return Err(malformed(
            info,
            format!(
                "{} are not scales of whole groups of {cols} columns",
                shown(&info.shape)
            ),
        ));
    }
    if let Some(group) =
        configured.filter(|&g| scales.rows == 1 && scales.cols < cols && scales.cols != g)
    {
        cx.note(format!(
            "groups of {} columns, as the shapes of scales say: {group} are configured",
            scales.cols
        ));
    }
    Ok(scales)
}

/// The configured size of a group, where all groups have the same.
fn group_size(cx: &Context<'_>) -> Option<u64> {
    let mut sizes: Vec<u64> = weights(cx)
        .filter_map(|w| w.get("group_size")?.as_u64())
        .collect();
    sizes.dedup();
    (sizes.len() == 1).then(|| sizes[0])
}

/// The weights' settings of every configured group.
pub(super) fn weights<'c>(
    cx: &Context<'c>,
) -> impl Iterator<Item = &'c serde_json::Value> + use<'c> {
    let groups = cx
        .config
        .get("config_groups")
        .and_then(|groups| groups.as_object());
    groups
        .into_iter()
        .flat_map(|groups| groups.values())
        .filter_map(|group| group.get("weights"))
}

/// Major and minor version of the writer.
fn version(cx: &Context<'_>) -> Option<(u32, u32)> {
    let mut numbers = cx
        .config
        .text("version")?
        .split('.')
        .map(|n| n.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// Rows of words, over all matrices, in a tensor of zero points that are packed along the rows.
fn packed_zeros(
    cx: &Context<'_>,
    zero: usize,
    shape: &[u64],
    groups: u64,
    packing: Packing,
) -> Result<u64> {
    let info = cx.info(zero);
    let last = shape.len() - 2;
    let rows = packing.row_bytes(shape[last]).map(|b| b.div_ceil(4));
    let expected: Vec<u64> = shape[..last]
        .iter()
        .copied()
        .chain(rows)
        .chain([groups])
        .collect();
    if cx.dtype(zero) != Some(Dtype::I32) || info.shape[..] != expected[..] {
        let what = format!(
            "{} {} where zero points in I32 {} belong",
            info.encoding,
            shown(&info.shape),
            shown(&expected)
        );
        return Err(malformed(info, what));
    }
    Ok(expected[..=last].iter().product())
}
