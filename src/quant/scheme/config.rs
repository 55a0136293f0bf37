//! The quantisation configuration of a checkpoint, from the JSON files next to its weights.

mod contradictions;
mod repeats;
mod sections;

use std::path::Path;
use std::sync::{Arc, LazyLock};

use serde_json::{Map, Value};

use crate::base::error::{Error, Result};
use crate::base::limits::{Budget, Limits};
use crate::models::config::{ModelConfig, document};
use crate::quant::settings::{is_nothing, spell};
use crate::read::catalog::quote;
use crate::read::checkpoint::{Checkpoint, read_of_checkpoint};
use crate::read::source::file_system::NamedPath;
use crate::read::source::files::Files;

use super::settings_of;
use contradictions::Contradiction;
use sections::shown;
pub(crate) use sections::{ConfigSection, FoundSections, MAX_DEPTH};

/// Longest text that is a setting, in bytes. Settings are names and versions; schemes compare them once per tensor.
const MAX_SETTING_BYTES: usize = 256;

/// Where the configuration is in a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ConfigPlace {
    /// In a section of a model's configuration.
    Section,
    /// In the section `quantization`, or, in a file without sections, the whole file.
    SectionOrWhole,
    /// The whole file.
    Whole,
}

/// The configuration files, in the order of their precedence.
static FILES: &[(&str, ConfigPlace)] = &[
    (CONFIG, ConfigPlace::Section),
    (MISTRAL, ConfigPlace::Section),
    ("hf_quant_config.json", ConfigPlace::SectionOrWhole),
    ("quantize_config.json", ConfigPlace::Whole),
    ("quant_config.json", ConfigPlace::Whole),
    ("quantization_map.json", ConfigPlace::Whole),
    ("quanto_qmap.json", ConfigPlace::Whole),
    // AutoRound's, beside the same in `config.json`
    ("quantization_config.json", ConfigPlace::Whole),
];

/// The configuration of a model.
const CONFIG: &str = "config.json";

/// A configuration that the caller gives.
const GIVEN: &str = "the given configuration";

/// Mistral's, of the files whose names begin with [`CONSOLIDATED`].
const MISTRAL: &str = "params.json";
const CONSOLIDATED: &str = "consolidated";

/// Whether a file of this name is one that configurations are read from.
pub(crate) fn is_configuration(name: &str) -> bool {
    FILES.iter().any(|(file, _)| *file == name)
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
    /// Configurations at further places.
    further: Vec<FurtherConfig>,
    /// Other statements of `config.json` about packed weights.
    sections: Vec<ConfigSection>,
}

/// A configuration at a further place.
#[derive(Clone, Debug, PartialEq)]
struct FurtherConfig {
    place: String,
    map: Map<String, Value>,
    /// The method's name, in lower case.
    method: Option<String>,
    /// Whether it has the method of the first one, or none, so that its settings are of the same weights.
    completes: bool,
}

/// Changes the text of a configuration file of a name.
pub(crate) type TextEdit<'e> = dyn Fn(&str, Vec<u8>) -> Result<Vec<u8>> + 'e;

/// Mistral's key of the format of its weights.
const QFORMAT: &str = "qformat_weight";

/// The configurations of a checkpoint in the order of their precedence, each with its place, and further statements.
#[derive(Default)]
struct ConfigDocuments {
    documents: Vec<(String, Map<String, Value>)>,
    statements: Vec<ConfigSection>,
}

impl ConfigDocuments {
    /// Takes the sections out of a file's object.
    fn read_sections(
        &mut self,
        whole: &mut Map<String, Value>,
        file: &str,
        budget: &Budget,
    ) -> Result<()> {
        let found = FoundSections::of(whole, file, budget)?;
        self.statements.extend(found.statements);
        for path in &found.configurations {
            if let Some(map) = take_inside(whole, path) {
                self.documents.push((named(path, file), map));
            }
        }
        Ok(())
    }

