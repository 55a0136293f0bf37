//! Schemes that are recognised and refused by name, so that their codes are not copied as if they were weights.
//!
//! Each row of the table names two tensors that occur together in that scheme only. There is no decoder for these schemes;
//! this file is last in `SCHEMES`, so that a scheme with a decoder takes precedence.

use crate::base::error::Result;
use crate::base::kernel::Dtype;

use super::Weight;
use super::context::{Context, stem, unsupported};

/// `(suffix of the codes, suffix of a sibling tensor, name of the scheme)`.
static KNOWN: &[(&str, &str, &str)] = &[
    (".codes", ".codebooks", "AQLM"),
    (".indices", ".centroids.weight", "VPTQ"),
    (".Qidxs", ".SU", "QuIP#"),
    (".qweight", ".SU", "QTIP or QuIP#"),
    (".trellis", ".svh", "EXL3"),
    (".trellis", ".sv", "EXL3"),
    (".trellis", ".suh", "EXL3"),
    (".q_weight", ".q_scale", "EXL2"),
    (".qweight", ".wscales", "SVDQuant of nunchaku"),
    (".B", ".s_channel", "QQQ"),
    (".encoded_exponent", ".sign_mantissa", "DFloat11"),
    (".weight", ".scales_and_zeros", "gpt-fast's INT4"),
    (".B", ".s", "Marlin"),
    (".B_24", ".B_meta", "Marlin 2:4"),
    (".weight_packed", ".meta", "Marlin 2:4"),
    (".dense_weights", ".row_offsets", "SpQR"),
    (".weight", ".tables2", "HIGGS"),
    (".qweight", ".forward_hadamard_matrix", "FP-Quant"),
    (".dqweight", ".forward_hadamard_matrix", "FP-Quant"),
    (".W_q", ".meta", "SINQ"),
    (
        ".compressed",
        ".bitmask",
        "compressed-tensors' sparse bitmask",
    ),
];

pub(super) fn claim(cx: &Context<'_>, tensor: usize) -> Result<Option<Weight>> {
    let info = cx.info(tensor);
    let is_float = matches!(
        cx.dtype(tensor),
        Some(Dtype::F32 | Dtype::F16 | Dtype::BF16)
    );
    for &(codes, sibling, name) in KNOWN {
        let Some(stem) = stem(info, codes) else {
            continue;
        };
        // a weight in floating point is none of them, whatever stands beside it
        if codes == ".weight" && is_float {
            continue;
        }
        if cx.sibling(stem, sibling).is_some() {
            let what =
                format!("{name} is not supported; dequantise it with the library that wrote it");
            return Err(unsupported(info, what));
        }
    }
    Ok(None)
}
