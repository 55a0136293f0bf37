//! `config.json` of a checkpoint whose weights are no longer quantised.

use std::ops::Range;

use crate::base::error::{Error, Result};
use crate::base::kernel::Dtype;
use crate::base::limits::Budget;
use crate::models::config::{ConfigField, document, keys, torch_name};
use crate::quant::scheme::{FoundSections, MAX_DEPTH};
use crate::read::json::edit::{JsonMembers, NotJson};

const WHAT: &str = "the configuration";

/// The text without what describes quantisation, and with `dtype` as the dtype of the weights, at the top and in nested
/// configurations. The rest is unchanged, byte for byte.
///
/// Weights that are still `quantised` keep what describes them.
pub(super) fn edited(
    text: &str,
    dtype: Dtype,
    quantised: bool,
    budget: &Budget,
) -> Result<Vec<u8>> {
    let name = format!("\"{}\"", torch_name(dtype));
    let mut edits = Vec::new();
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    // the sections that are read, and no others: what no scheme has seen may be what explains the weights
    let removed = if quantised {
        Vec::new()
    } else {
        let _tree = budget.scope();
        let whole = document::parse(text.as_bytes(), budget)?;
        FoundSections::of(&whole, "config.json", budget)?.members
    };
    let mut path = Vec::new();
    collect(text, 0, &mut path, (&name, &removed), &mut edits, budget)?;
    budget.memory(text.len() as u64 + 64, WHAT)?;
    let mut out = Vec::with_capacity(text.len() + 64);
    let mut kept = 0;
    for ConfigEdit { range, with } in edits {
        out.extend_from_slice(&text.as_bytes()[kept..range.start]);
        out.extend_from_slice(with.as_bytes());
        kept = range.end;
    }
    out.extend_from_slice(&text.as_bytes()[kept..]);
    Ok(out)
}

fn names(field: &ConfigField, key: &str) -> bool {
    field.config_json().contains(&key)
}

/// The key of the dtype that all versions of transformers read: the older one.
fn dtype_for_all() -> &'static str {
    keys::DTYPE
        .config_json()
        .last()
        .copied()
        .unwrap_or_default()
}

/// A range of the text, and what takes its place.
struct ConfigEdit {
    range: Range<usize>,
    with: String,
}

