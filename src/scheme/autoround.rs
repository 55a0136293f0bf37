//! AutoRound: GPTQ's or AWQ's tensors, and a `packing_format` that says which and how zero points are meant.
//!
//! | `packing_format` | codes | zero points |
//! |---|---|---|
//! | `auto_round`, `auto_round:gptqmodel` | GPTQ | as they are |
//! | `auto_round:auto_gptq`, `auto_round:gptq`, `auto` | GPTQ | less one |
//! | `auto_round:auto_awq`, `auto_round:awq` | AWQ | as they are |
//!
//! Codes of 5 to 7 bits are streams, in AWQ's order there. AWQ has no others but 4: `WQLinear_GEMM.__init__` of
//! `export/export_to_awq/utils.py` raises an error (line 162 of 0.16.1, which has 4 to 7; 0.4.7 to 0.13.0 have 4 alone).
//! What `auto_round:llm_compressor` and `:fp8` write is read by the schemes of those, and `data_type` tells FP4 from
//! what has its shapes: MXINT4, and FP4 whose scales have a mantissa.
//!
//! Sources: auto-round 0.16.1, `inference/backend.py` and `convert_model.py`, `utils/bit_packing.py`,
//! `auto_round_extension/torch/qlinear_torch.py` and `qlinear_torch_zp.py`, `export/export_to_autoround/qlinear_{fp,int}.py`,
//! `experimental/qmodules/{mx,mxint4_utils,nvfp4_e5m3}.py`.

use crate::error::Result;

use super::Weight;
use super::context::{Context, unsupported};
use super::qweight::{Kind, Packed};
use super::{awq, gptq};

/// Its name in plans.
const NAME: &str = "auto-round";

fn configured(cx: &Context<'_>) -> bool {
    cx.config
        .is(&["auto-round", "auto_round", "intel/auto-round"])
}

/// What MXINT4's codes are worth: a sign, and quarters.
pub(super) static MXINT4: [f32; 16] = [
    0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, -0.0, -0.25, -0.5, -0.75, -1.0, -1.25, -1.5, -1.75,
];

/// Codes of 4 bits in the shapes of FP4's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Four {
    /// With scales of MX.
    Int,
    /// With scales that have 5 bits of exponent and 3 of mantissa.
    E5m3,
}

/// Whether a weight's codes of 4 bits are other ones than their shapes say: as configured for its module, or for all.
pub(super) fn four(cx: &Context<'_>, name: &str) -> Option<Four> {
    // in its export for vLLM
    if cx.config.text("format") == Some("nvfp4-e5m3-pack-quantized") {
        return Some(Four::E5m3);
    }
    if !configured(cx) {
        return None;
    }
    let module = name.strip_suffix(".weight").unwrap_or(name);
    let own = cx
        .config
        .get("extra_config")
        .and_then(|all| all.get(module)?.get("data_type")?.as_str());
    match own.or_else(|| cx.config.text("data_type"))? {
        "nvfp4_v2" => Some(Four::E5m3),
        other if other.starts_with("mx_int") => Some(Four::Int),
        _ => None,
    }
}

pub(super) fn claim(cx: &Context<'_>, tensor: usize) -> Result<Option<Weight>> {
    if !configured(cx) {
        return Ok(None);
    }
    let Some(packed) = Packed::find(cx, tensor)? else {
        return Ok(None);
    };
    let format = cx
        .config
        .text("packing_format")
        .or_else(|| cx.config.text("backend"))
        .unwrap_or("auto");
    let kind = packed.kind(cx)?;
    if kind == Kind::Across {
        return awq::gemm(cx, NAME, &packed, true).map(Some);
    }
    let backend = format.strip_prefix("auto_round:").unwrap_or(format);
    let version = match backend {
        "auto_round" | "gptqmodel" => gptq::Version::Two,
        "auto" | "auto_gptq" | "gptq" => gptq::Version::One,
        // a kernel's name, behind what it reads
        other if other.contains("gptqmodel") => gptq::Version::Two,
        other if other.contains("gptq") => gptq::Version::One,
        // as it was called first: `auto_round:exllamav2` and the like
        _ if format.starts_with("auto_round") && !backend.contains("awq") => gptq::Version::Two,
        _ => {
            return Err(unsupported(
                packed.codes,
                format!("AutoRound's packing {format:?} with tensors as GPTQ has them"),
            ));
        }
    };
    if kind != Kind::Down {
        return Err(unsupported(
            packed.codes,
            format!("AutoRound's packing {format:?} with tensors of these shapes"),
        ));
    }
    gptq::weight(cx, NAME, &packed, version).map(Some)
}
