//! What no scheme claimed: plain tensors, and leftovers that must not pass for them.

use crate::Dtype;
use crate::catalog::{Encoding, Layout, TensorInfo, quote};
use crate::error::{Error, Result};

use super::Context;
use super::context::{plain, unsupported};

/// What becomes of a tensor that no weight was made from.
pub(crate) enum Leftover {
    /// It comes out as it is.
    Plain(Dtype),
    /// A part that only a quantised run needs, such as a scale of activations: it is left out.
    Dropped,
}

/// Scales of activations and caches: without quantised arithmetic they mean nothing.
static ACTIVATION: &[&str] = &[
    ".input_scale",
    ".input_global_scale",
    ".activation_scale",
    ".input_zero_point",
    ".output_scale",
    ".output_zero_point",
    ".input_scale_ub",
    ".weight_format",
    ".k_scale",
    ".v_scale",
    ".q_scale",
    ".prob_scale",
];

/// Decides what becomes of a tensor that no weight was made from.
pub(crate) fn left_over(cx: &Context<'_>, tensor: usize) -> Result<Leftover> {
    let info = cx.info(tensor);
    if ACTIVATION.iter().any(|s| info.name.ends_with(*s))
        && info.elements() <= 1 << 20
        && cx.quantised()
    {
        return Ok(Leftover::Dropped);
    }
    match &info.layout {
        Layout::Absent => {
            return Err(unsupported(
                info,
                "saved without data (PyTorch's meta device): leave it out",
            ));
        }
        Layout::Sparse(_) => {
            return Err(unsupported(
                info,
                "sparse: leave it out, or make it dense before saving",
            ));
        }
        _ => {}
    }
    let Encoding::Plain(dtype) = info.encoding else {
        return Err(unsupported(
            info,
            format!(
                "{} has no place in a safetensors file: leave it out",
                info.encoding
            ),
        ));
    };
    if integers_for_weights(cx, info) {
        return Err(unsupported(
            info,
            format!(
                "{dtype} under a weight's name, and no scheme here knows it: not copied as if it were a weight"
            ),
        ));
    }
    Ok(Leftover::Plain(dtype))
}

/// Whether packed integers stand where a weight belongs.
fn integers_for_weights(cx: &Context<'_>, info: &TensorInfo) -> bool {
    let integers = matches!(
        plain(info),
        Some(Dtype::I8 | Dtype::U8 | Dtype::I16 | Dtype::U16 | Dtype::I32 | Dtype::U32)
    );
    let weight = info.name.ends_with("weight") || cx.packed_name(&info.name);
    // stacked experts are parameters of their own name
    let experts = info.shape.len() > 2 && info.name.contains("experts.");
    integers && info.shape.len() >= 2 && (weight || experts)
}

impl Context<'_> {
    /// Whether this is a quantised checkpoint: it is configured as one, or a weight was claimed.
    pub(crate) fn quantised(&self) -> bool {
        !self.config.is_empty() || self.claimed.get()
    }

    /// Whether a name is that of packed codes.
    fn packed_name(&self, name: &str) -> bool {
        const PACKED: &[&str] = &[
            ".qweight",
            ".weight_packed",
            ".W_q",
            "_blocks",
            ".q_weight",
            ".trellis",
            ".Qidxs",
            ".codes",
            ".indices",
        ];
        PACKED.iter().any(|p| name.ends_with(p))
    }
}

/// An error for a weight whose parts are there but for one.
#[cold]
pub(crate) fn missing(info: &TensorInfo, part: &str) -> Error {
    Error::malformed(format!(
        "tensor {}: its {} is missing",
        quote(&info.name),
        quote(part)
    ))
    .at(info.bytes.start)
}
