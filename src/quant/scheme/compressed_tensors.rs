//! compressed-tensors' `pack-quantized`: integer codes of 1 to 8 bits in 32-bit words.
//!
//! Written by llm-compressor through compressed-tensors. Recognised by I32 `X.weight_packed` without the `X.meta` of Marlin.
//!
//! `X.weight_packed` is I32 `[…, out, words]`, with `X.weight_shape`, `X.weight_scale`, and maybe `X.weight_zero_point`
//! (packed along the rows: I32 `[…, words, groups]`) and, in older files, `X.weight_g_idx`, the group of each column (I32
//! `[in]`). `w = (q - zero) * scale`; codes and zero points are stored plus `2^(bits - 1)`.
//!
//! Words are filled in one of two ways: up to 0.17 with whole codes (remaining bits are unused), from 0.18 on with a bit
//! stream. The number of words tells which; where both fit, the configured version decides.
//!
//! Refused: words that fit no number of bits; no zero points although all groups of this width say `symmetric: false`; no
//! `weight_g_idx` although all say `actorder`, except `weight` and `static`; scales of partial groups; packed zero points without a scale per row.
//!
//! Sources: compressed-tensors 0.20, `compressors/pack_quantized/{base,helpers}.py` and
//! `quantization/lifecycle/forward_helpers.py`; for whole codes and `weight_g_idx`, version 0.9 of the same.

mod act_order;
mod targets;

use serde_json::Value;

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::base::kernel::{CodePacking, CodeValue, Formula};
use crate::plan::decode::{Codes, Factors, Grouped, Scales, Zeros};
use crate::quant::settings::KnownValues::{
    self, Any, Count, Counts, Flag, GroupSize, Texts, Version,
};
use crate::quant::settings::{SchemeSettings, is_off};
use crate::read::catalog::TensorInfo;

use super::Weight;
use super::config_groups::{self, ConfigGroups};
use super::context::{Context, missing, missing_by, not_known, shown, stem};
use super::granularity::{factors, filled, stack};
use super::module_names::module_of_weight;
use super::stated::Alternatives;
use act_order::ActOrder;
pub(crate) use act_order::lacks_index;

pub(super) const NAME: &str = "compressed-tensors";

/// The settings of configurations of compressed-tensors that are known.
pub(super) static SETTINGS: SchemeSettings = SchemeSettings {
    // ModelOpt describes its groups in the same way
    methods: &["compressed-tensors", "modelopt"],
    keys: &[
        ("version", Version),
        ("format", FORMATS),
        ("quantization_status", STATUSES),
        ("global_compression_ratio", Any),
        ("sparsity_config.format", Texts(&["dense"])),
        ("sparsity_config.global_sparsity", Any),
        ("sparsity_config.ignore", Any),
        ("sparsity_config.registry_requires_subclass", Any),
        ("sparsity_config.sparsity_structure", Any),
        ("sparsity_config.targets", Any),
        ("config_groups.*.format", FORMATS),
        ("config_groups.*.targets", Any),
        ("config_groups.*.input_activations", Any),
        ("config_groups.*.output_activations", Any),
        ("config_groups.*.weights.actorder", Any),
        ("config_groups.*.weights.block_structure", Counts),
        ("config_groups.*.weights.dynamic", Any),
        ("config_groups.*.weights.group_size", GroupSize),
        ("config_groups.*.weights.num_bits", Count),
        ("config_groups.*.weights.observer", Any),
        (
            "config_groups.*.weights.observer_kwargs.averaging_constant",
            Any,
        ),
        ("config_groups.*.weights.observer_kwargs.grid", Any),
        ("config_groups.*.weights.observer_kwargs.maxshrink", Any),
        ("config_groups.*.weights.observer_kwargs.norm", Any),
        ("config_groups.*.weights.observer_kwargs.patience", Any),
        ("config_groups.*.weights.scale_dtype", KnownValues::Dtype),
        ("config_groups.*.weights.strategy", STRATEGIES),
        ("config_groups.*.weights.symmetric", Flag),
        ("config_groups.*.weights.type", Texts(&["int", "float"])),
        ("config_groups.*.weights.zp_dtype", KnownValues::Dtype),
    ],
};

/// The steps of a compression, by which a model is quantised in each.
const STATUSES: KnownValues = Texts(&["initialized", "calibration", "frozen", "compressed"]);

const FORMATS: KnownValues = Texts(&[
    "dense",
    "float-quantized",
    "int-quantized",
    "mixed-precision",
    "mxfp4-pack-quantized",
    "mxfp6-pack-quantized",
    "mxfp8-quantized",
    "naive-quantized",
    "nvfp4-e5m3-pack-quantized",
    "nvfp4-pack-quantized",
    "pack-quantized",
]);

const STRATEGIES: KnownValues = Texts(&[
    "tensor",
    "channel",
    "group",
    "block",
    "token",
    "tensor_group",
    "attn_head",
]);

