//! Values of a safetensors header that describe tensors by name: of the files of a merge, they are one.
//!
//! Sources: torchao `prototype/safetensors/safetensors_support.py` (`tensor_names`), ComfyUI `comfy/utils.py`
//! (`_quantization_metadata`).

use std::collections::HashSet;

use serde_json::{Map, Value as Json};

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::limits::{Budget, text_cost};
use crate::quant::scheme::{COMFYUI_HEADER, MODULE_LISTS};
use crate::read::catalog::{Catalog, Value};
use crate::read::json::{JsonReader, Tree};

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
    let mut further = further.filter_map(|(_, value)| match value {
        Value::Text(text) => Some(&**text),
        _ => None,
    });
    let Some(second) = further.next() else {
        return Ok(first);
    };
    let reader = JsonReader::new(budget, WHAT);
    let parse = |text: &str| match reader
        .parse_last(text, Tree(&reader), |_| Error::unexplained("no JSON"))
    {
        Ok(value) => Ok(Some(value)),
        Err(e) if matches!(e.kind(), ErrorKind::Unexplained(_)) => Ok(None),
        Err(e) => Err(e),
    };
    let Some(mut whole) = parse(&first)? else {
        return Ok(first);
    };
    budget.memory(2 * text_cost(first.len()), WHAT)?;
    let mut items = items_of(&whole);
    for text in std::iter::once(second).chain(further) {
        let Some(other) = parse(text)? else {
            return Ok(first);
        };
        // the texts of the items, and the text that is made
        budget.memory(2 * text_cost(text.len()), WHAT)?;
        unite(&mut whole, other, &mut items);
    }
    Ok(whole.to_string())
}

/// The items of a list, by which another one's are known.
fn items_of(value: &Json) -> HashSet<String> {
    let items = value.as_array().into_iter().flatten();
    items.map(Json::to_string).collect()
}

/// Adds to a list what it has not, each item once; and to the objects under the keys of an object, the members that they have not.
/// Other values stay. `items`: the items of the list.
fn unite(first: &mut Json, further: Json, items: &mut HashSet<String>) {
    match (first, further) {
        (Json::Array(list), Json::Array(further)) => {
            let new = further.into_iter();
            list.extend(new.filter(|item| items.insert(item.to_string())));
        }
        (Json::Object(members), Json::Object(further)) => {
            for (key, value) in further {
                match (members.get_mut(&key), value) {
                    (Some(Json::Object(known)), Json::Object(value)) => add(known, value),
                    (Some(_), _) => {}
                    (None, value) => drop(members.insert(key, value)),
                }
            }
        }
        _ => {}
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
            let json = |text| serde_json::from_str::<Json>(text).unwrap();
            let mut whole = json(a);
            let mut items = items_of(&whole);
            unite(&mut whole, json(b), &mut items);
            whole.to_string()
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
