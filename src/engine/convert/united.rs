//! Values of a safetensors header that describe tensors by name: of the files of a merge, they are one.
//!
//! Sources: torchao `prototype/safetensors/safetensors_support.py` (`tensor_names`), ComfyUI `comfy/utils.py`
//! (`_quantization_metadata`).

use serde_json::{Map, Value as Json};

use crate::base::error::Result;
use crate::base::limits::{Budget, text_cost};
use crate::quant::scheme::{COMFYUI_HEADER, MODULE_LISTS};
use crate::read::catalog::{Catalog, Value};

const WHAT: &str = "the metadata";

/// Whether the values of a key are united.
pub(super) fn is_united(key: &str) -> bool {
    key == COMFYUI_HEADER || MODULE_LISTS.contains(&key)
}

/// The value of a key: of one that is united, what all files say. Others, and values that are not JSON, are the first file's.
pub(super) fn value(
    catalog: &Catalog,
    key: &str,
    first: String,
    budget: &Budget,
) -> Result<String> {
    let further = catalog.differing_values.iter();
    let further = further.filter(|(other, _)| is_united(key) && &**other == key);
    let further = further.filter_map(|(_, value)| match value {
        Value::Text(text) => Some(&**text),
        _ => None,
    });
    let mut whole: Option<Json> = None;
    for text in further {
        // a tree of JSON, and the text of it
        budget.memory(text_cost(first.len()) + 8 * text_cost(text.len()), WHAT)?;
        let known = match whole.take() {
            Some(known) => known,
            None => match serde_json::from_str(&first) {
                Ok(known) => known,
                Err(_) => return Ok(first),
            },
        };
        let Ok(other) = serde_json::from_str(text) else {
            return Ok(first);
        };
        whole = Some(both(known, other));
    }
    Ok(whole.map_or(first, |whole| whole.to_string()))
}

/// Two lists, each item once; or two objects, of which the objects under one key are united and other values are the first one's.
fn both(first: Json, further: Json) -> Json {
    match (first, further) {
        (Json::Array(mut items), Json::Array(further)) => {
            let known: std::collections::HashSet<String> =
                items.iter().map(Json::to_string).collect();
            items.extend(
                further
                    .into_iter()
                    .filter(|item| !known.contains(&item.to_string())),
            );
            Json::Array(items)
        }
        (Json::Object(mut members), Json::Object(further)) => {
            for (key, value) in further {
                match (members.get_mut(&key), value) {
                    (Some(Json::Object(known)), Json::Object(value)) => add(known, value),
                    (Some(_), _) => {}
                    (None, value) => drop(members.insert(key, value)),
                }
            }
            Json::Object(members)
        }
        (first, _) => first,
    }
}

/// Adds members that are not there.
fn add(known: &mut Map<String, Json>, further: Map<String, Json>) {
    for (key, value) in further {
        known.entry(key).or_insert(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_layers_are_united() {
        let both = |a: &str, b: &str| {
            let json = |text| serde_json::from_str(text).unwrap();
            both(json(a), json(b)).to_string()
        };
        assert_eq!(both(r#"["a","b"]"#, r#"["b","c"]"#), r#"["a","b","c"]"#);
        let layers = both(
            r#"{"layers":{"a":{"format":"x"}},"version":"1"}"#,
            r#"{"layers":{"a":{"format":"y"},"b":{"format":"z"}},"version":"2"}"#,
        );
        assert_eq!(
            layers,
            r#"{"layers":{"a":{"format":"x"},"b":{"format":"z"}},"version":"1"}"#
        );
        assert_eq!(both("1", "[2]"), "1");
    }
}
