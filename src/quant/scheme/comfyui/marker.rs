//! Markers of ComfyUI's layers: `{"format": name, …}`, with options at the top or under `params`.

use std::collections::hash_map::Entry;
use std::fmt::Display;

use serde_json::{Map, Value as Json};

use crate::base::error::{Error, Result};
use crate::quant::scheme::context::{Context, HeaderMarkers, not_known};
use crate::quant::settings::KnownValues::{Any, Count, Counts, Flag, Texts};
use crate::quant::settings::{SchemeSettings, is_nothing, unknown_in_descriptor};
use crate::read::catalog::{TensorInfo, Value, quote};
use crate::read::json::{JsonReader, Tree};

/// The key of the header that has the markers of all layers.
pub(crate) const HEADER: &str = "_quantization_metadata";

/// The name of the tensor with the marker of a layer, in its module.
pub(crate) const MARKER: &str = "comfy_quant";

/// [`MARKER`] behind the name of a module.
pub(crate) const MARKED: &str = ".comfy_quant";

/// The options of a layer's marker: those that the formats read, and those that do not concern the stored weight.
static OPTIONS: SchemeSettings = SchemeSettings {
    methods: &[],
    keys: &[
        ("format", Any),
        ("convrot", Flag),
        ("convrot_groupsize", Count),
        ("group_size", Count),
        ("num_experts", Count),
        // the dtype and shape before it was quantised: padding is not part of that shape
        ("orig_dtype", Any),
        ("orig_shape", Counts),
        // arithmetic of the layer
        ("full_precision_matrix_mult", Any),
        ("linear_dtype", Any),
    ],
};

/// The keys of the header beside the markers.
static HEADER_KEYS: SchemeSettings = SchemeSettings {
    methods: &[],
    keys: &[("format_version", Texts(&["1.0"])), ("layers", Any)],
};

/// Options of which one says how bytes are read.
static DECIDING: &[&str] = &["format", "convrot", "convrot_groupsize", "group_size"];

/// The marker of a layer.
pub(super) struct LayerMarker {
    pub(super) format: String,
    /// The tensor that it is stored in, if it is not in the header.
    pub(super) tensor: Option<usize>,
    options: Map<String, Json>,
}

impl LayerMarker {
    /// The marker of a module, if it has one: a tensor or an entry of the header, or both, if they say the same.
    pub(super) fn find(cx: &Context<'_>, info: &TensorInfo, module: &str) -> Result<Option<Self>> {
        let header = Self::of_header(cx, info, module)?;
        let Some(tensor) = cx.sibling(module, MARKED) else {
            return Ok(header);
        };
        let stored = cx.info(tensor);
        let bytes = cx.peek(tensor)?;
        let none =
            |why: &dyn Display| not_known(stored, format!("it is no marker of a layer: {why}"));
        let text = std::str::from_utf8(&bytes).map_err(|e| none(&e))?;
        let reader = JsonReader::new(cx.budget, "the markers of layers");
        let marker = reader.parse(text, Tree(&reader), |e| none(&e))?;
        let marker = Self::new(cx, info, marker, Some(tensor))?;
        let said = |marker: &Self, key: &str| {
            let value = marker.options.get(key).cloned();
            value.filter(|value| !is_nothing(value))
        };
        let differs = header.iter().find_map(|header| {
            let differs = |key: &&&str| said(header, key) != said(&marker, key);
            DECIDING.iter().find(differs)
        });
        match differs {
            Some(key) => {
                let what = format!(
                    "its marker and its entry of the header differ in {}",
                    quote(key)
                );
                Err(not_known(info, what))
            }
            None => Ok(Some(marker)),
        }
    }

    fn of_header(cx: &Context<'_>, info: &TensorInfo, module: &str) -> Result<Option<Self>> {
        if cx.catalog.metadata.is_empty() {
            return Ok(None);
        }
        let known = HeaderMarkers::known(cx)?;
        let Some(marker) = known.layers.get(module) else {
            return Ok(None);
        };
        cx.know_descriptor(
            info,
            "the markers of the header",
            &known.beside,
            &HEADER_KEYS,
        )?;
        Self::new(cx, info, marker.clone(), None).map(Some)
    }

