//! One spelling of each known value. Settings are compared in any case, so that they are spelt as in the table before a
//! scheme reads them: a value that is accepted is then one that is used.

use serde_json::{Map, Value};

use crate::base::error::Result;
use crate::base::limits::Budget;

use super::{KnownValues, SchemeSettings};

const WHAT: &str = "the configuration";

/// Spells the texts of a configuration that these settings know as they are listed.
pub(crate) fn spell<'s>(
    map: &mut Map<String, Value>,
    known: impl Iterator<Item = &'s SchemeSettings>,
    budget: &Budget,
) -> Result<()> {
    for (path, values) in known.flat_map(|settings| settings.keys) {
        if matches!(values, KnownValues::Texts(_) | KnownValues::Words(_)) {
            let (key, rest) = path.split_once('.').unwrap_or((path, ""));
            for value in matching(map, key) {
                visit(value, rest, *values, budget)?;
            }
        }
    }
    Ok(())
}

/// The members of an object that a step of a path names.
fn matching<'m>(map: &'m mut Map<String, Value>, key: &str) -> Vec<&'m mut Value> {
    match key {
        "*" => map.values_mut().collect(),
        key => map.get_mut(key).into_iter().collect(),
    }
}

/// Follows a path, which is a row of a table: its length bounds the recursion.
fn visit(value: &mut Value, path: &str, values: KnownValues, budget: &Budget) -> Result<()> {
    budget.steps(1, WHAT)?;
    if path.is_empty() {
        if let Value::String(text) = value
            && let Some(listed) = listed(text, values)
        {
            *text = listed;
        }
        return Ok(());
    }
    let (key, rest) = path.split_once('.').unwrap_or((path, ""));
    match value {
        Value::Object(map) => {
            let _members = budget.temporary(8 * map.len() as u64, WHAT)?;
            let mut inside = matching(map, key).into_iter();
            inside.try_for_each(|value| visit(value, rest, values, budget))
        }
        Value::Array(items) if key == "*" => {
            let mut inside = items.iter_mut();
            inside.try_for_each(|value| visit(value, rest, values, budget))
        }
        _ => Ok(()),
    }
}

/// The listed spelling of a text that is spelt otherwise.
fn listed(text: &str, values: KnownValues) -> Option<String> {
    match values {
        KnownValues::Texts(known) => {
            let known = known.iter().find(|known| known.eq_ignore_ascii_case(text));
            known
                .filter(|known| **known != text)
                .map(|known| (*known).to_owned())
        }
        // words are listed in lower case
        KnownValues::Words(_) => text
            .bytes()
            .any(|byte| byte.is_ascii_uppercase())
            .then(|| text.to_ascii_lowercase()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::base::limits::Limits;

    static ROWS: SchemeSettings = SchemeSettings {
        methods: &["x"],
        keys: &[
            ("algorithm", KnownValues::Texts(&["FP8"])),
            ("export.order", KnownValues::Texts(&["reorder"])),
            ("layers.*.dtype", KnownValues::Texts(&["int4"])),
            ("packing", KnownValues::Words(&["a", "b"])),
            ("name", KnownValues::Any),
        ],
    };

    #[test]
    fn values_are_spelt_as_they_are_listed() {
        let mut map = json!({
            "algorithm": "fp8",
            "export": {"order": "REORDER"},
            "layers": {"q": {"dtype": "INT4"}, "k": {"dtype": "New"}, "v": [{"dtype": "Int4"}]},
            "packing": "A:B",
            "name": "Q",
        });
        let budget = Budget::new(Limits::default());
        spell(map.as_object_mut().unwrap(), [&ROWS].into_iter(), &budget).unwrap();
        let spelt = json!({
            "algorithm": "FP8",
            "export": {"order": "reorder"},
            "layers": {"q": {"dtype": "int4"}, "k": {"dtype": "New"}, "v": [{"dtype": "Int4"}]},
            "packing": "a:b",
            "name": "Q",
        });
        assert_eq!(map, spelt);
    }
}
