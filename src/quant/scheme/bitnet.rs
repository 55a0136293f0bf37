//! BitNet: weights of -1, 0 and 1, four rows to a byte.
//!
//! Written by transformers. Recognised by U8 `weight` with a `weight_scale` of one element, if the configuration names
//! `bitnet` or is absent.
//!
//! `weight` is U8 `[out / 4, in]`: row `p * out / 4 + r` is in the bits `2p` and `2p + 1` of stored row `r`, as code `w + 1`.
//! `weight_scale` is one F32, F16 or BF16. `w = (code - 1) / scale` (`BitLinear`); with `linear_class` "autobitlinear",
//! `w = (code - 1) * scale`.
//!
//! Source: transformers `integrations/bitnet.py` (`unpack_weights`, `BitLinear`, `AutoBitLinear`).

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::base::kernel::{CodePacking, CodeValue, Formula};
use crate::plan::decode::{Codes, Factors, Grouped, Planes, Scales, Zeros};
use crate::quant::settings::KnownValues::{Any, Texts};
use crate::quant::settings::SchemeSettings;

use super::Weight;
use super::context::{Context, not_known, plain, stem};
use super::stated::{Alternatives, StatedNumbers};

/// The settings of configurations of BitNet that are known.
pub(super) static SETTINGS: SchemeSettings = SchemeSettings {
    methods: &["bitnet"],
    keys: &[
        ("linear_class", Texts(&["bitlinear", "autobitlinear"])),
        ("quantization_mode", Texts(&["offline", "online"])),
        ("rms_norm_eps", Any),
        ("use_rms_norm", Any),
    ],
};

/// Four codes in a byte.
pub(super) fn stated(_: &Context<'_>, _: &str) -> Alternatives {
    vec![vec![StatedNumbers::integers(Some(2)).packed()]]
}

pub(super) fn claim(cx: &Context<'_>, tensor: usize) -> Result<Option<Weight>> {
    let info = cx.info(tensor);
    // other schemes have packed bytes with a scale of this name
    if cx.dtype(tensor) != Some(Dtype::U8) || !(cx.config.is(&["bitnet"]) || cx.config.is_empty()) {
        return Ok(None);
    }
    let Some(scale) = stem(info, ".weight").and_then(|stem| cx.sibling(stem, ".weight_scale"))
    else {
        return Ok(None);
    };
    let found = cx.info(scale);
    let float = plain(found).filter(|d| matches!(d, Dtype::F32 | Dtype::F16 | Dtype::BF16));
    let (Some(dtype), 1, [stored, cols]) = (float, found.elements(), &info.shape[..]) else {
        let what = format!(
            "{} {:?} and {:?} of U8",
            found.encoding,
            found.shape.as_slice(),
            info.shape.as_slice()
        );
        // without a configuration this shape is the only evidence of BitNet, and another scheme may claim the tensor
        return if cx.config.is_empty() {
            Ok(None)
        } else {
            Err(not_known(found, what))
        };
    };
    let auto = cx.config.text("linear_class") == Some("autobitlinear");
    if cx.config.text("linear_class").is_none() {
        cx.note("BitNet: the configuration names no linear_class; scales divide, as in BitLinear");
    }
    let rows = stored
        .checked_mul(4)
        .ok_or_else(|| not_known(info, "number of rows overflows"))?;
    let mut ternary = [0.0; 16];
    // code 3 never occurs in what transformers writes; `unpack_weights` subtracts 1 from it like from the others
    ternary[..4].copy_from_slice(&[-1.0, 0.0, 1.0, 2.0]);
    let planes = Planes {
        stored: *stored,
        word: 1,
        bits: 2,
        // plane `p` of `unpack_weights` is bits `2p` and `2p + 1`
        shifts: vec![0, 2, 4, 6],
    };
    let codes = Codes {
        planes: Some(planes),
        ..Codes::new(
            CodePacking::Bytes,
            CodeValue::Table(Box::new(ternary)),
            *cols,
        )
    };
    let decoder = Grouped {
        rows,
        cols: *cols,
        matrix_rows: rows.max(1),
        codes,
        formula: if auto {
            Formula::Scale
        } else {
            Formula::Divide
        },
        scales: Scales::Stored(Factors::one(1, dtype)),
        zeros: Zeros::None,
    };
    let parts = [("codes", tensor), ("scale", scale)];
    Ok(Some(cx.weight(
        "bitnet",
        &*info.name,
        &[rows, *cols],
        &parts,
        decoder,
    )))
}
