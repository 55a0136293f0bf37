//! MLX: integer codes of 2 to 8 bits in a bit stream, or FP4 and FP8 with shared exponents.
//!
//! Written by MLX, mlx-lm, and transformers for Metal. Recognised by U32 `X.weight` with a sibling `X.scales`.
//!
//! | mode | codes | `scales` | other | formula |
//! |---|---|---|---|---|
//! | affine | 2, 3, 4, 5, 6 or 8 bits | float per group of 32, 64 or 128 | `biases` (`qbiases` from transformers) | `scale * code + bias` |
//! | `mxfp4`, `mxfp8` | E2M1, E4M3 | E8M0 (U8) per 32 | | `scale * code` |
//! | `nvfp4` | E2M1 | E4M3 (U8) per 16 | maybe `global_scale`, in units of 1/2688 | `scale * global / 2688 * code` |
//!
//! Shapes give the product of bits and group size; the configuration separates the two.
//!
//! Refused: products that fit no pair; a configured mode that contradicts the shapes; a global scale outside of `nvfp4`.
//!
//! Sources: MLX `mlx/ops.cpp` (`affine_dequantize`, `fp_dequantize`), `nn/layers/quantized.py`; mlx-lm
//! `utils.py`; transformers `integrations/metal_quantization.py`.

use serde_json::Value as Json;

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::base::kernel::{CodePacking, CodeValue, E2M1_VALUES, Formula};
use crate::plan::decode::{Codes, Factors, GlobalScale, Grouped, Scales, Zeros};
use crate::quant::settings::KnownValues::{Count, ModuleFlag, Texts};
use crate::quant::settings::{KnownValues, SchemeSettings};
use crate::read::catalog::TensorInfo;

use super::Weight;
use super::context::{Context, not_known, plain, stem};
use super::granularity::stack;
use super::module_names::module_of_weight;
use super::module_overrides::ModuleOverrides;
use super::stated::{Alternatives, StatedGranularity, StatedKind, StatedNumbers};

/// Bits of affine codes.
const BITS: [u32; 6] = [2, 3, 4, 5, 6, 8];
/// Sizes of affine groups, the default first.
const GROUPS: [u64; 3] = [64, 32, 128];
/// The largest product of an FP4 code and an E4M3 scale; a stored global scale is divided by it.
const FULL: f32 = 6.0 * 448.0;

/// The settings of configurations of MLX that are known, for all modules and for one.
pub(super) static SETTINGS: SchemeSettings = SchemeSettings {
    methods: &["metal", ""],
    keys: &[
        ("bits", Count),
        ("group_size", Count),
        ("mode", MODES),
        // a module that is quantised as all are, or not at all
        ("*", ModuleFlag),
        ("*.bits", Count),
        ("*.group_size", Count),
        ("*.mode", MODES),
    ],
};

const MODES: KnownValues = Texts(&["affine", "mxfp4", "mxfp8", "nvfp4"]);

/// The numbers of the configured mode.
pub(super) fn stated(cx: &Context<'_>, name: &str) -> Alternatives {
    let module = module_of_weight(name);
    let numbers = match setting(cx, module, "mode").and_then(Json::as_str) {
        Some("affine") => StatedNumbers::integers(None),
        Some("mxfp4" | "nvfp4") => StatedNumbers::floats(Some(4)),
        Some("mxfp8") => StatedNumbers::floats(Some(8)),
        _ => return Alternatives::new(),
    };
    // these modes have one width and one size of groups each, which configurations state too
    let is_fixed = numbers.kind != Some(StatedKind::Integer);
    let number = |key: &str| {
        setting(cx, module, key)
            .and_then(Json::as_u64)
            .filter(|_| is_fixed)
    };
    let bits = number("bits").and_then(|bits| u32::try_from(bits).ok());
    let also = StatedNumbers {
        bits,
        ..StatedNumbers::default()
    };
    let size = number("group_size").map(StatedGranularity::Group);
    vec![vec![numbers, also.with_scales(size)]]
}

/// The name under which the configuration says that a module is not quantised: its settings are `false`.
pub(super) fn left_out<'c>(cx: &Context<'c>, module: &str) -> Option<&'c str> {
    if !cx.config.is_of(&["metal", ""]) {
        return None;
    }
    let (name, settings) = cx.config.map().get_key_value(module)?;
    (settings == &Json::Bool(false)).then_some(name.as_str())
}