    fn new(
        cx: &Context<'_>,
        info: &TensorInfo,
        marker: Json,
        tensor: Option<usize>,
    ) -> Result<Self> {
        let Json::Object(mut options) = marker else {
            return Err(not_known(info, "its marker is no JSON object"));
        };
        match options.remove("params") {
            Some(Json::Object(params)) => {
                // options at the top take precedence
                for (key, value) in params {
                    options.entry(key).or_insert(value);
                }
            }
            None | Some(Json::Null) => {}
            Some(_) => {
                return Err(not_known(
                    info,
                    "the params of its marker are no JSON object",
                ));
            }
        }
        let Some(format) = options
            .get("format")
            .and_then(Json::as_str)
            .map(str::to_owned)
        else {
            return Err(not_known(info, "its marker names no format"));
        };
        // a marker has no more than what the formats need, so that each option may decide
        if let Some(unknown) = unknown_in_descriptor(&options, &OPTIONS, cx.budget)?.first() {
            let what = format!(
                "its marker says {}: {}, for ComfyUI's {}",
                quote(&unknown.key),
                unknown.value,
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

    /// The shape before quantisation, if the marker says it.
    pub(super) fn shape(&self) -> Option<Vec<u64>> {
        let sizes = self.options.get("orig_shape")?.as_array()?;
        sizes.iter().map(Json::as_u64).collect()
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
pub(crate) fn markers_of_header<'c>(
    cx: &'c Context<'_>,
) -> Result<&'c std::collections::HashMap<String, Json>> {
    Ok(&HeaderMarkers::known(cx)?.layers)
}

/// The first key of the header beside its markers that is not known.
pub(crate) fn unknown_beside_markers(cx: &Context<'_>) -> Result<Option<String>> {
    let beside = &HeaderMarkers::known(cx)?.beside;
    let unknown = unknown_in_descriptor(beside, &HEADER_KEYS, cx.budget)?;
    Ok(unknown.into_iter().next().map(|setting| setting.key))
}

/// Whether the headers of several files say different things of one layer, or of all.
pub(crate) fn headers_contradict(cx: &Context<'_>) -> Result<bool> {
    Ok(HeaderMarkers::known(cx)?.contradicts)
}

impl HeaderMarkers {
    fn known<'x>(cx: &'x Context<'_>) -> Result<&'x Self> {
        if let Some(known) = cx.caches.markers.get() {
            return Ok(known);
        }
        let tensors = cx.catalog.tensors();
        cx.budget
            .steps(1 + tensors.len() as u64 / 4, "the markers of layers")?;
        let read = Self {
            tensors: tensors.iter().any(|info| info.name.ends_with(MARKED)),
            ..Self::read(cx)?
        };
        Ok(cx.caches.markers.get_or_init(|| read))
    }

    /// Whether a layer has a marker.
    pub(super) fn any(cx: &Context<'_>) -> Result<bool> {
        let known = Self::known(cx)?;
        Ok(known.tensors || !known.layers.is_empty())
    }

    /// None if the header has none. Each file of a checkpoint may have the markers of its own layers.
    fn read(cx: &Context<'_>) -> Result<Self> {
        let Some(Value::Text(text)) = cx.metadata_value(HEADER) else {
            return Ok(Self::default());
        };
        let mut all = Self::of(cx, text)?;
        let further = cx.catalog.differing_values.iter();
        for (_, value) in further.filter(|(key, _)| &**key == HEADER) {
            let own = match value {
                Value::Text(text) => Self::of(cx, text)?,
                _ => Self::default(),
            };
            all.contradicts |= own.beside != all.beside;
            for (layer, marker) in own.layers {
                match all.layers.entry(layer) {
                    Entry::Vacant(free) => {
                        free.insert(marker);
                    }
                    Entry::Occupied(taken) => all.contradicts |= *taken.get() != marker,
                }
            }
        }
        Ok(all)
    }

    /// The markers of one header.
    fn of(cx: &Context<'_>, text: &str) -> Result<Self> {
        let what = |why: &dyn Display| {
            Error::unexplained(format!("{} of the header: {why}", quote(HEADER)))
        };
        let reader = JsonReader::new(cx.budget, "the markers of layers");
        let parsed = reader.parse(text, Tree(&reader), |e| what(&e))?;
        let Json::Object(mut beside) = parsed else {
            return Err(what(&"it has no layers"));
        };
        match beside.remove("layers") {
            Some(Json::Object(layers)) => Ok(Self {
                layers: layers.into_iter().collect(),
                beside,
                ..Self::default()
            }),
            _ => Err(what(&"it has no layers")),
        }
    }
}
