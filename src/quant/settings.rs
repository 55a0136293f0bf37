//! Settings: the keys of a quantisation configuration that a scheme knows, and the values that it knows of them.
//!
//! Each row of `SCHEMES` has a [`SchemeSettings`]. A configuration is compared with the settings of all schemes that its
//! `quant_method` belongs to; a key that none of them knows is evidence for the account (`account.rs`).

use std::fmt::{self, Display, Write as _};

use serde_json::{Map, Value};

use crate::base::error::Result;
use crate::base::limits::Budget;

/// The settings that a scheme knows.
#[derive(Debug)]
pub(crate) struct SchemeSettings {
    /// Values of `quant_method`, in lower case. The empty one stands for configurations that name no method.
    pub(crate) methods: &'static [&'static str],
    /// Dotted paths of keys, and their known values. `*` is any key, or any position of a list.
    pub(crate) keys: &'static [(&'static str, KnownValues)],
}

impl SchemeSettings {
    /// For a scheme that no configuration describes.
    pub(crate) const NONE: Self = Self {
        methods: &[],
        keys: &[],
    };
}

/// The values of a key that are known.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KnownValues {
    /// All, with everything below: shapes and dtypes say the same, or it does not concern stored weights.
    Any,
    /// These texts, in any case.
    Texts(&'static [&'static str]),
    /// A version: numbers and dots.
    Version,
    /// True and false.
    Flag,
}

/// Keys that all methods may have.
static COMMON: &[(&str, KnownValues)] = &[
    ("quant_method", KnownValues::Any),
    // lists of modules that are not quantised
    ("modules_to_not_convert", KnownValues::Any),
    ("ignore", KnownValues::Any),
    ("ignored_layers", KnownValues::Any),
    ("exclude_modules", KnownValues::Any),
    ("llm_int8_skip_modules", KnownValues::Any),
    ("skip_modules", KnownValues::Any),
    ("modules_in_block_to_quantize", KnownValues::Any),
    ("block_name_to_quantize", KnownValues::Any),
    ("lm_head", KnownValues::Flag),
    // activations and caches
    ("activation_scheme", KnownValues::Any),
    ("kv_cache_scheme", KnownValues::Any),
    ("kv_cache_quant_algo", KnownValues::Any),
    // the run that quantised
    ("producer", KnownValues::Any),
    ("dataset", KnownValues::Any),
    ("tokenizer", KnownValues::Any),
    ("batch_size", KnownValues::Any),
    ("dtype", KnownValues::Any),
    ("torch_dtype", KnownValues::Any),
    // integrations of transformers
    ("dequantize", KnownValues::Any),
    ("use_kernels", KnownValues::Any),
    ("pre_quantized", KnownValues::Any),
    ("is_checkpoint_fp8_serialized", KnownValues::Any),
];

/// Keys whose values decide how bytes are read, so that one that is not known is no detail.
static DECIDING: &[&str] = &[
    "quant_method",
    "format",
    "type",
    "mode",
    "version",
    "checkpoint_format",
    "quant_algo",
    "pack_method",
    "quant_type",
    "packing_format",
    "weight_format",
];

/// Words of keys that say that stored numbers are not the weights themselves.
static ALTERING: &[&str] = &[
    "rotat",
    "transform",
    "permut",
    "codebook",
    "offset",
    "hadamard",
    "spinquant",
    "quarot",
];

/// Whether a name says that stored numbers are not the weights themselves.
pub(crate) fn is_altering(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ALTERING.iter().any(|word| name.contains(word))
}

/// A key that no scheme knows, or whose value none knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnknownSetting {
    /// The dotted path of the key.
    pub(crate) key: String,
    /// The beginning of its value.
    pub(crate) value: String,
    /// Whether weights that are read without it could be wrong.
    pub(crate) decides: bool,
}

/// Unknown keys that are listed, beside the first that decides. A file decides how many there are.
const MAX_LISTED: usize = 16;

/// Depth of a configuration that is searched: configurations of known methods have five levels.
const MAX_DEPTH: usize = 12;

/// The keys of a configuration that the settings do not know. Values of null, false or nothing are no evidence.
pub(crate) fn unknown_settings(
    map: &Map<String, Value>,
    known: &[&SchemeSettings],
    budget: &Budget,
) -> Result<Vec<UnknownSetting>> {
    let rows = known
        .iter()
        .flat_map(|settings| settings.keys)
        .chain(COMMON);
    let mut search = SettingsSearch {
        rows: rows
            .map(|(path, values)| (path.split('.').collect(), *values))
            .collect(),
        path: Vec::new(),
        found: Vec::new(),
        budget,
    };
    for (key, value) in map {
        search.visit(key, value)?;
    }
    Ok(search.found)
}

struct SettingsSearch<'c> {
    rows: Vec<(Vec<&'static str>, KnownValues)>,
    path: Vec<&'c str>,
    found: Vec<UnknownSetting>,
    budget: &'c Budget,
}

impl<'c> SettingsSearch<'c> {
    fn visit(&mut self, key: &'c str, value: &'c Value) -> Result<()> {
        self.budget
            .steps(1 + self.rows.len() as u64 / 4, "the configuration")?;
        if is_nothing(value) {
            return Ok(());
        }
        self.path.push(key);
        let visited = self.judge(value);
        self.path.pop();
        visited
    }