    /// Reads what is beside the sections of a file that has nothing but them, or the whole file if it has none.
    fn read_rest(&mut self, whole: &mut Map<String, Value>, file: &str, before: (usize, usize)) {
        if (self.documents.len(), self.statements.len()) == before {
            whole.retain(|_, value| !is_nothing(value));
            if !whole.is_empty() {
                self.documents
                    .push((file.to_owned(), std::mem::take(whole)));
            }
            return;
        }
        const MOST: usize = 8;
        let is_known = |key: &str| key == "producer" || key == "quantization";
        let rest = whole.iter().filter(|(key, value)| {
            !is_known(key) && !is_nothing(value) && key.len() <= MAX_SETTING_BYTES
        });
        let is_stated = |text: &str| self.statements.iter().any(|other| other.text == text);
        let texts: Vec<String> = rest
            .take(MOST)
            .map(|(key, value)| format!("{}{} of {file}", quote(key), shown(value)))
            .filter(|text| !is_stated(text))
            .collect();
        self.statements
            .extend(texts.into_iter().map(|text| ConfigSection {
                text,
                decides: false,
                of_quantised: true,
            }));
    }

    fn into_config(mut self, model: ModelConfig, budget: &Budget) -> Result<QuantConfig> {
        for (_, map) in &mut self.documents {
            let method = method_of(map).unwrap_or_default();
            spell(map, settings_of(&method), budget)?;
        }
        let contradiction = Contradiction::first(&self.documents, budget)?;
        self.statements
            .extend(contradiction.map(|found| ConfigSection {
                text: found.to_string(),
                decides: true,
                of_quantised: true,
            }));
        let mut documents = self.documents.into_iter();
        let (origin, map) = documents
            .next()
            .map_or((None, Map::new()), |(place, map)| (Some(place), map));
        let method = method_of(&map);
        let further = documents.map(|(place, map)| {
            let own = method_of(&map);
            FurtherConfig {
                completes: own.is_none() || own == method,
                place,
                map,
                method: own,
            }
        });
        Ok(QuantConfig {
            further: further.collect(),
            method,
            map,
            model: shared(model),
            origin,
            sections: self.statements,
        })
    }
}

impl QuantConfig {
    /// Parses the JSON text of a `config.json`, of its `quantization_config` alone, or of another writer's file.
    ///
    /// # Errors
    /// If it is not a JSON object, or needs more memory than the default [`Limits::memory`](crate::Limits::memory).
    pub fn from_json(text: &[u8]) -> Result<Self> {
        let budget = Budget::new(Limits::default());
        let (mut whole, repeats) = document::parse_with_repeats(text, &budget)?;
        let mut found = ConfigDocuments::default();
        found.read_sections(&mut whole, CONFIG, &budget)?;
        if found.documents.is_empty() {
            // the whole of it describes quantisation, and no object in it is a section beside that
            found = ConfigDocuments {
                documents: vec![(GIVEN.to_owned(), whole.clone())],
                statements: repeats::statements(&repeats, GIVEN, true).collect(),
            };
        } else {
            let repeats = repeats::statements(&repeats, GIVEN, false);
            found.statements.extend(repeats);
        }
        found.into_config(ModelConfig::from_document(whole), &budget)
    }

    /// Reads the configuration files next to a checkpoint, whose path names its first file or its directory, with texts that `edit`
    /// has changed, by the names of their files. Empty if there is none.
    pub(crate) fn load_edited(
        checkpoint: &Checkpoint,
        path: &Path,
        edit: &TextEdit<'_>,
        budget: &Budget,
    ) -> Result<Self> {
        let is_mistral = is_consolidated(checkpoint);
        let files = checkpoint.files();
        let load = || Self::load_beside(files, path, is_mistral, edit, budget);
        let is_found = |own: &Self| own.model.is_some() || !own.is_empty();
        let own = read_of_checkpoint(checkpoint, files.folder_of(path), is_found, load)?;
        for (path, files) in checkpoint.joined() {
            let other = Self::load_beside(files, path, is_mistral, edit, budget)?;
            if (other.is_empty() && other.sections.is_empty()) || other.describes_as(&own) {
                continue;
            }
            let what = "its configuration describes weights otherwise than the first source's does, and the output has one: \
                        convert the sources one by one, or dequantise them before they are joined";
            return Err(Error::unsupported(what).in_file(path));
        }
        Ok(own)
    }

