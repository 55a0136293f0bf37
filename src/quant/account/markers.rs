//! Markers of ComfyUI that no scheme has read: a tensor that is in no layer, an entry of the header that names no layer of the
//! file, a key of the header beside the entries, and headers of several files that differ.

use crate::base::error::{ErrorKind, Result};
use crate::quant::scheme::{
    COMFYUI_HEADER, COMFYUI_MARKED, COMFYUI_MARKER, Context, headers_contradict, markers_of_header,
    module_of_weight, unknown_beside_markers,
};
use crate::read::catalog::quote;

use super::tensor_claim::{Refusals, TensorClaim, add};

const WHAT: &str = "the markers of layers";

/// Adds quantised weights without a marker to `refused` if there is a marker that is no weight's: it may be theirs, under a
/// name with another prefix. Without such weights, it is a warning.
pub(super) fn find(
    cx: &Context<'_>,
    slots: &[TensorClaim],
    refused: &mut Refusals,
    warnings: &mut Vec<String>,
) -> Result<()> {
    let Some(why) = unread(cx, slots)? else {
        return Ok(());
    };
    let before = refused.len();
    let markers = header(cx)?.filter(|_| !is_contradicted(cx));
    for (tensor, slot) in slots.iter().enumerate() {
        let TensorClaim::Weight(weight) = slot else {
            continue;
        };
        cx.budget.steps(1 + weight.name.len() as u64 / 16, WHAT)?;
        let _name = cx.budget.temporary(weight.name.len() as u64 + 16, WHAT)?;
        let module = module_of_weight(&weight.name);
        let of_header = markers.is_some_and(|markers| markers.contains_key(module));
        let is_marked = of_header || cx.sibling(module, COMFYUI_MARKED).is_some();
        if !is_marked {
            add(cx, refused, tensor, format!("{why}, and may be its own"))?;
        }
    }
    if refused.len() == before {
        cx.budget.text(why.len(), WHAT)?;
        warnings.push(format!("{why}, and is ignored"));
    }
    Ok(())
}

type HeaderLayers = std::collections::HashMap<String, serde_json::Value>;

/// The markers of the header. If it cannot be read, weights are refused where schemes look it up.
fn header<'c>(cx: &'c Context<'_>) -> Result<Option<&'c HeaderLayers>> {
    if cx.metadata_value(COMFYUI_HEADER).is_none() {
        return Ok(None);
    }
    match markers_of_header(cx) {
        Ok(markers) => Ok(Some(markers)),
        Err(e) if matches!(e.kind(), ErrorKind::Unexplained(_)) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Whether the headers of several files contradict each other. One that cannot be read is refused elsewhere.
fn is_contradicted(cx: &Context<'_>) -> bool {
    headers_contradict(cx).unwrap_or(false)
}

/// The statement about a marker that no weight has.
fn unread(cx: &Context<'_>, slots: &[TensorClaim]) -> Result<Option<String>> {
    if cx.catalog.format == "gguf" {
        return Ok(None);
    }
    // at the top of a file; in a module that has no weight, its text is refused as any other
    if let Some(tensor) = cx.position(COMFYUI_MARKER)
        && matches!(slots[tensor], TensorClaim::Free)
    {
        let text = format!("the marker {} is in no layer", quote(COMFYUI_MARKER));
        return Ok(Some(text));
    }
    let Some(markers) = header(cx)? else {
        return Ok(None);
    };
    if is_contradicted(cx) {
        let text = format!("{} differs between the files", quote(COMFYUI_HEADER));
        return Ok(Some(text));
    }
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
    if let Some(first) = first {
        let (first, header) = (quote(first), quote(COMFYUI_HEADER));
        return Ok(Some(format!(
            "the marker of {first} in {header} names no layer"
        )));
    }
    // with layers, the keys are compared for each of them
    let beside = match markers.is_empty() {
        true => unknown_beside_markers(cx)?,
        false => None,
    };
    Ok(beside.map(|key| format!("{} in {} is not known", quote(&key), quote(COMFYUI_HEADER))))
}
