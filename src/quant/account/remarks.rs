//! Further signs of quantisation that no scheme has consumed: keys of the metadata, fields of a header's entries, and files
//! beside a checkpoint.

use crate::base::error::Result;
use crate::quant::scheme::Context;
use crate::read::catalog::quote;

use super::metadata::{self, MetadataFindings};
use super::tensor_claim::TensorClaim;

/// Formats whose metadata may speak of stored weights.
static FORMATS: &[&str] = &["safetensors", "gguf", "pth", "dcp"];

/// Remarks of one kind that are listed.
const MAX_LISTED: usize = 8;

/// The findings that are not known. Metadata counts where weights are quantised.
pub(super) fn find(
    cx: &Context<'_>,
    slots: &[TensorClaim],
    is_quantised: bool,
) -> Result<MetadataFindings> {
    let mut found = match is_quantised && FORMATS.contains(&cx.catalog.format) {
        true => metadata::find(cx, slots)?,
        false => MetadataFindings::default(),
    };
    let fields = cx.catalog.extra_fields.iter().take(MAX_LISTED);
    found.remarks.extend(fields.map(|extra| {
        let (field, tensor) = (quote(&extra.field), quote(&extra.tensor));
        format!("the field {field} of tensor {tensor} in the header")
    }));
    let files = cx.sidecars.files.iter().take(MAX_LISTED);
    found
        .remarks
        .extend(files.map(|name| format!("the file {} beside the checkpoint", quote(name))));
    Ok(found)
}
