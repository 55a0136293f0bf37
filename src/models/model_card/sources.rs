//! The models and data sets that a model was made of, as its card names them.
//!
//! Source: gguf-py `metadata.py` (`apply_metadata_heuristic`, `set_gguf_meta_model`).

use super::card_value::{CardMap, CardValue};
use super::key_list::KeyList;
use super::model_name::{NameParts, title};
use crate::base::error::{Error, Result};
use crate::read::format::gguf::GgufValue;

/// Keys of a kind of source.
struct SourceKind {
    /// The part of the GGUF's keys.
    name: &'static str,
    /// The keys of the card. The first that there is counts, be it null.
    card: [&'static str; 3],
}

static KINDS: [SourceKind; 2] = [
    SourceKind {
        name: "base_model",
        card: ["base_model", "base_models", "base_model_sources"],
    },
    SourceKind {
        name: "dataset",
        card: ["datasets", "dataset", "dataset_sources"],
    },
];

/// The keys of one source, in the order of the converter.
static FIELDS: [&str; 9] = [
    "name",
    "author",
    "version",
    "organization",
    "description",
    "url",
    "doi",
    "uuid",
    "repo_url",
];

/// The hub, whose addresses are names of models.
const HUB: &str = "https://huggingface.co/";

/// Adds the keys of all sources. `parameters` are the model's, which its sources are taken to have about as many of.
pub(super) fn add(card: &CardMap, parameters: u64, keys: &mut KeyList<'_>) -> Result<()> {
    for kind in &KINDS {
        let sources = match card.first_of(&kind.card) {
            None => continue,
            Some(one @ CardValue::Text(_)) => std::slice::from_ref(one).iter().collect(),
            Some(CardValue::List(items)) => items.iter().map(|item| &**item).collect(),
            Some(_) => Vec::new(),
        };
        add_kind(kind.name, &sources, parameters, keys)?;
    }
    Ok(())
}

fn add_kind(
    kind: &str,
    sources: &[&CardValue],
    parameters: u64,
    keys: &mut KeyList<'_>,
) -> Result<()> {
    let count = u32::try_from(sources.len());
    let count = count.map_err(|_| Error::malformed(format!("the card has too many {kind}s")))?;
    keys.push(&format!("{kind}.count"), GgufValue::u32(count))?;
    for (number, source) in sources.iter().enumerate() {
        let mut add = |field: &str, text: &str| {
            let key = format!("{kind}.{number}.{field}");
            keys.push(&key, GgufValue::text(text))
        };
        match source {
            CardValue::Text(id) => {
                let named = NamedSource::of(id, parameters)?;
                for field in FIELDS {
                    // the converter leaves out empty texts
                    if let Some(text) = named.get(field).filter(|text| !text.is_empty()) {
                        add(field, text)?;
                    }
                }
            }
            CardValue::Map(map) => {
                for field in FIELDS {
                    let name = format!("{field} of {kind} {number}");
                    let value = map.get(field).map_or(Ok(None), |value| value.text(&name))?;
                    if let Some(text) = value {
                        add(field, text)?;
                    }
                }
            }
            // the converter says that this is no source, and counts it
            _ => {}
        }
    }
    Ok(())
}

/// The facts about a source that its name or address has.
#[derive(Default)]
struct NamedSource {
    name: Option<String>,
    organization: Option<String>,
    version: Option<String>,
    address: Option<String>,
}

impl NamedSource {
    fn of(id: &str, parameters: u64) -> Result<Self> {
        let is_address = ["http://", "https://", "ssh://"];
        if !is_address.iter().any(|scheme| id.starts_with(scheme)) {
            return Self::named(id, parameters);
        }
        let named = match hub_name(id) {
            Some(name) => Self::named(name, parameters)?,
            None => Self::default(),
        };
        Ok(Self {
            address: Some(id.to_owned()),
            ..named
        })
    }

    fn named(id: &str, parameters: u64) -> Result<Self> {
        let parts = NameParts::of(id, parameters)?;
        let organization = parts.organization.as_deref();
        Ok(Self {
            name: Some(title(&parts.name)?),
            address: organization.map(|owner| format!("{HUB}{owner}/{}", parts.name)),
            organization: organization.map(title).transpose()?,
            version: parts.version,
        })
    }

    fn get(&self, field: &str) -> Option<&str> {
        match field {
            "name" => self.name.as_deref(),
            "organization" => self.organization.as_deref(),
            "version" => self.version.as_deref(),
            "repo_url" => self.address.as_deref(),
            _ => None,
        }
    }
}

/// The `ORGANIZATION/NAME` of an address of the hub. The reference compares with a pattern in which the dot is any character, and looks
/// for the name of the hub anywhere.
fn hub_name(address: &str) -> Option<&str> {
    let rest = address.strip_prefix("https://");
    let rest = rest.or_else(|| address.strip_prefix("http://"))?;
    let mut rest = rest.strip_prefix("huggingface")?.chars();
    let is_dot = rest.next().is_some_and(|c| c != '\n');
    let name = rest.as_str().strip_prefix("co/")?;
    let (organization, model) = name.split_once('/')?;
    let is_whole = !organization.is_empty() && !model.is_empty() && !model.contains('/');
    (is_dot && is_whole && address.contains("huggingface.co")).then_some(name)
}
