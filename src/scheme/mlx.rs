//! MLX: `w = scale * code + bias` with codes of 2 to 8 bits in a bit stream, or FP4 and FP8 with shared
//! exponents.
//!
//! `X.weight` is U32, with `X.scales` beside it, and `X.biases` (`X.qbiases` as transformers writes it for
//! Metal) for the affine kind. Without them scales are bytes: E8M0 for `mxfp4` and `mxfp8` (groups of 32),
//! E4M3 for `nvfp4` (groups of 16), whose optional `X.global_scale` counts in units of 1/2688.
//! Shapes give the product of bits and group; the configuration says which is which.
//! Sources: MLX `mlx/ops.cpp` (`affine_dequantize`, `fp_dequantize`), `nn/layers/quantized.py`; mlx-lm
//! `utils.py`; transformers `integrations/metal_quantization.py`.

use serde_json::Value as Json;

use crate::Dtype;
use crate::catalog::TensorInfo;
use crate::decode::{Codes, Factors, Global, Grouped, Scales, Zeros};
use crate::error::Result;
use crate::kernel::{E2M1, Form, Packing, Value};

use super::Weight;
use super::context::{Context, malformed, plain, stem};
use super::grain::stack;

/// Sizes of affine codes.
const BITS: [u32; 6] = [2, 3, 4, 5, 6, 8];
/// Sizes of affine groups, the usual one first.
const GROUPS: [u64; 3] = [64, 32, 128];
/// The largest product of an FP4 and an E4M3: what a global scale of 1 stands for.
const FULL: f32 = 6.0 * 448.0;

pub(super) fn claim(cx: &Context<'_>, tensor: usize) -> Result<Option<Weight>> {
    let info = cx.info(tensor);
    let Some(module) = stem(info, ".weight") else {
        return Ok(None);
    };
    let Some(scales) = cx.beside(module, ".scales") else {
        return Ok(None);
    };
    if cx.dtype(tensor) != Some(Dtype::U32) {
        return Ok(None);
    }
    let found = cx.info(scales);
    let (rows, words, _) = stack(&info.shape);
    let (leading, groups) = (
        found.shape.split_last(),
        found.shape.last().copied().unwrap_or(0),
    );
    let same =
        leading.map(|(_, leading)| leading) == info.shape.split_last().map(|(_, leading)| leading);
    // bits of a group
    let together = words
        .checked_mul(32)
        .filter(|_| same && rows > 0)
        .and_then(|bits| bits.checked_div(groups));
    let together =
        together.filter(|bits| *bits > 0 && Some(words * 32) == bits.checked_mul(groups));
    let together = together.ok_or_else(|| {
        let what = format!(
            "{:?} do not scale {:?} of U32",
            found.shape.as_slice(),
            info.shape.as_slice()
        );
        malformed(found, what)
    })?;
    let mut parts = vec![("codes", tensor), ("scales", scales)];
    let biases = cx.first_beside(module, &[".biases", ".qbiases"]);
    let (group, packing, value, form, scales, zeros);
    if let Some((biases, _)) = biases {
        let bits;
        (bits, group) = affine_grain(cx, info, module, together)?;
        let (dtype, bias_dtype) = (float(found)?, float(cx.info(biases))?);
        if cx.info(biases).shape != found.shape {
            return Err(malformed(cx.info(biases), "not of the shape of its scales"));
        }
        parts.push(("biases", biases));
        packing = Packing::Stream(bits);
        value = Value::Unsigned;
        form = match (cx.native, dtype, bias_dtype) {
            (true, Dtype::F16, Dtype::F16) => Form::ScaleOffsetF16,
            (true, Dtype::BF16, Dtype::BF16) => Form::ScaleOffsetBf16,
            _ => Form::ScaleOffset,
        };
        scales = Scales::Stored(Factors::per_group(1, dtype, group));
        zeros = Zeros::Stored(Factors::per_group(2, bias_dtype, group));
    } else {
        let (mode, dtype);
        (mode, group, dtype) = match together {
            128 => ("mxfp4", 32, Dtype::F8_E8M0),
            256 => ("mxfp8", 32, Dtype::F8_E8M0),
            64 => ("nvfp4", 16, Dtype::F8_E4M3),
            bits => {
                return Err(malformed(
                    info,
                    format!("groups of {bits} bits, and no biases"),
                ));
            }
        };
        if plain(found) != Some(Dtype::U8) {
            return Err(malformed(
                found,
                format!("{} where bytes belong", found.encoding),
            ));
        }
        if let Some(said) = setting(cx, module, "mode")
            .and_then(Json::as_str)
            .filter(|said| *said != mode)
        {
            return Err(malformed(
                info,
                format!("configured as {said:?}, and stored as {mode}"),
            ));
        }
        let fp8 = mode == "mxfp8";
        packing = if fp8 {
            Packing::Bytes
        } else {
            Packing::LowNibbles
        };
        value = if fp8 {
            Value::E4m3
        } else {
            Value::Table(Box::new(E2M1))
        };
        form = Form::Scale;
        let factors = Factors::per_group(1, dtype, group);
        scales = match cx.beside(module, ".global_scale") {
            Some(global) if mode == "nvfp4" => {
                let there = cx.info(global);
                if plain(there) != Some(Dtype::F32) || there.elements() != 1 {
                    return Err(malformed(there, "not one F32"));
                }
                parts.push(("global_scale", global));
                Scales::TimesShare(
                    factors,
                    Global {
                        part: 2,
                        dtype: Dtype::F32,
                        count: 1,
                    },
                    FULL,
                )
            }
            Some(global) => {
                return Err(malformed(
                    cx.info(global),
                    format!("a global scale of {mode}"),
                ));
            }
            None => Scales::Stored(factors),
        };
        zeros = Zeros::None;
    }
    let cols = groups * group;
    let mut shape = info.shape.clone();
    *shape.last_mut().expect("two dimensions and more") = cols;
    let codes = Codes::new(packing, value, words * 4);
    let decoder = Grouped {
        rows,
        cols,
        matrix_rows: rows,
        codes,
        form,
        scales,
        zeros,
    };
    Ok(Some(cx.weight("mlx", &*info.name, &shape, &parts, decoder)))
}

