//! Schemes that are known and not undone: named and refused, never copied through.

use crate::error::Result;

use super::Weight;
use super::context::{Context, stem, unsupported};

/// `(ending of the codes, ending of a tensor beside them, name of the scheme)`.
static KNOWN: &[(&str, &str, &str)] = &[
    (".codes", ".codebooks", "AQLM"),
    (".indices", ".centroids.weight", "VPTQ"),
    (".Qidxs", ".SU", "QuIP#"),
    (".qweight", ".SU", "QTIP or QuIP#"),
    (".trellis", ".svh", "EXL3"),
    (".trellis", ".sv", "EXL3"),
    (".trellis", ".suh", "EXL3"),
    (".q_weight", ".q_scale", "EXL2"),
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
    for &(codes, beside, name) in KNOWN {
        let Some(stem) = stem(info, codes) else {
            continue;
        };
        if cx.beside(stem, beside).is_some() {
            let what =
                format!("this is {name}, which is not undone here; use the library that wrote it");
            return Err(unsupported(info, what));
        }
    }
    Ok(None)
}