pub(super) fn claim(cx: &Context<'_>, tensor: usize) -> Result<Option<Weight>> {
    let info = cx.info(tensor);
    let Some(module) = stem(info, ".weight") else {
        return Ok(None);
    };
    let Some(scales) = cx.sibling(module, ".scales") else {
        return Ok(None);
    };
    // other libraries store `weight` and `scales` too, but not as U32
    if cx.dtype(tensor) != Some(Dtype::U32) {
        let biases = cx.first_sibling(module, &[".biases", ".qbiases"]);
        let shape = &cx.info(scales).shape;
        if shape.len() > 1 && biases.is_some_and(|(biases, _)| cx.info(biases).shape == *shape) {
            let what = format!(
                "{} beside the `scales` and `biases` of MLX, whose codes are U32",
                info.encoding
            );
            return Err(not_known(info, what));
        }
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
    // bits of all codes of a group
    // the shapes give bits per group, the product of the width and the group size; the modes without biases have one
    // pair each
    let group_bits = words
        .checked_mul(32)
        .filter(|_| same && rows > 0)
        .and_then(|bits| bits.checked_div(groups));
    let group_bits =
        group_bits.filter(|bits| *bits > 0 && Some(words * 32) == bits.checked_mul(groups));
    let group_bits = group_bits.ok_or_else(|| {
        let what = format!(
            "{:?} do not scale {:?} of U32",
            found.shape.as_slice(),
            info.shape.as_slice()
        );
        not_known(found, what)
    })?;
    let mut parts = vec![("codes", tensor), ("scales", scales)];
    let biases = cx.first_sibling(module, &[".biases", ".qbiases"]);
    let (group, packing, value, formula, scales, zeros);
    if let Some((biases, _)) = biases {
        let bits;
        (bits, group) = affine_granularity(cx, info, module, group_bits)?;
        let (dtype, bias_dtype) = (float(found)?, float(cx.info(biases))?);
        // an affine group has one bias per scale
        if cx.info(biases).shape != found.shape {
            return Err(not_known(
                cx.info(biases),
                "shape differs from that of the scales",
            ));
        }
        parts.push(("biases", biases));
        packing = CodePacking::Stream(bits);
        value = CodeValue::Unsigned;
        formula = match (cx.native_rounding, dtype, bias_dtype) {
            // MLX computes in the dtype of the scales; mixed dtypes are promoted to F32
            (true, Dtype::F16, Dtype::F16) => Formula::ScaleOffsetF16,
            (true, Dtype::BF16, Dtype::BF16) => Formula::ScaleOffsetBf16,
            _ => Formula::ScaleOffset,
        };
        scales = Scales::Stored(Factors::per_group(1, dtype, group));
        zeros = Zeros::Stored(Factors::per_group(2, bias_dtype, group));
    } else {
        let (mode, dtype);
        (mode, group, dtype) = match group_bits {
            // 32 codes of 4 bits, 32 of 8 bits, 16 of 4 bits
            128 => ("mxfp4", 32, Dtype::F8_E8M0),
            256 => ("mxfp8", 32, Dtype::F8_E8M0),
            64 => ("nvfp4", 16, Dtype::F8_E4M3),
            bits => {
                return Err(not_known(
                    info,
                    format!(
                        "groups of {bits} bits without biases, which are none of mxfp4, mxfp8 and nvfp4"
                    ),
                ));
            }
        };
        // exponents are bytes, so that floats are scales of affine codes
        if float(found).is_ok() {
            let what = format!(
                "its `biases` is missing, or its scales are of dtype {} instead of U8",
                found.encoding
            );
            return Err(not_known(info, what));
        }
        if plain(found) != Some(Dtype::U8) {
            return Err(not_known(
                found,
                format!("dtype {} instead of U8", found.encoding),
            ));
        }
        let number = |key: &str| setting(cx, module, key).and_then(Json::as_u64);
        let bits = if mode == "mxfp8" { 8 } else { 4 };
        let wrong = |key: &str, value: u64| number(key).filter(|said| *said != value);
        if let Some(said) = wrong("bits", bits).or_else(|| wrong("group_size", group)) {
            let what = format!(
                "codes of {bits} bits in groups of {group} ({mode}), and the configuration says {said}"
            );
            return Err(not_known(info, what));
        }
        if let Some(said) = setting(cx, module, "mode")
            .and_then(Json::as_str)
            .filter(|said| *said != mode)
        {
            return Err(not_known(
                info,
                format!("configured mode {said:?} contradicts the stored {mode}"),
            ));
        }
        let fp8 = mode == "mxfp8";
        packing = if fp8 {
            CodePacking::Bytes
        } else {
            CodePacking::LowNibbles
        };
        value = if fp8 {
            CodeValue::E4m3
        } else {
            CodeValue::Table(Box::new(E2M1_VALUES))
        };
        formula = Formula::Scale;
        let factors = Factors::per_group(1, dtype, group);
        scales = match cx.sibling(module, ".global_scale") {
            Some(global) if mode == "nvfp4" => {
                let there = cx.info(global);
                if plain(there) != Some(Dtype::F32) || there.elements() != 1 {
                    return Err(not_known(there, "expected a single F32"));
                }
                parts.push(("global_scale", global));
                Scales::TimesShare(
                    factors,
                    GlobalScale {
                        part: 2,
                        dtype: Dtype::F32,
                        count: 1,
                    },
                    FULL,
                )
            }
            Some(global) => {
                return Err(not_known(
                    cx.info(global),
                    format!("{mode} has no global scale"),
                ));
            }
            None => Scales::Stored(factors),
        };
        zeros = Zeros::None;
    }
    // MLX stores no shape: the columns follow from the groups
    let cols = groups * group;
    let mut shape = info.shape.clone();
    *shape.last_mut().expect("two dimensions and more") = cols;
    let codes = Codes::new(packing, value, words * 4);
    let decoder = Grouped {
        rows,
        cols,
        matrix_rows: rows,
        codes,
        formula,
        scales,
        zeros,
    };
    Ok(Some(cx.weight("mlx", &*info.name, &shape, &parts, decoder)))
}

/// Bits of a code and size of a group, whose product is known.
fn affine_granularity(
    cx: &Context<'_>,
    info: &TensorInfo,
    module: &str,
    group_bits: u64,
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
        let fits = |bits: &u32| group_bits.is_multiple_of((*bits).into());
        BITS.into_iter()
            .filter(fits)
            .map(|bits| (bits, group_bits / u64::from(bits)))
    };
    if let Some(pair) = pairs().find(|pair| Some(pair.0) == bits && Some(pair.1) == group) {
        return Ok(pair);
    }
    if let (Some(bits), Some(group)) = (bits, group) {
        let what = format!(
            "{group_bits} bits per group, which are no codes of {bits} bits in groups of {group}, as configured"
        );
        return Err(not_known(info, what));
    }
    // without a configuration: group sizes of MLX, the default first
    let usual = || {
        GROUPS
            .into_iter()
            .flat_map(|group| pairs().filter(move |pair| pair.1 == group))
    };
    // a configured size that fits one pair decides even if the other setting is absent or wrong
    let by_group = pairs().find(|pair| Some(pair.1) == group);
    let by_bits = usual().find(|pair| Some(pair.0) == bits);
    let found = by_group.or(by_bits).or_else(|| usual().next());
    let (b, g) = found.ok_or_else(|| {
        not_known(
            info,
            format!("{group_bits} bits per group fit no width and group size of MLX"),
        )
    })?;
    if usual().count() != 1 {
        cx.assume(format!(
            "codes of {b} bits in groups of {g}: the configuration names no pair that fits the shapes (such as for {})",
            crate::read::catalog::quote(&info.name)
        ));
    }
    Ok((b, g))
}

/// A setting of this module, else the setting for all modules.
fn setting<'c>(cx: &Context<'c>, module: &str, key: &str) -> Option<&'c Json> {
    let overrides = cx.caches.overrides.get_or_init(|| {
        cx.sound(ModuleOverrides::new(cx.config, cx.catalog, cx.budget))
            .unwrap_or_default()
    });
    let own = overrides.of(module);
    own.and_then(|settings| settings.get(key))
        .or_else(|| cx.config.map().get(key))
}

/// The settings of this module alone, in a file of which a weight was claimed.
pub(super) fn settings_of_module<'c>(cx: &Context<'c>, module: &str) -> Option<&'c Json> {
    cx.caches.overrides.get()?.of(module)
}

fn float(info: &TensorInfo) -> Result<Dtype> {
    match plain(info) {
        Some(dtype @ (Dtype::F32 | Dtype::F16 | Dtype::BF16)) => Ok(dtype),
        _ => Err(not_known(
            info,
            format!("dtype {} instead of F32, F16 or BF16", info.encoding),
        )),
    }
}
