//! AutoRound: GPTQ's or AWQ's tensors; `packing_format` of the configuration names which, and how zero points are stored.
//!
//! Written by AutoRound. Recognised by `quant_method` and the tensors of `qweight.rs`.
//!
//! | `packing_format` | codes | stored zero points |
//! |---|---|---|
//! | `auto_round`, `auto_round:gptqmodel` | GPTQ | the value |
//! | `auto_round:auto_gptq`, `auto_round:gptq`, `auto` | GPTQ | the value less one |
//! | `auto_round:auto_awq`, `auto_round:awq` | AWQ | the value |
//!
//! Formulas come from `gptq.rs` and `awq.rs`. Codes of 5 to 7 bits are bit streams, in AWQ in AWQ's order. Output of
//! `auto_round:llm_compressor` and `:fp8` is read by the schemes it is named after. `data_type` distinguishes MXINT4 and FP4
//! with UE5M3 scales from FP4 of the same shapes (`fp4.rs`).
//!
//! Refused: AWQ of 2, 3 and 8 bits, which AutoRound does not write: `WQLinear_GEMM.__init__` of
//! `export/export_to_awq/utils.py` raises an error (line 162 of 0.16.1, which has 4 to 7; 0.4.7 to 0.13.0 have 4 alone). An
//! unknown packing with GPTQ's tensors, because zero points would be ambiguous.
//!
//! Sources: auto-round 0.16.1, `inference/backend.py` and `convert_model.py`, `utils/bit_packing.py`,
//! `auto_round_extension/torch/qlinear_torch.py` and `qlinear_torch_zp.py`, `export/export_to_autoround/qlinear_{fp,int}.py`,
//! `experimental/qmodules/{mx,mxint4_utils,nvfp4_e5m3}.py`.

mod settings;

use serde_json::Value as Json;

use crate::base::error::Result;
use crate::read::catalog::{TensorInfo, quote};

use super::Weight;
use super::context::{Context, not_known, unsupported};
use super::module_names::module_of_weight;
use super::name_regex::{self, FirstMatch, NamePatterns, PatternKind};
use super::qweight::{Qweight, QweightLayout};
use super::stated::{Alternatives, ScaleNumbers, StatedGranularity, StatedNumbers};
use super::{awq, gptq};
pub(super) use settings::SETTINGS;

/// Name of the scheme in plans, and its method.
const NAME: &str = "auto-round";

fn configured(cx: &Context<'_>) -> bool {
    cx.config.is(&[NAME])
}

/// The values of MXINT4's codes: sign and magnitude, in quarters.
pub(super) static MXINT4: [f32; 16] = [
    0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, -0.0, -0.25, -0.5, -0.75, -1.0, -1.25, -1.5, -1.75,
];

/// 4-bit weights that have the shapes of FP4 and another meaning.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FourBitCodes {
    /// Codes in quarters, with the E8M0 scales of MX.
    Mxint4,
    /// FP4 codes with UE5M3 scales.
    Ue5m3Scales,
}