    /// The configuration beside this path. `is_mistral`: whether files with Mistral's names are read.
    fn load_beside(
        files: &Files,
        path: &Path,
        is_mistral: bool,
        edit: &TextEdit<'_>,
        budget: &Budget,
    ) -> Result<Self> {
        let mut model = ModelConfig::default();
        let mut found = ConfigDocuments::default();
        let folder = files.folder_of(path);
        // a directory may hold the same model twice: as Mistral's own files, and as files of transformers; and a request for
        // a file that is hardly there costs as much as for one that is
        let likely = FILES
            .iter()
            .filter(|(file, _)| *file != MISTRAL || is_mistral);
        files.begin(&mut likely.map(|(file, _)| folder.join(file)));
        let mut has_config = false;
        for &(file, place) in FILES {
            if file == MISTRAL && !is_mistral && (has_config || !files.is_local()) {
                continue;
            }
            let at = folder.join(file);
            // weights are recognised without a configuration too
            let named = NamedPath::below(folder, &at);
            let read = || {
                let (text, _charge) = files.read_whole(named, budget, "the configuration")?;
                document::parse_with_repeats(&edit(file, text)?, budget)
            };
            let (mut whole, repeats) = match read() {
                Ok(whole) => whole,
                Err(e) if document::is_absent(files, &at, &e) => continue,
                Err(e) => return Err(document::unreadable(files, &at, e)),
            };
            let repeats = repeats::statements(&repeats, file, place != ConfigPlace::Section);
            found.statements.extend(repeats);
            let before = (found.documents.len(), found.statements.len());
            if place != ConfigPlace::Whole {
                found.read_sections(&mut whole, file, budget)?;
            }
            if place == ConfigPlace::SectionOrWhole {
                found.read_rest(&mut whole, file, before);
            }
            if place == ConfigPlace::Whole && !whole.is_empty() {
                found.documents.push((file.to_owned(), whole));
                continue;
            }
            // only `config.json` describes the model
            if file == CONFIG {
                has_config = true;
                model = ModelConfig::from_document(whole);
            }
        }
        found.into_config(model, budget)
    }

    /// Whether there is no configuration.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Whether another configuration says the same about weights; the models may have other settings.
    fn describes_as(&self, other: &Self) -> bool {
        self.map == other.map && self.further == other.further && self.sections == other.sections
    }

    /// The method's name, in lower case: `quant_method`, or ModelOpt's `quant_algo`.
    pub fn method(&self) -> Option<&str> {
        self.method.as_deref()
    }

    /// Whether [`method`](Self::method) is one of these.
    pub(crate) fn is(&self, methods: &[&str]) -> bool {
        self.method().is_some_and(|m| methods.contains(&m))
    }

    /// Whether one of the configurations has one of these methods; the empty one stands for a first configuration that names none.
    /// A further one that names none has the settings of the first.
    pub(crate) fn is_of(&self, methods: &[&str]) -> bool {
        let own = self.method().unwrap_or_default();
        let further = self.further.iter();
        let further = further.filter_map(|further| further.method.as_deref());
        std::iter::once(own)
            .chain(further)
            .any(|method| methods.contains(&method))
    }

    /// Whether the method is one whose FP8 weights have scales.
    pub(crate) fn claims_scales(&self) -> bool {
        self.get(QFORMAT).is_some()
            || self.is(&[
                "fp8",
                "fbgemm_fp8",
                "finegrained_fp8",
                "compressed-tensors",
                "modelopt",
                "mxfp8",
                "quark",
            ])
    }