/// Bits of a code and codes of a group, of which the product is known.
fn affine_grain(
    cx: &Context<'_>,
    info: &TensorInfo,
    module: &str,
    together: u64,
) -> Result<(u32, u64)> {
    let (bits, group) = (
        setting(cx, module, "bits"),
        setting(cx, module, "group_size"),
    );
    let bits = bits
        .and_then(Json::as_u64)
        .and_then(|bits| u32::try_from(bits).ok());
    let group = group.and_then(Json::as_u64);
    let pairs = || {
        let fits = |bits: &u32| together.is_multiple_of((*bits).into());
        BITS.into_iter()
            .filter(fits)
            .map(|bits| (bits, together / u64::from(bits)))
    };
    if let Some(pair) = pairs().find(|pair| Some(pair.0) == bits && Some(pair.1) == group) {
        return Ok(pair);
    }
    let usual = || {
        GROUPS
            .into_iter()
            .flat_map(|group| pairs().filter(move |pair| pair.1 == group))
    };
    let by_group = pairs().find(|pair| Some(pair.1) == group);
    let by_bits = usual().find(|pair| Some(pair.0) == bits);
    let found = by_group.or(by_bits).or_else(|| usual().next());
    let (b, g) = found
        .ok_or_else(|| malformed(info, format!("groups of {together} bits are none of MLX's")))?;
    if usual().count() != 1 {
        cx.note(format!(
            "codes of {b} bits in groups of {g}: the shapes leave the choice, and the configuration does not \
             name a pair that fits them (such as for {})",
            crate::catalog::quote(&info.name)
        ));
    }
    Ok((b, g))
}

/// A setting for this module: its own, or that for all.
fn setting<'c>(cx: &Context<'c>, module: &str, key: &str) -> Option<&'c Json> {
    let map = cx.config.map();
    map.get(module)
        .and_then(|own| own.get(key))
        .or_else(|| map.get(key))
}

fn float(info: &TensorInfo) -> Result<Dtype> {
    match plain(info) {
        Some(dtype @ (Dtype::F32 | Dtype::F16 | Dtype::BF16)) => Ok(dtype),
        _ => Err(malformed(
            info,
            format!("{} where floats belong", info.encoding),
        )),
    }
}