/// Adds the edits of the object that begins at `start`, in the order of the text.
fn collect(
    text: &str,
    start: usize,
    path: &mut Vec<String>,
    (name, removed): (&str, &[Vec<String>]),
    edits: &mut Vec<ConfigEdit>,
    budget: &Budget,
) -> Result<()> {
    let malformed = |NotJson(at): NotJson| {
        Error::malformed("the configuration is not JSON")
            .in_format("config")
            .at(at as u64)
    };
    let Some(members) = JsonMembers::of(text, start) else {
        return Err(Error::malformed("the configuration is not a JSON object").in_format("config"));
    };
    let mut members = members.peekable();
    let first_edit = edits.len();
    let (mut kept, mut has_dtype, mut is_model, mut first) = (0_usize, false, false, None);
    // where the value of the member before this one ends
    let mut last = 0;
    while let Some(member) = members.next() {
        let member = member.map_err(malformed)?;
        let key = &*member.name;
        first.get_or_insert(member.whole.start);
        is_model |= names(&keys::MODEL_TYPE, key) || names(&keys::CLASSES, key);
        let is_removed = |member: &Vec<String>| {
            let (last, parents) = member.split_last().expect("a member has a key");
            last == key && parents == &path[..]
        };
        if removed.iter().any(is_removed) {
            // with the comma before it, or for the first member with the one behind it
            let range = if kept > 0 {
                last..member.whole.end
            } else {
                let next = match members.peek() {
                    Some(Ok(next)) => next.whole.start,
                    _ => member.whole.end,
                };
                member.whole.start..next
            };
            last = member.whole.end;
            let with = String::new();
            budget.push(edits, ConfigEdit { range, with }, WHAT)?;
            continue;
        }
        kept += 1;
        last = member.whole.end;
        let value = &text[member.value.clone()];
        if names(&keys::DTYPE, key) && (value.starts_with('"') || value == "null") {
            has_dtype = true;
            let edit = ConfigEdit {
                range: member.value,
                with: name.to_owned(),
            };
            budget.push(edits, edit, WHAT)?;
        } else if value.starts_with('{') && path.len() < MAX_DEPTH {
            path.push(key.to_owned());
            let inside = member.value.start;
            collect(text, inside, path, (name, removed), edits, budget)?;
            path.pop();
        }
    }
    // without a dtype, some clients load F32: at the top of a model's configuration it is added
    if path.is_empty() && is_model && !has_dtype && kept > 0 {
        let first = first.expect("an object with members has a first one");
        // indented as the first member is
        let blanks = text[..first]
            .rfind(['{', '\n'])
            .map_or("", |at| &text[at + 1..first]);
        let line = if text[..first].contains('\n') {
            "\n"
        } else {
            ""
        };
        let edit = ConfigEdit {
            range: first..first,
            with: format!("\"{}\": {name},{line}{blanks}", dtype_for_all()),
        };
        // in the order of the text: before the object's other edits
        edits.insert(first_edit, edit);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::limits::Limits;

    fn edit(text: &str) -> String {
        let budget = Budget::new(Limits::default());
        String::from_utf8(edited(text, Dtype::BF16, false, &budget).unwrap()).unwrap()
    }

    #[test]
    fn quantisation_is_removed_and_the_rest_is_kept() {
        let cases = [
            (
                "{\n  \"a\": 1e-05,\n  \"quantization_config\": {\"bits\": 4},\n  \"b\": [0.0, Infinity]\n}\n",
                "{\n  \"a\": 1e-05,\n  \"b\": [0.0, Infinity]\n}\n",
            ),
            (
                r#"{"quantization": {}, "quantization_config": {"a": {}}, "b": 1}"#,
                r#"{"b": 1}"#,
            ),
            (
                r#"{"b": 1, "quantization": {}, "compression_config": 1}"#,
                r#"{"b": 1}"#,
            ),
            (r#"{"quantization": {}}"#, r#"{}"#),
            (
                r#"{"text_config": {"dtype": "float8", "quantization_config": {}}, "torch_dtype": null}"#,
                r#"{"text_config": {"dtype": "bfloat16"}, "torch_dtype": "bfloat16"}"#,
            ),
            (
                r#"{"llm_config": {"quantization_config": {"bits": 4}}, "b": 1}"#,
                r#"{"llm_config": {}, "b": 1}"#,
            ),
            ("{}", "{}"),
            // statements that are not read
            (
                r#"{"codec": {"quantization": {"levels": 8}}, "sub": [{"quantization_config": {"bits": 4}}], "quant_cfg": {"a": 1}}"#,
                r#"{"codec": {"quantization": {"levels": 8}}, "sub": [{"quantization_config": {"bits": 4}}], "quant_cfg": {"a": 1}}"#,
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(edit(text), expected);
        }
    }

    #[test]
    fn quantisation_that_no_scheme_has_consumed_stays() {
        let budget = Budget::new(Limits::default());
        let text = r#"{"quantization_config": {"quant_method": "new"}, "a": {"quantization": 1}}"#;
        let kept = edited(text, Dtype::BF16, true, &budget).unwrap();
        assert_eq!(kept, text.as_bytes());
    }

    #[test]
    fn a_model_names_its_dtype() {
        assert_eq!(
            edit("{\n  \"architectures\": [\"X\"],\n  \"a\": 1\n}"),
            "{\n  \"torch_dtype\": \"bfloat16\",\n  \"architectures\": [\"X\"],\n  \"a\": 1\n}"
        );
        assert_eq!(
            edit(r#"{"quantization_config": {}, "model_type": "x"}"#),
            r#"{"torch_dtype": "bfloat16","model_type": "x"}"#
        );
        // a component of diffusers has no such member
        assert_eq!(edit(r#"{"_class_name": "X"}"#), r#"{"_class_name": "X"}"#);
    }

    #[test]
    fn damaged_configurations_are_refused() {
        let budget = Budget::new(Limits::default());
        for text in ["", "[]", "{", r#"{"a""#, r#"{"a": {"b": }}"#, "null"] {
            assert!(edited(text, Dtype::F16, false, &budget).is_err(), "{text}");
        }
    }

    #[test]
    fn every_prefix_and_every_result_is_sound() {
        let text = r#"{"quantization":{"a":[1,{"b":"}"}]},"x":{"dtype":"q","quantization":3},"model_type":"m"}"#;
        let budget = Budget::new(Limits::default());
        for end in 0..text.len() {
            assert!(edited(&text[..end], Dtype::F32, false, &budget).is_err());
        }
        let result: serde_json::Value = serde_json::from_str(&edit(text)).unwrap();
        let expected = serde_json::json!({"torch_dtype": "bfloat16", "x": {"dtype": "bfloat16"}, "model_type": "m"});
        assert_eq!(result, expected);
    }
}