/// The statements of the configured groups: of the one that has the weight's module as a target, or else of all.
pub(super) fn stated(cx: &Context<'_>, name: &str) -> Alternatives {
    let groups = groups(cx);
    let own = cx.sound(settings_of_module(cx, module_of_weight(name)));
    match own.flatten() {
        Some(weights) => config_groups::stated_by(weights),
        None => groups.stated.clone(),
    }
}

/// The settings of the weights of a module, where there are several groups.
pub(super) fn settings_of_module<'c>(cx: &Context<'c>, module: &str) -> Result<Option<&'c Value>> {
    match groups(cx).are_several {
        true => targets::of_module(cx, module),
        false => Ok(None),
    }
}

pub(super) fn claim(cx: &Context<'_>, tensor: usize) -> Result<Option<Weight>> {
    let info = cx.info(tensor);
    let (Some(stem), Some(Dtype::I32)) = (stem(info, ".weight_packed"), cx.dtype(tensor)) else {
        return Ok(None);
    };
    if cx.sibling(stem, ".meta").is_some() {
        return Ok(None); // Marlin 2:4
    }
    let part = |suffix: &str| {
        cx.sibling(stem, suffix)
            .ok_or_else(|| missing(info, &suffix[1..]))
    };
    // the shape is mandatory: padding of the last word hides the number of columns
    let (scale, sizes) = (part(".weight_scale")?, part(".weight_shape")?);
    let shape = logical_shape(cx, info, sizes)?;
    let (rows, cols, matrix_rows) = stack(&shape);
    let words = *info.shape.last().expect("as many sizes as the weight has");
    let zero = cx.sibling(stem, ".weight_zero_point");
    let index = cx.sibling(stem, ".weight_g_idx");
    let (bits, packing) = packing(cx, info, cols, words)?;
    if zero.is_some() {
        note_zeros(cx, bits);
    }

    let mut parts = vec![("codes", tensor), ("scale", scale), ("shape", sizes)];
    let mut role = |name, tensor| {
        parts.push((name, tensor));
        parts.len() - 1
    };
    let mut scales = group_scales(cx, scale, &shape)?;
    // one row and one scale fit per tensor and per channel alike; packed zero points exist for the latter only
    if rows == 1 && cx.info(scale).elements() == 1 {
        (scales.rows, scales.cols) = (1, cols);
    }
    // codes are signed numbers plus half of the range, so that they are packed as unsigned ones
    let offset = f32::from(1u16 << (bits - 1));
    let zeros = match zero {
        None => {
            needs_no_zeros(cx, info, bits)?;
            Zeros::All(offset)
        }
        Some(zero) if cx.info(zero).elements() == 1 && cx.dtype(zero) != Some(Dtype::I32) => {
            // a single zero point for the whole tensor is not packed
            role("zero_point", zero);
            let value = i16::try_from(cx.peek_integers(zero)?[0]);
            Zeros::All(
                offset
                    + f32::from(
                        value
                            .map_err(|_| not_known(cx.info(zero), "zero point is out of range"))?,
                    ),
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
                let what = "zero points are per row, but rows share scales";
                return Err(not_known(cx.info(zero), what));
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
    let codes = Codes::new(packing, CodeValue::Unsigned, words * 4);
    let grouped = |scales| Grouped {
        rows,
        cols,
        matrix_rows,
        codes,
        formula: Formula::ZeroScale,
        scales,
        zeros,
    };
    let name = [stem, ".weight"].concat();
    let Some(index) = index else {
        // without groups there is nothing to look up; from 0.20 on no writer has the index, nor a reader
        if scales.rows == 1
            && scales.cols < cols
            && version(cx).is_none_or(|v| v < (0, 20))
            && let Some(order) = groups(cx).act_order(bits)
        {
            return Err(missing_by(info, "weight_g_idx", "actorder", order));
        }
        return Ok(Some(cx.weight(
            NAME,
            name,
            &shape,
            &parts,
            grouped(Scales::Stored(scales)),
        )));
    };
    // act-order exists for columns, hence one index for each
    let found = cx.info(index);
    if cx.dtype(index) != Some(Dtype::I32) || found.shape[..] != [cols] {
        let what = format!(
            "{} {} instead of a group index for each of {cols} columns",
            found.encoding,
            shown(&found.shape)
        );
        return Err(not_known(found, what));
    }
    let part = role("group_index", index);
    // without groups there is nothing to look up
    if scales.rows != 1 || scales.cols >= cols {
        return Ok(Some(cx.weight(
            NAME,
            name,
            &shape,
            &parts,
            grouped(Scales::Stored(scales)),
        )));
    }
    let decoder = ActOrder {
        inner: grouped(Scales::Stored(scales)),
        index: part,
    };
    Ok(Some(cx.weight(NAME, name, &shape, &parts, decoder)))
}

/// Refuses a weight without zero points where the configuration says that codes of its width are not symmetric. Writers
/// store them in that case, whatever their values are.
pub(super) fn needs_no_zeros(cx: &Context<'_>, info: &TensorInfo, bits: u32) -> Result<()> {
    let stem = info.name.strip_suffix("_packed").unwrap_or(&info.name);
    let own = settings_of_module(cx, module_of_weight(stem))?;
    let is_asymmetric = own.map(|weights| weights.get("symmetric").is_some_and(is_off));
    if is_asymmetric.unwrap_or_else(|| groups(cx).is_asymmetric(bits)) {
        return Err(missing_by(info, "weight_zero_point", "symmetric", "false"));
    }
    Ok(())
}

/// Notes zero points where the configuration says that codes of their width are symmetric. Older writers have stored them so, all
/// of them 0.
pub(super) fn note_zeros(cx: &Context<'_>, bits: u32) {
    if groups(cx).is_symmetric(bits) {
        cx.note(format!(
            "zero points are subtracted from codes of {bits} bits, though the configuration says that they are symmetric"
        ));
    }
}

/// The weight's shape, verified against the shape of the codes.
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
        not_known(
            stored,
            format!("shape does not fit codes of shape {}", shown(&info.shape)),
        )
    })?;
    filled(info, &info.shape)?;
    filled(stored, &shape)?;
    Ok(shape)
}

