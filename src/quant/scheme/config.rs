//! The quantisation configuration of a checkpoint, from the JSON files next to its weights.

mod sections;

use std::path::Path;
use std::sync::{Arc, LazyLock};

use serde_json::{Map, Value};

use crate::base::error::Result;
use crate::base::limits::{Budget, Limits};
use crate::models::config::{ModelConfig, document};
use crate::read::source::files::Files;

use sections::sections;
pub(crate) use sections::{ConfigSection, is_rotation};

/// Longest text that is a setting, in bytes. Settings are names and versions; schemes compare them once per tensor.
const MAX_SETTING_BYTES: usize = 256;

/// Where a quantisation configuration may be: the file, and dotted keys within it, in this order. An empty key is the whole
/// file.
static LOCATIONS: &[(&str, &[&str])] = &[
    (
        "config.json",
        &[
            "quantization_config",
            "text_config.quantization_config",
            "quantization",
            // the older key of compressed-tensors
            "compression_config",
        ],
    ),
    ("hf_quant_config.json", &["quantization"]),
    ("quantize_config.json", &[""]),
    ("quant_config.json", &[""]),
    ("quantization_map.json", &[""]),
    ("quanto_qmap.json", &[""]),
    // AutoRound's, beside the same in `config.json`
    ("quantization_config.json", &[""]),
];

/// Whether a file of this name is one that configurations are read from.
pub(crate) fn is_configuration(name: &str) -> bool {
    LOCATIONS.iter().any(|(file, _)| *file == name)
}

/// The configuration of a quantised checkpoint: `quantization_config` of its `config.json`, or the equivalent of another
/// writer.
///
/// It is the last criterion of a scheme: dtypes, names and shapes take precedence.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QuantConfig {
    map: Map<String, Value>,
    /// The statements of `config.json` about the model, if there are any. Shared, since a run has a copy of the settings.
    model: Option<Arc<ModelConfig>>,
    /// The method's name, in lower case.
    method: Option<String>,
    /// The file and key that it was read from.
    pub origin: Option<String>,
    /// Configurations at further places, and what each of them is called. Schemes do not read them.
    further: Vec<(String, Map<String, Value>)>,
    /// Other statements of `config.json` about packed weights.
    sections: Vec<ConfigSection>,
}

impl QuantConfig {
    /// Parses the JSON text of a `config.json`, of its `quantization_config` alone, or of another writer's file.
    ///
    /// # Errors
    /// If it is not a JSON object, or needs more memory than the default [`Limits::memory`](crate::Limits::memory).
    pub fn from_json(text: &[u8]) -> Result<Self> {
        let mut whole = document::parse(text, &Budget::new(Limits::default()))?;
        let (file, keys) = LOCATIONS[0];
        let found = keys
            .iter()
            .find_map(|key| Some((key, take_inside(&mut whole, key)?)));
        let model = ModelConfig::from_document;
        Ok(match found {
            Some((key, map)) => {
                let sections = sections(&whole);
                Self {
                    sections,
                    ..Self::new(map, model(whole), format!("{key} of {file}"))
                }
            }
            // the whole of it describes quantisation, and no object in it is a section beside that
            None => Self::new(
                whole.clone(),
                model(whole),
                "the given configuration".to_owned(),
            ),
        })
    }

    fn new(map: Map<String, Value>, model: ModelConfig, origin: String) -> Self {
        Self {
            method: method_of(&map),
            map,
            model: shared(model),
            origin: Some(origin),
            further: Vec::new(),
            sections: Vec::new(),
        }
    }

    /// Reads the first configuration file next to `path`, a checkpoint's first file, or in it, a directory. Empty if there
    /// is none.
    pub(crate) fn load_sidecar(files: &Files, path: &Path, budget: &Budget) -> Result<Self> {
        let (mut model, mut kept_sections) = (ModelConfig::default(), Vec::new());
        let mut found: Vec<(String, Map<String, Value>)> = Vec::new();
        let folder = if files.is_directory(path) {
            path
        } else {
            path.parent().unwrap_or(path)
        };
        files.begin(&mut LOCATIONS.iter().map(|(file, _)| folder.join(file)));
        for (file, keys) in LOCATIONS {
            let at = folder.join(file);
            // a file that cannot be opened counts as absent: weights are recognised without a configuration too
            let mut whole = match document::read(files, &at, budget) {
                Ok(whole) => whole,
                Err(e) if document::is_absent(&e) => continue,
                Err(e) => return Err(e.in_file(&at)),
            };
            for key in *keys {
                let Some(map) = take_inside(&mut whole, key).filter(|map| !map.is_empty()) else {
                    continue;
                };
                let place = if key.is_empty() {
                    (*file).to_owned()
                } else {
                    format!("{key} of {file}")
                };
                found.push((place, map));
            }
            // only `config.json` describes the model
            if *file == LOCATIONS[0].0 {
                kept_sections = sections(&whole);
                model = ModelConfig::from_document(whole);
            }
        }
        if found.is_empty() {
            return Ok(Self {
                model: shared(model),
                sections: kept_sections,
                ..Self::default()
            });
        }
        let (origin, map) = found.remove(0);
        Ok(Self {
            further: found,
            sections: kept_sections,
            ..Self::new(map, model, origin)
        })
    }

