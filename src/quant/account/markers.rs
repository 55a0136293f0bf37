//! Markers of ComfyUI's header that name no layer of the file, so that no scheme has read them.

use crate::base::error::{ErrorKind, Result};
use crate::quant::scheme::{COMFYUI_HEADER, Context, markers_of_header};
use crate::read::catalog::quote;

use super::tensor_claim::{Refusals, TensorClaim, add};

const WHAT: &str = "the markers of layers";

/// Adds quantised weights without a marker to `refused` if a marker of the header names no layer: it may be theirs, under a
/// name with another prefix. Without such weights, it is a warning.
pub(super) fn find(
    cx: &Context<'_>,
    slots: &[TensorClaim],
    refused: &mut Refusals,
    warnings: &mut Vec<String>,
) -> Result<()> {
    if cx.catalog.format != "safetensors" || cx.metadata_value(COMFYUI_HEADER).is_none() {
        return Ok(());
    }
    let markers = match markers_of_header(cx) {
        Ok(markers) => markers,
        // its weights are refused where schemes look it up
        Err(e) if matches!(e.kind(), ErrorKind::Unexplained(_)) => return Ok(()),
        Err(e) => return Err(e),
    };
    // the first by name: the order of a map is unspecified
    let mut first: Option<&str> = None;
    for layer in markers.keys() {
        cx.budget.steps(1 + layer.len() as u64 / 16, WHAT)?;
        let _name = cx.budget.temporary(layer.len() as u64 + 16, WHAT)?;
        let is_earlier = first.is_none_or(|first| &**layer < first);
        if is_earlier && cx.sibling(layer, ".weight").is_none() {
            first = Some(layer);
        }
    }
    let Some(first) = first else {
        return Ok(());
    };
    let why = format!(
        "the marker of {} in {} names no layer",
        quote(first),
        quote(COMFYUI_HEADER)
    );
    let before = refused.len();
    for (tensor, slot) in slots.iter().enumerate() {
        let TensorClaim::Weight(weight) = slot else {
            continue;
        };
        cx.budget.steps(1 + weight.name.len() as u64 / 16, WHAT)?;
        let _name = cx.budget.temporary(weight.name.len() as u64 + 16, WHAT)?;
        let module = weight.name.strip_suffix(".weight").unwrap_or(&weight.name);
        if !markers.contains_key(module) && cx.sibling(module, ".comfy_quant").is_none() {
            add(cx, refused, tensor, format!("{why}, and may be its own"))?;
        }
    }
    if refused.len() == before {
        cx.budget.text(why.len(), WHAT)?;
        warnings.push(format!("{why}, and is ignored"));
    }
    Ok(())
}