/// Bits of a code, and the packing of words.
fn packing(
    cx: &Context<'_>,
    info: &TensorInfo,
    cols: u64,
    words: u64,
) -> Result<(u32, CodePacking)> {
    let mut fit = Vec::new();
    // the order decides if several widths fit and none is configured: the frequent ones come first
    for bits in [4, 8, 2, 3, 5, 6, 1, 7] {
        for packing in [CodePacking::Stream(bits), CodePacking::Words(bits)] {
            let whole = 32 % bits == 0;
            let bytes = packing.row_bytes(cols).map(|b| b.div_ceil(4));
            // widths that divide 32 are the same in both packings, so that only one of them is a candidate
            if bytes == Some(words) && !(whole && packing == CodePacking::Words(bits)) {
                fit.push((bits, packing));
            }
        }
    }
    let configured = &groups(cx).bits;
    let agree: Vec<_> = fit
        .iter()
        .copied()
        .filter(|(bits, _)| configured.contains(bits))
        .collect();
    // a configuration that fits no candidate is ignored: it may describe the model before it was converted
    let candidates = if agree.is_empty() { fit } else { agree };
    match candidates[..] {
        [] => Err(not_known(
            info,
            format!("{words} words do not fit {cols} codes of 1 to 8 bits"),
        )),
        [one] => Ok(one),
        // a single word holds all codes: both packings are the same
        [(bits, dense), (other, _)] if bits == other && cols <= u64::from(32 / bits) => {
            Ok((bits, dense))
        }
        [(bits, dense), (other, whole)] if bits == other => {
            // 0.18 changed the packing of widths that do not divide 32
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
                cx.note(format!("{cols} codes in {words} words: {bits} bits each are assumed; other widths fit, and the configuration names none"));
            }
            Ok((bits, packing))
        }
    }
}

fn groups<'x>(cx: &'x Context<'_>) -> &'x ConfigGroups {
    cx.configured_groups()
}

/// The granularity of the scales, which are part 1. Groups divide the columns, whatever size is configured: the writer refuses others
/// (`ValueError` of compressed-tensors `quantization/lifecycle/forward.py`).
pub(super) fn group_scales(cx: &Context<'_>, scale: usize, shape: &[u64]) -> Result<Factors> {
    // the shapes decide; a configured size serves where several fit
    let configured = groups(cx).size;
    let scales = factors(cx, 1, scale, shape, configured.map(|g| (1, g)))?;
    let cols = shape[shape.len() - 1];
    if scales.rows == 1 && scales.cols < cols && !cols.is_multiple_of(scales.cols) {
        let info = cx.info(scale);
        return Err(not_known(
            info,
            format!(
                "scales {} do not divide {cols} columns into whole groups",
                shown(&info.shape)
            ),
        ));
    }
    if let Some(group) =
        configured.filter(|&g| scales.rows == 1 && scales.cols < cols && scales.cols != g)
    {
        cx.note(format!(
            "groups of {} columns, by the shape of the scales; the configuration says {group}",
            scales.cols
        ));
    }
    Ok(scales)
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

/// Rows of words, over all matrices, of zero points that are packed along the rows.
fn packed_zeros(
    cx: &Context<'_>,
    zero: usize,
    shape: &[u64],
    groups: u64,
    packing: CodePacking,
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
            "{} {} instead of zero points I32 {}",
            info.encoding,
            shown(&info.shape),
            shown(&expected)
        );
        return Err(not_known(info, what));
    }
    Ok(expected[..=last].iter().product())
}