/// The configured codes of a 4-bit weight whose shapes fit FP4: for its module, else for all.
pub(super) fn configured_codes(
    cx: &Context<'_>,
    info: &TensorInfo,
    name: &str,
) -> Result<Option<FourBitCodes>> {
    // AutoRound's export for vLLM
    if cx.config.text("format") == Some("nvfp4-e5m3-pack-quantized") {
        return Ok(Some(FourBitCodes::Ue5m3Scales));
    }
    if !configured(cx) {
        return Ok(None);
    }
    let own = match own_row(cx, name)? {
        OwnRow::Unknown(Some(pattern)) => {
            let what = format!(
                "whether the pattern {} of `extra_config` names it is not known, and decides how its bytes are read",
                quote(pattern)
            );
            return Err(not_known(info, what));
        }
        OwnRow::Unknown(None) => None,
        OwnRow::Known(own) => own.map(|(_, own)| own),
    };
    let format = packing_format(cx);
    let of_module = own.and_then(|own| own.get("data_type")?.as_str());
    if let (Some(of_module), Some(of_all)) = (of_module, cx.config.text("data_type"))
        && of_module != of_all
    {
        cx.note(format!(
            "{} is read as {} by `extra_config`, and others as {}: the files do not tell them apart",
            quote(name),
            quote(of_module),
            quote(of_all)
        ));
    }
    Ok(match setting(cx, own, "data_type").and_then(Json::as_str) {
        Some("nvfp4_v2") => Some(FourBitCodes::Ue5m3Scales),
        Some(other) if other.starts_with("mx_int") => Some(FourBitCodes::Mxint4),
        // each of these layouts is of one type
        None if format.contains("e5m3") => Some(FourBitCodes::Ue5m3Scales),
        None if format.contains("mxint") || format.contains("mx_int") => Some(FourBitCodes::Mxint4),
        _ => None,
    })
}

/// Whether settings of a module give its codes another type than the settings of all modules do. Other settings are in the shapes.
fn has_other_codes(cx: &Context<'_>, own: &Json) -> bool {
    let own = own.get("data_type").filter(|own| !own.is_null());
    own.is_some_and(|own| cx.config.get("data_type") != Some(own))
}

/// The row of a module in `extra_config`: under its name, or else of the first pattern that occurs in the name, as AutoRound and
/// vLLM look for them.
enum OwnRow<'c> {
    Known(Option<(&'c str, &'c Json)>),
    /// It depends on patterns that are not understood. The first that gives its codes another type than the settings of all modules do.
    Unknown(Option<&'c str>),
}

fn own_row<'c>(cx: &Context<'c>, name: &str) -> Result<OwnRow<'c>> {
    let module = module_of_weight(name);
    let Some(extra) = cx.config.get("extra_config").and_then(Json::as_object) else {
        return Ok(OwnRow::Known(None));
    };
    if let Some((name, own)) = extra.get_key_value(module) {
        return Ok(OwnRow::Known(Some((name, own))));
    }
    let patterns = match cx.caches.extra.get() {
        Some(patterns) => patterns,
        None => {
            let cost = 1 + extra.len() as u64;
            cx.budget.steps(cost, "the configured modules")?;
            let rows = extra.iter().map(|(text, own)| (text.as_str(), own));
            let rows = rows.filter(|(text, _)| name_regex::is_pattern(text));
            // anywhere in the name, unless it says where
            let rows = rows.map(|row| (row.0, PatternKind::Anywhere, row));
            let patterns = NamePatterns::new(rows, cx.budget)?;
            cx.caches.extra.get_or_init(|| patterns)
        }
    };
    Ok(match patterns.first(module, cx.budget)? {
        FirstMatch::Known(row) => OwnRow::Known(Some(row)),
        FirstMatch::Unknown => {
            let known = patterns.first_known(module, cx.budget)?;
            let unknown = patterns.unknown().iter().map(|pattern| pattern.meaning);
            let mut rows = unknown.chain(known);
            let other = rows.find(|(_, own)| has_other_codes(cx, own));
            OwnRow::Unknown(other.map(|(pattern, _)| pattern))
        }
        FirstMatch::Nothing => OwnRow::Known(None),
    })
}

/// The settings of a module in `extra_config`.
pub(super) fn settings_of_module<'c>(cx: &Context<'c>, module: &str) -> Result<Option<&'c Json>> {
    if !configured(cx) {
        return Ok(None);
    }
    Ok(match own_row(cx, module)? {
        OwnRow::Known(own) => own.map(|(_, own)| own),
        OwnRow::Unknown(_) => None,
    })
}

