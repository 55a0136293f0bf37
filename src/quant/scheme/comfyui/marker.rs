//! Markers of ComfyUI's layers: `{"format": name, …}`, with options at the top or under `params`.

use std::collections::HashMap;

use serde_json::{Map, Value as Json};

use crate::base::error::{Error, Result};
use crate::quant::scheme::context::{Context, not_known};
use crate::quant::settings::is_nothing;
use crate::read::catalog::{TensorInfo, Value, quote};
use crate::read::json::{JsonReader, Tree};

/// The key of the header that has the markers of all layers.
pub(crate) const HEADER: &str = "_quantization_metadata";

/// Options that are known: those that the formats read, and those that do not concern the stored weight.
static OPTIONS: &[&str] = &[
    "format",
    "params",
    "convrot",
    "convrot_groupsize",
    "group_size",
    "num_experts",
    // arithmetic of the layer
    "full_precision_matrix_mult",
    "linear_dtype",
];

/// The marker of a layer.
pub(super) struct LayerMarker {
    pub(super) format: String,
    /// The tensor that it is stored in, if it is not in the header.
    pub(super) tensor: Option<usize>,
    options: Map<String, Json>,
}

impl LayerMarker {
    /// The marker of a module, if it has one. A tensor takes precedence over the header.
    pub(super) fn find(cx: &Context<'_>, info: &TensorInfo, module: &str) -> Result<Option<Self>> {
        if let Some(tensor) = cx.sibling(module, ".comfy_quant") {
            let stored = cx.info(tensor);
            let bytes = cx.peek(tensor)?;
            let marker = serde_json::from_slice(&bytes)
                .map_err(|e| not_known(stored, format!("it is no marker of a layer: {e}")))?;
            return Self::new(info, marker, Some(tensor)).map(Some);
        }
        if cx.catalog.metadata.is_empty() {
            return Ok(None);
        }
        match markers_of_header(cx)?.get(module) {
            Some(marker) => Self::new(info, marker.clone(), None).map(Some),
            None => Ok(None),
        }
    }

    fn new(info: &TensorInfo, marker: Json, tensor: Option<usize>) -> Result<Self> {
        let Json::Object(mut options) = marker else {
            return Err(not_known(info, "its marker is no JSON object"));
        };
        if let Some(Json::Object(params)) = options.remove("params") {
            // options at the top take precedence
            for (key, value) in params {
                options.entry(key).or_insert(value);
            }
        }
        let Some(format) = options
            .get("format")
            .and_then(Json::as_str)
            .map(str::to_owned)
        else {
            return Err(not_known(info, "its marker names no format"));
        };
        let unknown = options
            .iter()
            .find(|(key, value)| !OPTIONS.contains(&&***key) && !is_nothing(value));
        if let Some((key, value)) = unknown {
            let what = format!(
                "its marker says {}: {value}, for ComfyUI's {}",
                quote(key),
                quote(&format)
            );
            return Err(not_known(info, what));
        }
        Ok(Self {
            format,
            tensor,
            options,
        })
    }

    pub(super) fn integer(&self, option: &str) -> Option<u64> {
        self.options.get(option)?.as_u64()
    }

    pub(super) fn flag(&self, option: &str) -> bool {
        self.options
            .get(option)
            .is_some_and(|on| on.as_bool() == Some(true))
    }
}

/// The markers of the header, by module; none if it has none. They are read once.
pub(crate) fn markers_of_header<'c>(cx: &'c Context<'_>) -> Result<&'c HashMap<String, Json>> {
    if let Some(known) = cx.caches.markers.get() {
        return Ok(known);
    }
    let read = header_markers(cx)?;
    Ok(cx.caches.markers.get_or_init(|| read))
}

fn header_markers(cx: &Context<'_>) -> Result<HashMap<String, Json>> {
    let Some(Value::Text(text)) = cx.metadata_value(HEADER) else {
        return Ok(HashMap::new());
    };
    let what = |why: &dyn std::fmt::Display| {
        Error::unexplained(format!("{} of the header: {why}", quote(HEADER)))
    };
    let reader = JsonReader::new(cx.budget, "the markers of layers");
    let mut parsed = reader.parse(text, Tree(&reader), |e| what(&e))?;
    let version = parsed.get("format_version").and_then(Json::as_str);
    if let Some(version) = version.filter(|version| *version != "1.0") {
        return Err(what(&format!("format_version {}", quote(version))));
    }
    match parsed.get_mut("layers").map(Json::take) {
        Some(Json::Object(layers)) => Ok(layers.into_iter().collect()),
        _ => Err(what(&"it has no layers")),
    }
}