    fn judge(&mut self, value: &'c Value) -> Result<()> {
        let fits = |row: &[&str]| {
            let mut steps = row.iter().zip(&self.path);
            steps.all(|(step, key)| *step == "*" || step == key)
        };
        let (mut below, mut texts) = (false, None);
        for (row, values) in &self.rows {
            if row.len() < self.path.len() || !fits(row) {
                continue;
            }
            if row.len() > self.path.len() {
                below = true;
                continue;
            }
            let known = match (values, value) {
                (KnownValues::Any, _) => true,
                (KnownValues::Flag, value) => value.is_boolean(),
                (KnownValues::Version, Value::String(text)) => is_version(text),
                (KnownValues::Version, _) => false,
                (KnownValues::Texts(known), Value::String(text)) => {
                    texts = Some(*known);
                    known.iter().any(|known| known.eq_ignore_ascii_case(text))
                }
                (KnownValues::Texts(known), Value::Array(all)) => all.iter().all(|item| {
                    let text = item.as_str().unwrap_or_default();
                    known.iter().any(|known| known.eq_ignore_ascii_case(text))
                }),
                (KnownValues::Texts(_), _) => false,
            };
            if known {
                return Ok(());
            }
        }
        match value {
            Value::Object(map) if below && self.path.len() < MAX_DEPTH => {
                for (key, value) in map {
                    self.visit(key, value)?;
                }
                Ok(())
            }
            Value::Array(list) if below && self.path.len() < MAX_DEPTH => {
                for value in list {
                    self.visit("*", value)?;
                }
                Ok(())
            }
            _ => self.add(value, texts.is_some()),
        }
    }

    fn add(&mut self, value: &Value, decides: bool) -> Result<()> {
        let key = self.path.join(".");
        let last = self.path.last().copied().unwrap_or_default();
        let decides = decides || DECIDING.contains(&last) || is_altering(&key);
        // one that decides is never hidden by many that do not
        let is_first = decides && !self.found.iter().any(|found| found.decides);
        if self.found.len() >= MAX_LISTED && !is_first {
            return Ok(());
        }
        self.budget.memory(512, "the configuration")?;
        self.found.push(UnknownSetting {
            key: Excerpt::of(&key),
            value: Excerpt::of(value),
            decides,
        });
        Ok(())
    }
}

/// Whether a value is null, false or empty.
pub(crate) fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(on) => !on,
        Value::String(text) => {
            text.is_empty() || ["false", "none", "null"].contains(&&*text.to_ascii_lowercase())
        }
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Number(_) => false,
    }
}

fn is_version(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b".+-_".contains(&b))
}

/// The beginning of a text, for messages. The rest of it is not made: a file decides its length.
struct Excerpt(String);

impl Excerpt {
    const MAX_BYTES: usize = 120;

    fn of(text: &dyn Display) -> String {
        let mut out = Self(String::new());
        let is_cut = write!(out, "{text}").is_err();
        out.0.extend(is_cut.then_some('…'));
        out.0
    }
}

impl fmt::Write for Excerpt {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = Self::MAX_BYTES - self.0.len();
        self.0.push_str(&text[..text.floor_char_boundary(room)]);
        if text.len() > room {
            return Err(fmt::Error);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::limits::Limits;

    static ROWS: SchemeSettings = SchemeSettings {
        methods: &["x"],
        keys: &[
            ("bits", KnownValues::Any),
            ("format", KnownValues::Texts(&["a"])),
            ("version", KnownValues::Version),
            ("groups.*.weights.bits", KnownValues::Any),
            ("*.bits", KnownValues::Any),
        ],
    };

    fn unknown(text: &str) -> Vec<(String, bool)> {
        let map: Map<String, Value> = serde_json::from_str(text).unwrap();
        let budget = Budget::new(Limits::default());
        let found = unknown_settings(&map, &[&ROWS], &budget).unwrap();
        found.into_iter().map(|s| (s.key, s.decides)).collect()
    }

    #[test]
    fn known_keys_are_no_evidence() {
        for text in [
            r#"{"bits": 4, "format": "A", "version": "0.1.dev2", "quant_method": "x"}"#,
            r#"{"groups": {"g": {"weights": {"bits": 3}}}, "m.n": {"bits": 2}, "rotation": null, "y": [], "z": false}"#,
        ] {
            assert_eq!(unknown(text), [], "{text}");
        }
    }

    #[test]
    fn unknown_keys_and_values_are_listed_at_any_depth() {
        let cases = [
            (r#"{"format": "b"}"#, "format", true),
            (r#"{"version": "gemm"}"#, "version", true),
            (r#"{"new": 1}"#, "new", false),
            (r#"{"Rotation": {"a": 1}}"#, "Rotation.a", true),
            (
                r#"{"groups": {"g": {"weights": {"new": 3}}}}"#,
                "groups.g.weights.new",
                false,
            ),
            (r#"{"m": {"type": "n"}}"#, "m.type", true),
        ];
        for (text, key, decides) in cases {
            assert_eq!(unknown(text), [(key.to_owned(), decides)], "{text}");
        }
    }

    #[test]
    fn a_deciding_key_is_not_hidden_by_many_others() {
        let many: String = (0..100).map(|i| format!(r#""k{i}": 1, "#)).collect();
        let text = format!(
            r#"{{{many} "zz_rotation": {{"a": "{}"}}}}"#,
            "x".repeat(999)
        );
        let found = unknown(&text);
        assert_eq!(found.len(), MAX_LISTED + 1);
        assert_eq!(found.last().unwrap(), &("zz_rotation.a".to_owned(), true));
        assert_eq!(Excerpt::of(&text).len(), 120 + '…'.len_utf8());
    }
}
