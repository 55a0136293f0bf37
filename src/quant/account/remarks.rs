//! Further signs of quantisation that no scheme has consumed: keys of the metadata, fields of a header's entries, and files
//! beside a checkpoint.

use crate::base::error::Result;
use crate::quant::scheme::Context;
use crate::read::catalog::quote;

use super::metadata;
use super::tensor_claim::TensorClaim;

/// Formats whose metadata may speak of stored weights.
static FORMATS: &[&str] = &["safetensors", "gguf", "pth", "dcp"];

/// Remarks of one kind that are listed.
const MAX_LISTED: usize = 8;

/// Adds what is not known. Metadata counts where weights are quantised.
pub(super) fn find(
    cx: &Context<'_>,
    slots: &[TensorClaim],
    is_quantised: bool,
    remarks: &mut Vec<String>,
) -> Result<()> {
    if is_quantised && FORMATS.contains(&cx.catalog.format) {
        metadata::find(cx, slots, remarks)?;
    }
    let fields = cx.catalog.extra_fields.iter().take(MAX_LISTED);
    remarks.extend(fields.map(|extra| {
        let (field, tensor) = (quote(&extra.field), quote(&extra.tensor));
        format!("the field {field} of tensor {tensor} in the header")
    }));
    let files = cx.sidecars.files.iter().take(MAX_LISTED);
    remarks.extend(files.map(|name| format!("the file {} beside the checkpoint", quote(name))));
    Ok(())
}