/// The name under which `extra_config` says that a module is not quantised.
pub(super) fn left_out<'c>(cx: &Context<'c>, module: &str) -> Result<Option<&'c str>> {
    if !configured(cx) {
        return Ok(None);
    }
    Ok(match own_row(cx, module)? {
        OwnRow::Known(Some((name, own))) if !is_quantised(own) => Some(name),
        _ => None,
    })
}

/// The name or pattern of `extra_config` that is for a module.
pub(super) fn entry_of_module<'c>(cx: &Context<'c>, module: &str) -> Result<Option<&'c str>> {
    if !configured(cx) {
        return Ok(None);
    }
    Ok(match own_row(cx, module)? {
        OwnRow::Known(own) => own.map(|(name, _)| name),
        OwnRow::Unknown(_) => None,
    })
}

/// Whether settings quantise a module: settings of 16 bits and more do not.
fn is_quantised(own: &Json) -> bool {
    let bits = own.get("bits").and_then(Json::as_u64);
    bits.is_none_or(|bits| bits < 16)
}

/// The entries of `extra_config` that quantise modules: names, and patterns that occur in names.
pub(super) fn quantised_entries<'c>(
    cx: &Context<'c>,
) -> impl Iterator<Item = (&'c str, Option<PatternKind>)> {
    let extra = cx.config.get("extra_config").filter(|_| configured(cx));
    let extra = extra.and_then(Json::as_object).into_iter().flatten();
    let entries = extra.filter(|(_, own)| is_quantised(own));
    entries.map(|(name, _)| {
        let kind = name_regex::is_pattern(name).then_some(PatternKind::Anywhere);
        (name.as_str(), kind)
    })
}

/// A setting of a module, or else of all.
fn setting<'c>(cx: &Context<'c>, own: Option<&'c Json>, key: &str) -> Option<&'c Json> {
    let own = own
        .and_then(|own| own.get(key))
        .filter(|own| !own.is_null());
    own.or_else(|| cx.config.get(key))
}

/// The numbers of the configured type, and the columns that share a scale.
pub(super) fn stated(cx: &Context<'_>, name: &str) -> Alternatives {
    use ScaleNumbers::{Exponents, Float8, Floats};
    let Some(OwnRow::Known(own)) = cx.sound(own_row(cx, name)) else {
        return Alternatives::new();
    };
    let own = own.map(|(_, own)| own);
    let format = packing_format(cx);
    // AutoRound reads a configuration without `data_type` as of integers: `get_layer_config` of its `inference/convert_model.py`
    // (0.16.1) has `getattr(quantization_config, "data_type", "int")`, as has `QuantizationScheme`. Layouts of floats have no
    // integers, whatever the setting would be
    let data = setting(cx, own, "data_type").and_then(Json::as_str);
    let data = data.unwrap_or(if FLOATS.iter().any(|word| format.contains(word)) {
        "float"
    } else {
        "int"
    });
    let size = setting(cx, own, "group_size").and_then(Json::as_i64);
    let size = size.and_then(StatedGranularity::of_size);
    let groups = |size| Some(StatedGranularity::Group(size));
    let bits = setting(cx, own, "bits").and_then(Json::as_u64);
    let bits = bits.and_then(|bits| u32::try_from(bits).ok());
    // each type has a size of groups, which configurations state too
    let also = StatedNumbers::default().with_scales(size);
    let numbers = match data {
        "mx_int" | "mx_int4" => {
            let numbers = StatedNumbers {
                bits,
                ..StatedNumbers::default()
            };
            let numbers = numbers.scaled_by(Exponents).with_scales(groups(32));
            return vec![vec![numbers, also]];
        }
        name if name.starts_with("int") => StatedNumbers::integers(None)
            .scaled_by(Floats)
            .with_scales(size),
        name if name.starts_with("mx_fp") => {
            let numbers = StatedNumbers::floats(bits).scaled_by(Exponents);
            return vec![vec![numbers.with_scales(groups(32)), also]];
        }
        name if name.starts_with("nv_fp") => {
            let numbers = StatedNumbers::floats(Some(4)).scaled_by(Float8);
            return vec![vec![numbers.with_scales(groups(16)), also]];
        }
        // the module of the packing has the size of its groups
        "nvfp4_v2" => {
            let own = match format {
                format if format.ends_with("e5m3_g32") => groups(32),
                format if format.ends_with("nvfp4_e5m3") => groups(16),
                _ => size,
            };
            if let (Some(StatedGranularity::Group(own)), Some(StatedGranularity::Group(said))) =
                (own, size)
                && own != said
            {
                cx.note(format!(
                    "groups of {own} columns, by packing_format; the configuration says {said}"
                ));
            }
            let width = StatedNumbers {
                bits,
                ..StatedNumbers::default()
            };
            let numbers = StatedNumbers::floats(Some(4)).with_scales(own);
            return vec![vec![numbers, width]];
        }
        name if name.contains("fp") || name == "float" => StatedNumbers::floats(None),
        _ => return Alternatives::new(),
    };
    vec![vec![numbers]]
}