    /// Whether there is no configuration.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// The method's name, in lower case: `quant_method`, or ModelOpt's `quant_algo`.
    pub fn method(&self) -> Option<&str> {
        self.method.as_deref()
    }

    /// Whether [`method`](Self::method) is one of these.
    pub(crate) fn is(&self, methods: &[&str]) -> bool {
        self.method().is_some_and(|m| methods.contains(&m))
    }

    /// Whether the method is one whose FP8 weights have scales.
    pub(crate) fn claims_scales(&self) -> bool {
        self.is(&[
            "fp8",
            "fbgemm_fp8",
            "compressed-tensors",
            "modelopt",
            "mxfp8",
        ])
    }

    /// The value at a dotted path.
    pub(crate) fn get(&self, path: &str) -> Option<&Value> {
        let mut keys = path.split('.');
        let mut value = self.map.get(keys.next()?)?;
        for key in keys {
            value = value.get(key)?;
        }
        Some(value)
    }

    /// The string at a dotted path, if it is no longer than 256 bytes.
    pub fn text(&self, path: &str) -> Option<&str> {
        let text = self.get(path)?.as_str()?;
        (text.len() <= MAX_SETTING_BYTES).then_some(text)
    }

    /// The integer at a dotted path.
    pub fn integer(&self, path: &str) -> Option<i64> {
        self.get(path)?.as_i64()
    }

    /// The boolean at a dotted path.
    pub fn flag(&self, path: &str) -> Option<bool> {
        self.get(path)?.as_bool()
    }

    /// The configuration of the model.
    pub(crate) fn model(&self) -> &ModelConfig {
        static NONE: LazyLock<ModelConfig> = LazyLock::new(ModelConfig::default);
        self.model.as_deref().unwrap_or(&NONE)
    }

    /// The configuration and those at further places, with what each is called.
    pub(crate) fn documents(&self) -> impl Iterator<Item = (&str, &Map<String, Value>)> {
        let own = self.origin.as_deref().unwrap_or("the configuration");
        let further = self.further.iter().map(|(place, map)| (&**place, map));
        std::iter::once((own, &self.map)).chain(further)
    }

    /// Other statements of `config.json` about packed weights.
    pub(crate) fn sections(&self) -> &[ConfigSection] {
        &self.sections
    }

    /// The configuration as a JSON object.
    pub(crate) fn map(&self) -> &Map<String, Value> {
        &self.map
    }
}

/// The method that a configuration names, in lower case. ModelOpt's own has none, and is known by its algorithm.
pub(crate) fn method_of(map: &Map<String, Value>) -> Option<String> {
    let text = |key: &str| map.get(key)?.as_str();
    let modelopt = || text("quant_algo").map(|_| "modelopt");
    let method = text("quant_method").or_else(modelopt)?;
    // a longer one is none that a scheme has, and stays so
    let end = method.floor_char_boundary(MAX_SETTING_BYTES);
    Some(method[..end].to_ascii_lowercase())
}

/// A configuration that says nothing takes no memory.
fn shared(model: ModelConfig) -> Option<Arc<ModelConfig>> {
    (!model.is_empty()).then(|| Arc::new(model))
}

/// Takes the object at a dotted path out of its parent; all of `whole` for an empty path.
fn take_inside(whole: &mut Map<String, Value>, key: &str) -> Option<Map<String, Value>> {
    if key.is_empty() {
        return Some(std::mem::take(whole));
    }
    let (parents, last) = key.rsplit_once('.').unwrap_or(("", key));
    let mut parent = whole;
    for key in parents.split('.').filter(|key| !key.is_empty()) {
        parent = parent.get_mut(key)?.as_object_mut()?;
    }
    match parent.get_mut(last)? {
        Value::Object(map) => Some(std::mem::take(map)),
        _ => None,
    }
}
