//! EETQ: INT8 codes, `[in, out]`, with a scale for each output.
//!
//! Written by EETQ through transformers. Recognised by I8 `X.weight` with a sibling `X.weight_scales` (F16, BF16 or F32
//! `[out]`). `w[o, i] = q[i, o] * scale[o]`, F32.
//!
//! Weights that were quantised on a GPU are stored in the order of its kernel, and nothing in the file says so. They are read
//! as row by row, with a note in the plan.
//!
//! Source: transformers 5.23, `integrations/eetq.py`.

use crate::base::error::Result;
use crate::base::kernel::ColumnCodes;
use crate::base::kernel::Dtype;
use crate::plan::decode::{ColumnZeros, Columns, GroupOf};
use crate::quant::settings::KnownValues::Texts;
use crate::quant::settings::SchemeSettings;

use super::Weight;
use super::context::{Context, not_known, plain, stem};

/// The settings of configurations of EETQ that are known.
pub(super) static SETTINGS: SchemeSettings = SchemeSettings {
    methods: &["eetq"],
    keys: &[("weights", Texts(&["int8"]))],
};

pub(super) fn claim(cx: &Context<'_>, tensor: usize) -> Result<Option<Weight>> {
    let info = cx.info(tensor);
    if cx.dtype(tensor) != Some(Dtype::I8) || stem(info, ".weight").is_none() {
        return Ok(None);
    }
    let Some(scales) = cx.sibling(&info.name, "_scales") else {
        return Ok(None);
    };
    let found = cx.info(scales);
    let (&[depth, out], Some(dtype @ (Dtype::F16 | Dtype::BF16 | Dtype::F32))) =
        (&info.shape[..], plain(found))
    else {
        let what = format!(
            "{} {:?} does not scale {:?}",
            found.encoding,
            &found.shape[..],
            &info.shape[..]
        );
        return Err(not_known(found, what));
    };
    if found.shape[..] != [out] || depth == 0 || out == 0 {
        let what = format!("{:?} does not scale {out} outputs", &found.shape[..]);
        return Err(not_known(found, what));
    }
    cx.note("EETQ: read as [in, out] row by row; codes in the order of a GPU kernel look the same");
    let decoder = Columns {
        rows: out,
        cols: depth,
        codes: ColumnCodes::Bytes,
        stored: (depth, out),
        groups: 1,
        group_of: GroupOf::Every(depth),
        scales: (1, dtype),
        // `ColumnCodes::Bytes` are unsigned: the kernel flips the sign bit, which adds 128
        zeros: ColumnZeros::All(128.0),
    };
    Ok(Some(cx.weight(
        "eetq",
        &*info.name,
        &[out, depth],
        &[("codes", tensor), ("scale", scales)],
        decoder,
    )))
}