/// The configured layout.
fn packing_format<'c>(cx: &Context<'c>) -> &'c str {
    cx.config
        .text("packing_format")
        // early files name a backend instead of a packing format; AutoRound's `AutoRoundConfig` has `auto_round:auto_gptq` for
        // neither, which is read as `auto` is
        .or_else(|| cx.config.text("backend"))
        .unwrap_or("auto")
}

/// Words of layouts that have no words of integers.
static FLOATS: &[&str] = &["fp", "e5m3", "mx", "llm_compressor"];

pub(super) fn claim(cx: &Context<'_>, tensor: usize) -> Result<Option<Weight>> {
    if !configured(cx) {
        return Ok(None);
    }
    let Some(mut packed) = Qweight::find(cx, tensor)? else {
        return Ok(None);
    };
    if let OwnRow::Known(Some((_, own))) = own_row(cx, packed.stem)? {
        let number = |key: &str| own.get(key).and_then(Json::as_i64);
        let bits = number("bits").and_then(|bits| u64::try_from(bits).ok());
        (packed.bits, packed.group) = (bits.or(packed.bits), number("group_size").or(packed.group));
    }
    let format = packing_format(cx);
    let layout = packed.layout(cx)?;
    let backend = format.strip_prefix("auto_round:").unwrap_or(format);
    if layout == QweightLayout::AwqGemm {
        if backend.contains("gptq") {
            return Err(not_known(
                packed.codes,
                format!("AutoRound packing {format:?} with tensors of AWQ's layout"),
            ));
        }
        return awq::gemm(cx, NAME, &packed, true).map(Some);
    }
    let version = match backend {
        "auto_round" | "gptqmodel" => gptq::GptqVersion::Two,
        "auto" | "auto_gptq" | "gptq" => gptq::GptqVersion::One,
        // the layouts of floats, and of other libraries
        other if FLOATS.iter().any(|word| other.contains(word)) => {
            return Err(not_known(
                packed.codes,
                format!("AutoRound packing {format:?} with tensors of GPTQ's layout"),
            ));
        }
        // older names: the format, followed by a kernel's name
        other if other.contains("gptqmodel") => gptq::GptqVersion::Two,
        other if other.contains("gptq") => gptq::GptqVersion::One,
        // the oldest names: `auto_round:exllamav2` and others
        _ if format.starts_with("auto_round") && !backend.contains("awq") => gptq::GptqVersion::Two,
        _ => {
            return Err(unsupported(
                packed.codes,
                format!("AutoRound packing {format:?} with tensors of GPTQ's layout"),
            ));
        }
    };
    if layout != QweightLayout::Gptq {
        return Err(unsupported(
            packed.codes,
            format!("AutoRound packing {format:?} with tensors of an AWQ layout"),
        ));
    }
    gptq::weight(cx, NAME, &packed, version).map(Some)
}
