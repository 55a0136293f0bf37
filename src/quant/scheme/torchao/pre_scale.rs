//! The last step of every class: the shape is compared with the stored one, and `act_pre_scale` is applied.

use serde_json::Value as Json;

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::plan::Decoder;
use crate::plan::decode::Smoothed;
use crate::quant::scheme::Weight;
use crate::quant::scheme::context::{Context, not_known, plain, unsupported};
use crate::read::catalog::Shape;

/// A weight before `act_pre_scale` is applied.
pub(super) struct TorchaoWeight {
    pub(super) shape: Shape,
    pub(super) parts: Vec<(&'static str, usize)>,
    pub(super) decoder: Box<dyn Decoder>,
}

/// Applies `act_pre_scale`, if there is one, after verifying the shape against the stored one, if there is one.
pub(super) fn finish(
    cx: &Context<'_>,
    name: &str,
    made: TorchaoWeight,
    description: Option<&Json>,
    factors: Option<usize>,
) -> Result<Weight> {
    let TorchaoWeight {
        shape,
        mut parts,
        decoder,
    } = made;
    // a transposed or padded tensor has codes of another shape than the one that the class was pickled with
    let same = |sizes: &Json| {
        sizes.as_array().is_some_and(|sizes| {
            sizes
                .iter()
                .map(Json::as_u64)
                .eq(shape.iter().map(|n| Some(*n)))
        })
    };
    if description.is_some_and(|sizes| !same(sizes)) {
        let what = format!(
            "the codes have shape {shape:?}, but the class names {}; the tensor is transposed or padded; make it contiguous before saving",
            description.unwrap_or(&Json::Null)
        );
        return Err(unsupported(cx.info(parts[0].1), what));
    }
    let Some(factors) = factors else {
        return Ok(cx.weight_by("torchao", name, &shape, &parts, decoder.into()));
    };
    let (info, cols) = (cx.info(factors), shape.last().copied().unwrap_or_default());
    let dtype = plain(info).filter(|d| matches!(d, Dtype::F32 | Dtype::F16 | Dtype::BF16));
    let (Some(dtype), true) = (dtype, info.elements() == cols) else {
        let what = format!(
            "{} {:?} instead of a factor for each of {cols} columns",
            info.encoding,
            info.shape.as_slice()
        );
        return Err(not_known(info, what));
    };
    parts.push(("act_pre_scale", factors));
    let decoder = Smoothed {
        inner: decoder,
        columns: Some((parts.len() - 1, dtype)),
        low_rank: None,
    };
    Ok(cx.weight("torchao", name, &shape, &parts, decoder))
}