    /// The value at a dotted path. The first configuration has it, or else a further one of the same method.
    pub(crate) fn get(&self, path: &str) -> Option<&Value> {
        let further = self.further.iter().filter(|further| further.completes);
        let further = further.map(|further| &further.map);
        std::iter::once(&self.map)
            .chain(further)
            .find_map(|map| value_at(map, path))
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
        let own = self.place();
        let further = self.further.iter();
        let further = further.map(|further| (&*further.place, &further.map));
        std::iter::once((own, &self.map)).chain(further)
    }

    /// Other statements of `config.json` about packed weights.
    pub(crate) fn sections(&self) -> &[ConfigSection] {
        &self.sections
    }

    /// Its name in messages: the file and key, or that the caller has given it.
    pub(crate) fn place(&self) -> &str {
        self.origin.as_deref().unwrap_or("the configuration")
    }

    /// The configuration as a JSON object.
    pub(crate) fn map(&self) -> &Map<String, Value> {
        &self.map
    }
}

/// The method that a configuration names, in lower case. ModelOpt's own has none, and is known by its algorithm; the first ones
/// of bitsandbytes have none, and are known as transformers knows them.
pub(crate) fn method_of(map: &Map<String, Value>) -> Option<String> {
    let text = |key: &str| map.get(key)?.as_str();
    let is_on = |key: &str| map.get(key).is_some_and(|on| on == &Value::Bool(true));
    let implied = || {
        if text("quant_algo").is_some() {
            Some("modelopt")
        } else if map.contains_key("quant_method") {
            None
        } else {
            (is_on("load_in_4bit") || is_on("load_in_8bit")).then_some("bitsandbytes")
        }
    };
    // GPTQModel calls it `method` too
    let named = text("quant_method").or_else(|| text("method"));
    let method = named.or_else(implied)?;
    // a longer one is none that a scheme has, and stays so
    let end = method.floor_char_boundary(MAX_SETTING_BYTES);
    let method = method[..end].to_ascii_lowercase();
    Some(match &*method {
        // its names in older files
        "auto_round" | "intel/auto-round" => "auto-round".to_owned(),
        _ => method,
    })
}

/// Whether the files are Mistral's own.
fn is_consolidated(checkpoint: &Checkpoint) -> bool {
    let files = checkpoint.catalog().files().iter();
    let mut names = files.filter_map(|file| file.path.as_deref()?.file_name()?.to_str());
    names.any(|name| name.starts_with(CONSOLIDATED))
}

/// The value at a dotted path.
fn value_at<'v>(map: &'v Map<String, Value>, path: &str) -> Option<&'v Value> {
    let mut keys = path.split('.');
    let mut value = map.get(keys.next()?)?;
    for key in keys {
        value = value.get(key)?;
    }
    Some(value)
}

/// A configuration that says nothing takes no memory.
fn shared(model: ModelConfig) -> Option<Arc<ModelConfig>> {
    (!model.is_empty()).then(|| Arc::new(model))
}

/// The name of a section: its key, the objects around it, and the file.
fn named(path: &[String], file: &str) -> String {
    match path.split_last() {
        Some((key, [])) => format!("{key} of {file}"),
        Some((key, parents)) => format!("{key} of {} of {file}", quote(&parents.join("."))),
        None => file.to_owned(),
    }
}

/// Takes the object at a path out of its parent.
fn take_inside(whole: &mut Map<String, Value>, path: &[String]) -> Option<Map<String, Value>> {
    let (last, parents) = path.split_last()?;
    let mut parent = whole;
    for key in parents {
        parent = parent.get_mut(key)?.as_object_mut()?;
    }
    match parent.get_mut(last)? {
        Value::Object(map) => Some(std::mem::take(map)),
        _ => None,
    }
}
