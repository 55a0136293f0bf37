//! The quantisation configuration of a checkpoint, from the JSON files next to its weights.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// Maximum size of a configuration file, in bytes.
const MAX_CONFIG_BYTES: u64 = 16 << 20;

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
];

/// The configuration of a quantised checkpoint: `quantization_config` of its `config.json`, or the equivalent of another
/// writer.
///
/// It is the last criterion of a scheme: dtypes, names and shapes take precedence.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QuantConfig {
    map: Map<String, Value>,
    /// The unsigned numbers of `config.json`, such as `hidden_size`.
    sizes: Map<String, Value>,
    /// The file and key that it was read from.
    pub origin: Option<String>,
}

impl QuantConfig {
    /// Parses the JSON text of a `config.json`, of its `quantization_config` alone, or of another writer's file.
    ///
    /// # Errors
    /// If it is not a JSON object.
    pub fn from_json(text: &[u8]) -> Result<Self> {
        let whole = parse(text)?;
        let (file, keys) = LOCATIONS[0];
        let found = keys
            .iter()
            .find_map(|key| Some((key, inside(&whole, key)?.clone())));
        let sizes = numbers(&whole);
        Ok(match found {
            Some((key, map)) => Self {
                map,
                sizes,
                origin: Some(format!("{key} of {file}")),
            },
            None => Self {
                map: whole,
                sizes,
                origin: Some("the given configuration".to_owned()),
            },
        })
    }

    /// Reads the first configuration file next to `path`, a checkpoint's first file, or in it, a directory. Empty if there
    /// is none.
    pub(crate) fn load_sidecar(path: &Path) -> Result<Self> {
        let mut sizes = Map::new();
        let folder = if path.is_dir() {
            path
        } else {
            path.parent().unwrap_or(path)
        };
        for (file, keys) in LOCATIONS {
            let at = folder.join(file);
            // a file that cannot be opened counts as absent: weights are recognised without a configuration too
            let Ok(opened) = File::open(&at) else {
                continue;
            };
            let mut text = Vec::new();
            opened
                // one byte more than allowed, to find out that there is more without trusting the reported length
                .take(MAX_CONFIG_BYTES + 1)
                .read_to_end(&mut text)
                .map_err(|e| Error::from(e).in_file(&at))?;
            if text.len() as u64 > MAX_CONFIG_BYTES {
                return Err(
                    Error::unsupported("configuration file is larger than 16 MiB").in_file(&at),
                );
            }
            let whole = parse(&text).map_err(|e| e.in_file(&at))?;
            // only `config.json` has the sizes of the model
            if *file == LOCATIONS[0].0 {
                sizes = numbers(&whole);
            }
            if let Some((key, map)) = keys
                .iter()
                .find_map(|key| Some((key, inside(&whole, key)?)))
            {
                let place = if key.is_empty() {
                    (*file).to_owned()
                } else {
                    format!("{key} of {file}")
                };
                return Ok(Self {
                    map: map.clone(),
                    sizes,
                    origin: Some(place),
                });
            }
        }
        Ok(Self {
            sizes,
            ..Self::default()
        })
    }

    /// Whether there is no configuration.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// The method's name, in lower case: `quant_method`, or ModelOpt's `quant_algo`.
    pub fn method(&self) -> Option<String> {
        let name = self.text("quant_method").map(str::to_owned);
        // `hf_quant_config.json` names the algorithm, not the method
        let modelopt = || self.text("quant_algo").map(|_| "modelopt".to_owned());
        name.or_else(modelopt).map(|name| name.to_ascii_lowercase())
    }

    /// Whether [`method`](Self::method) is one of these.
    pub(crate) fn is(&self, methods: &[&str]) -> bool {
        self.method().is_some_and(|m| methods.contains(&&*m))
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

    /// The string at a dotted path.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.get(path)?.as_str()
    }

    /// The integer at a dotted path.
    pub fn integer(&self, path: &str) -> Option<i64> {
        self.get(path)?.as_i64()
    }

    /// The boolean at a dotted path.
    pub fn flag(&self, path: &str) -> Option<bool> {
        self.get(path)?.as_bool()
    }

    /// A size of the model: the first of these keys that `config.json` has.
    pub(crate) fn size(&self, names: &[&str]) -> Option<u64> {
        names
            .iter()
            .find_map(|name| self.sizes.get(*name)?.as_u64())
    }

    /// The configuration as a JSON object.
    pub(crate) fn map(&self) -> &Map<String, Value> {
        &self.map
    }
}

/// The unsigned numbers of a model's configuration; those of its `text_config` take precedence.
fn numbers(whole: &Map<String, Value>) -> Map<String, Value> {
    let text = whole.get("text_config").and_then(Value::as_object);
    // multimodal models keep the sizes of the language model, which the weights have, in `text_config`
    let all = whole.iter().chain(text.into_iter().flatten());
    all.filter(|(_, value)| value.is_u64())
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

fn parse(text: &[u8]) -> Result<Map<String, Value>> {
    // files that were edited on Windows begin with a byte order mark, which serde_json refuses
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    match serde_json::from_slice(text) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => {
            Err(Error::malformed("the configuration is not a JSON object").in_format("config"))
        }
        Err(e) => {
            Err(Error::malformed(format!("the configuration is not JSON: {e}")).in_format("config"))
        }
    }
}

fn inside<'v>(whole: &'v Map<String, Value>, key: &str) -> Option<&'v Map<String, Value>> {
    if key.is_empty() {
        return Some(whole);
    }
    let mut keys = key.split('.');
    let mut value = whole.get(keys.next()?)?;
    for key in keys {
        value = value.get(key)?;
    }
    value.as_object()
}
