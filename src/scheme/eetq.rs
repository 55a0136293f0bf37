//! EETQ: INT8, `[in, out]`, a scale for each output.
//!
//! `w[o, i] = q[i, o] * scale[o]`. Quantised on a GPU the codes are in the order that its kernel wants, and
//! nothing in the file tells. Source: transformers 5.23, `integrations/eetq.py`.

use crate::Dtype;
use crate::decode::{ColumnZeros, Columns, GroupOf};
use crate::error::Result;
use crate::kernel::ColumnCodes;

use super::Weight;
use super::context::{Context, malformed, plain, stem};

pub(super) fn claim(cx: &Context<'_>, tensor: usize) -> Result<Option<Weight>> {
    let info = cx.info(tensor);
    if cx.dtype(tensor) != Some(Dtype::I8) || stem(info, ".weight").is_none() {
        return Ok(None);
    }
    let Some(scales) = cx.beside(&info.name, "_scales") else {
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
        return Err(malformed(found, what));
    };
    if found.shape[..] != [out] || depth == 0 || out == 0 {
        let what = format!("{:?} does not scale {out} outputs", &found.shape[..]);
        return Err(malformed(found, what));
    }
    cx.note("EETQ: read as [in, out]; codes that a GPU has put in its kernel's order cannot be told from others");
    let decoder = Columns {
        rows: out,
        cols: depth,
        codes: ColumnCodes::Bytes,
        stored: (depth, out),
        groups: 1,
        group_of: GroupOf::Every(depth),
        scales: (1, dtype),
        // the kernel takes signed codes as unsigned ones
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
