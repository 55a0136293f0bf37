//! Smoothed weights: `X.pre_quant_scale`, and the low-rank part of SVDQuant. Used by the schemes that ModelOpt exports.
//!
//! AWQ and SmoothQuant multiply a layer's input by `pre_quant_scale` `[in]` and divide the columns of its weight by it;
//! SVDQuant keeps the largest part of the divided weight in `svdquant_lora_b · svdquant_lora_a` (`[out, rank]`, `[rank, in]`).
//! The weight before smoothing is `w = (dequantised + b · a) * pre_quant_scale`.
//!
//! Source: ModelOpt 0.47, `_update_svdquant` of `export/quant_utils.py`, in F32 and in this order. Its
//! matrix product fixes no order of summation: here the ranks are summed from the first to the last, each
//! product and each sum rounded to F32, so that an element may differ from torch's in its last bits.

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::plan::Decoder;
use crate::plan::decode::{LowRank, Smoothed};
use crate::read::catalog::TensorInfo;

use super::context::{Context, missing, missing_by, not_known, plain};
use super::module_names::module_of_weight;
use super::quantized_layers::algorithm;
use super::{MODELOPT, Weight, is_known_method};

/// The end of the name of the factors.
const FACTORS: &str = ".pre_quant_scale";

/// Whether a weight of the file has factors of smoothing.
pub(super) fn has_factors(cx: &Context<'_>) -> bool {
    let has = || {
        let mut tensors = cx.catalog.tensors().iter();
        tensors.any(|info| info.name.ends_with(FACTORS))
    };
    *cx.caches.has_smoothing.get_or_init(has)
}

/// Builds a weight of these parts; smoothing is undone if it has the tensors of it.
pub(super) fn weight(
    cx: &Context<'_>,
    scheme: &'static str,
    name: &str,
    shape: &[u64],
    parts: &[(&'static str, usize)],
    decoder: impl Decoder + 'static,
) -> Result<Weight> {
    // no other writer has such tensors: under its method they are left over
    let method = cx.config.method().unwrap_or_default();
    if is_known_method(method) && !cx.config.is_of(&MODELOPT) {
        return Ok(cx.weight(scheme, name, shape, parts, decoder));
    }
    weight_by(cx, scheme, name, shape, parts, Box::new(decoder))
}

/// Like [`weight`], for a decoder whose type is chosen at run time.
pub(super) fn weight_by(
    cx: &Context<'_>,
    scheme: &'static str,
    name: &str,
    shape: &[u64],
    parts: &[(&'static str, usize)],
    decoder: Box<dyn Decoder>,
) -> Result<Weight> {
    let sibling = |suffix| {
        name.strip_suffix(".weight")
            .and_then(|stem| cx.sibling(stem, suffix))
    };
    let columns = sibling(FACTORS);
    let (a, b) = (sibling(".svdquant_lora_a"), sibling(".svdquant_lora_b"));
    if (a, b) == (None, None) && has_low_rank(cx, name) {
        let codes = cx.info(parts[0].1);
        return Err(missing_by(codes, "svdquant_lora_a", "quant_algo", SVD));
    }
    // most weights: no wrapper
    if columns.is_none() && a.is_none() && b.is_none() {
        return Ok(cx.weight_by(scheme, name, shape, parts, decoder.into()));
    }
    let mut parts = parts.to_vec();
    let codes = cx.info(parts[0].1);
    let &[rows, cols] = shape else {
        return Err(not_known(
            codes,
            format!("smoothed weight of shape {shape:?}; two dimensions are expected"),
        ));
    };
    let columns = match columns {
        Some(columns) => {
            let info = cx.info(columns);
            // one factor per input, as it was divided out of the columns
            if info.elements() != cols || !matches!(info.shape[..], [_] | [1, _]) {
                return Err(not_known(
                    info,
                    format!(
                        "shape {:?} instead of a factor for each of {cols} columns",
                        info.shape
                    ),
                ));
            }
            parts.push(("pre_quant_scale", columns));
            Some((parts.len() - 1, float(info)?))
        }
        None => None,
    };
    let low_rank = match (a, b) {
        (Some(a), Some(b)) => {
            let (first, second) = (cx.info(a), cx.info(b));
            let rank = first.shape.first().copied().unwrap_or_default();
            if rank == 0 || first.shape[..] != [rank, cols] {
                return Err(not_known(
                    first,
                    format!(
                        "shape {:?} does not fit a low-rank part of {shape:?}",
                        first.shape
                    ),
                ));
            }
            if second.shape[..] != [rows, rank] {
                let what = format!(
                    "shape {:?} does not fit a low-rank part of {shape:?} of rank {rank}",
                    second.shape
                );
                return Err(not_known(second, what));
            }
            parts.extend([("low_rank_a", a), ("low_rank_b", b)]);
            Some(LowRank {
                rank,
                a: (parts.len() - 2, float(first)?),
                b: (parts.len() - 1, float(second)?),
            })
        }
        (None, None) => None,
        // without the low-rank part the weight is only the remainder that was quantised
        (Some(_), None) => return Err(missing(codes, "svdquant_lora_b")),
        (None, Some(_)) => return Err(missing(codes, "svdquant_lora_a")),
    };
    Ok(cx.weight(
        scheme,
        name,
        shape,
        &parts,
        Smoothed {
            inner: decoder,
            columns,
            low_rank,
        },
    ))
}

/// The algorithm whose weights all have a low-rank part.
const SVD: &str = "NVFP4_SVD";

/// Whether the configuration says that this weight has a low-rank part.
fn has_low_rank(cx: &Context<'_>, name: &str) -> bool {
    let algorithm = algorithm(cx, module_of_weight(name));
    algorithm.is_some_and(|algorithm| algorithm.eq_ignore_ascii_case(SVD))
}

fn float(info: &TensorInfo) -> Result<Dtype> {
    let dtype = plain(info).filter(|d| matches!(d, Dtype::F32 | Dtype::F16 | Dtype::BF16));
    dtype.ok_or_else(|| {
        not_known(
            info,
            format!("dtype {} instead of F32, F16 or BF16", info.encoding),
        )
    })
}
