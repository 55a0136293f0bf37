//! Scales of integer codes that are quantised themselves: `scale = code * weight_scale_2`.
//!
//! Refused: what Quark's own reader does not read, namely codes of other than 8 bits, or more than one second scale.
//!
//! Source: Quark 0.13, `torch/export/nn/modules/realquantizer.py` (`SequentialRealQuantizer`).

use serde_json::Value as Json;

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::base::kernel::{from_bf16, from_f16};
use crate::plan::decode::{Factors, GlobalScale};
use crate::quant::scheme::context::{Context, not_known, plain, unsupported};

use super::config::{of_scales, text};

/// The dtype of quantised scales, and the second scale.
pub(super) struct QuantisedScales {
    /// Dtype of the codes of scales.
    pub(super) dtype: Dtype,
    pub(super) number: f32,
    tensor: usize,
    zero: Option<usize>,
}

impl QuantisedScales {
    /// `second` is the tensor with the second scale, `step` its configuration.
    pub(super) fn find(
        cx: &Context<'_>,
        stem: &str,
        second: usize,
        step: Option<&Json>,
    ) -> Result<Self> {
        let info = cx.info(second);
        let Some(step) = step.filter(|step| of_scales(step)) else {
            return Err(unsupported(
                info,
                "nested scales are not described in the quantization config",
            ));
        };
        // the forms that `SequentialRealQuantizer` reads
        let dtype = match (text(step, "dtype"), text(step, "qscheme")) {
            ("fp8_e4m3", "per_tensor") => Dtype::F8_E4M3,
            ("fp8_e5m2", "per_tensor") => Dtype::F8_E5M2,
            ("int8", "per_tensor") => Dtype::I8,
            ("uint8", "per_tensor") => Dtype::U8,
            (dtype, scheme) => {
                let what = format!(
                    "nested scales of {dtype:?} {scheme:?}: only 8 bits per tensor are supported"
                );
                return Err(unsupported(info, what));
            }
        };
        // per tensor, as configured
        if info.elements() != 1 {
            return Err(not_known(
                info,
                format!(
                    "shape {:?} instead of a single number",
                    info.shape.as_slice()
                ),
            ));
        }
        let bytes = cx.peek(second)?;
        let number = match (plain(info), &bytes[..]) {
            (Some(Dtype::F32), &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]),
            (Some(Dtype::F16), &[a, b]) => from_f16([a, b]),
            (Some(Dtype::BF16), &[a, b]) => from_bf16([a, b]),
            _ => {
                return Err(not_known(
                    info,
                    format!("dtype {} instead of F32, F16 or BF16", info.encoding),
                ));
            }
        };
        let zero = cx.sibling(stem, ".weight_zero_point_2");
        if let Some(zero) = zero
            && cx.peek(zero)?.iter().any(|byte| *byte != 0)
        {
            return Err(unsupported(
                cx.info(zero),
                "the zero point of nested scales is not 0",
            ));
        }
        Ok(Self {
            dtype,
            number,
            tensor: second,
            zero,
        })
    }

    /// Its parts, which follow the parts of the weight.
    pub(super) fn parts(&self) -> impl Iterator<Item = (&'static str, usize)> {
        [("scale_of_scales", self.tensor)]
            .into_iter()
            .chain(self.zero.map(|zero| ("zero_of_scales", zero)))
    }

    /// The second scale, as part `part`.
    pub(super) fn global(&self, cx: &Context<'_>, part: usize) -> GlobalScale {
        GlobalScale {
            part,
            dtype: plain(cx.info(self.tensor)).unwrap_or(Dtype::F32),
            count: 1,
        }
    }

    /// The granularity of the scales: per row, or one for all.
    pub(super) fn factors(
        &self,
        cx: &Context<'_>,
        scale: usize,
        [rows, cols]: [u64; 2],
    ) -> Result<Factors> {
        let info = cx.info(scale);
        match info.shape[..] {
            // scales of another dtype than configured would be decoded as other numbers
            _ if plain(info) != Some(self.dtype) => {}
            [] | [1] => return Ok(Factors::one(1, self.dtype)),
            [count] if count == rows => return Ok(Factors::per_group(1, self.dtype, cols)),
            _ => {}
        }
        let what = format!(
            "{} {:?} does not scale {:?}",
            info.encoding,
            info.shape.as_slice(),
            [rows, cols]
        );
        Err(not_known(info, what))
    }
}
