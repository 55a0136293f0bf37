//! Documents of `--json`, validated against the schemas of `docs/`.

use serde_json::Value;

use crate::process::workspace;

/// Validates a value against the subset of JSON Schema that these schemas use. `at` is the path of the value.
fn validate(value: &Value, schema: &Value, root: &Value, at: &str) {
    if let Some(name) = schema["$ref"].as_str() {
        let target = root
            .pointer(name.trim_start_matches('#'))
            .unwrap_or_else(|| panic!("{name} is not defined in the schema"));
        return validate(value, target, root, at);
    }
    if let Some(constant) = schema.get("const") {
        assert_eq!(value, constant, "{at}");
    }
    if let Some(choices) = schema["enum"].as_array() {
        assert!(choices.contains(value), "{at}: {value}");
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => vec![],
    };
    let is = |name: &&str| match *name {
        "null" => value.is_null(),
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{at}: unknown type {other}"),
    };
    assert!(
        types.is_empty() || types.iter().any(is),
        "{at} is not {types:?}: {value}"
    );
    if let Some(object) = value.as_object() {
        for key in schema["required"].as_array().into_iter().flatten() {
            assert!(
                object.contains_key(key.as_str().unwrap()),
                "{at} lacks {key}"
            );
        }
        for (key, member) in object {
            match schema["properties"].get(key) {
                Some(schema) => validate(member, schema, root, &format!("{at}.{key}")),
                None => assert_ne!(
                    schema["additionalProperties"], false,
                    "{at}.{key} is not documented"
                ),
            }
        }
    }
    if let (Some(items), Some(schema)) = (value.as_array(), schema.get("items")) {
        for (i, item) in items.iter().enumerate() {
            validate(item, schema, root, &format!("{at}[{i}]"));
        }
    }
}

/// Parses a document and validates it against a schema of `docs/`.
pub(crate) fn document(text: &str, schema: &str) -> Value {
    let document: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
    let schema = std::fs::read_to_string(workspace().join("docs").join(schema)).unwrap();
    let schema: Value = serde_json::from_str(&schema).unwrap();
    validate(&document, &schema, &schema, "document");
    document
}
