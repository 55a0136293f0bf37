//! AutoRound: GPTQ's or AWQ's tensors, and a `packing_format` that says which and how zero points are meant.
//!
//! | `packing_format` | codes | zero points |
//! |---|---|---|
//! | `auto_round`, `auto_round:gptqmodel` | GPTQ | as they are |
//! | `auto_round:auto_gptq`, `auto_round:gptq`, `auto` | GPTQ | less one |
//! | `auto_round:auto_awq`, `auto_round:awq` | AWQ | as they are |
//!
//! Codes of 5 to 7 bits are streams, in AWQ's order there. What `auto_round:llm_compressor` and `:fp8` write is
//! read by the schemes of those.
//!
//! Sources: auto-round 0.16.1, `inference/backend.py` and `convert_model.py`, `utils/bit_packing.py`,
//! `auto_round_extension/torch/qlinear_torch.py` and `qlinear_torch_zp.py`.

use crate::error::Result;

use super::Weight;
use super::context::{Context, unsupported};
use super::qweight::{Kind, Packed};
use super::{awq, gptq};

/// Its name in plans.
const NAME: &str = "auto-round";

pub(super) fn claim(cx: &Context<'_>, tensor: usize) -> Result<Option<Weight>> {
    if !cx.config.is(&["auto-round", "auto_round", "intel/auto-round"]) {
        return Ok(None);
    }
    let Some(packed) = Packed::find(cx, tensor)? else { return Ok(None) };
    let format = cx.config.text("packing_format").or_else(|| cx.config.text("backend")).unwrap_or("auto");
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
        return Err(unsupported(packed.codes, format!("AutoRound's packing {format:?} with tensors of these shapes")));
    }
    gptq::weight(cx, NAME, &packed, version).map(Some)
}
