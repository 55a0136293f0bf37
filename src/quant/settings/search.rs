//! The keys of a configuration or a descriptor that no settings list, or whose values none knows.

use std::fmt::{self, Display, Write as _};

use serde_json::{Map, Value};

use crate::base::error::Result;
use crate::base::limits::Budget;

use super::words::{has_rotation, is_altering, is_nothing, is_short_for_altering};
use super::{COMMON, KnownValues, SchemeSettings};

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
    is_module: IsModule<'_>,
    budget: &Budget,
) -> Result<Vec<UnknownSetting>> {
    let rows = known.iter().flat_map(|settings| settings.keys);
    SettingsSearch::run(map, rows.chain(COMMON), is_module, budget)
}

/// The keys of a descriptor of one weight that its writer does not have. No key is common to all of them.
pub(crate) fn unknown_in_descriptor(
    map: &Map<String, Value>,
    known: &SchemeSettings,
    budget: &Budget,
) -> Result<Vec<UnknownSetting>> {
    SettingsSearch::run(map, known.keys.iter(), &|_| Ok(false), budget)
}

/// Whether a module of this name has tensors.
type IsModule<'s> = &'s dyn Fn(&str) -> Result<bool>;

struct SettingsSearch<'c> {
    rows: Vec<(Vec<&'static str>, KnownValues)>,
    path: Vec<&'c str>,
    found: Vec<UnknownSetting>,
    is_module: IsModule<'c>,
    budget: &'c Budget,
}

impl<'c> SettingsSearch<'c> {
    fn run(
        map: &'c Map<String, Value>,
        rows: impl Iterator<Item = &'c (&'static str, KnownValues)>,
        is_module: IsModule<'c>,
        budget: &'c Budget,
    ) -> Result<Vec<UnknownSetting>> {
        let mut search = Self {
            rows: rows
                .map(|(path, values)| (path.split('.').collect(), *values))
                .collect(),
            path: Vec::new(),
            found: Vec::new(),
            is_module,
            budget,
        };
        for (key, value) in map {
            search.visit(key, value)?;
        }
        Ok(search.found)
    }

    fn visit(&mut self, key: &'c str, value: &'c Value) -> Result<()> {
        self.budget
            .steps(1 + self.rows.len() as u64 / 4, "the configuration")?;
        let is_empty_text = value.as_str() == Some("");
        if is_nothing(value) && !is_empty_text {
            return Ok(());
        }
        self.path.push(key);
        let visited = match is_empty_text && !self.is_of_texts() {
            true => Ok(()),
            false => self.judge(value),
        };
        self.path.pop();
        visited
    }

    /// Whether a scheme knows the key by its texts, of which an empty one is none.
    fn is_of_texts(&self) -> bool {
        let mut rows = self.rows.iter();
        rows.any(|(row, values)| {
            let mut steps = row.iter().zip(&self.path);
            matches!(values, KnownValues::Texts(_) | KnownValues::Words(_))
                && row.len() == self.path.len()
                && steps.all(|(step, key)| *step == "*" || step == key)
        })
    }

    fn judge(&mut self, value: &'c Value) -> Result<()> {
        let fits = |row: &[&str]| {
            let mut steps = row.iter().zip(&self.path);
            steps.all(|(step, key)| *step == "*" || step == key)
        };
        // a setting that decides is a text, but where a scheme names what is below it
        let last = self.path.last().copied().unwrap_or_default();
        let is_text = value.is_string() || !DECIDING.contains(&last);
        let (mut below, mut texts) = (false, false);
        for (row, values) in &self.rows {
            if row.len() < self.path.len() || !fits(row) {
                continue;
            }
            if row.len() > self.path.len() {
                below |= is_text || row[self.path.len() - 1] == last;
                continue;
            }
            let known = match (values, value) {
                (KnownValues::Any, _) => is_text,
                (KnownValues::Unrotated, value) => !is_altering(last) && !has_rotation(value),
                (KnownValues::Words(known), Value::String(text)) => {
                    texts = true;
                    let is_known = |word: &str| known.contains(&word);
                    text.to_ascii_lowercase().split(':').all(is_known)
                }
                (KnownValues::Words(_), _) => {
                    texts = true;
                    false
                }
                (KnownValues::Text, value) => value.is_string(),
                (KnownValues::Flag, value) => value.is_boolean(),
                (KnownValues::ModuleFlag, value) => {
                    let name = self.path.join(".");
                    // a dotted name is a module's, whose tensors may be in another file
                    let dotted = name.contains('.') && !is_altering(&name);
                    value.is_boolean() && (dotted || (self.is_module)(&name)?)
                }
                (KnownValues::Number, value) => value.is_number(),
                (KnownValues::GroupSize, value) => {
                    value.as_i64().is_some_and(|size| size == -1 || size > 0)
                }
                (KnownValues::GroupSizeOrTensor, value) => {
                    value.as_i64().is_some_and(|size| size >= -1)
                }
                (KnownValues::Count, value) => value.is_u64(),
                (KnownValues::Counts, value) => value
                    .as_array()
                    .is_some_and(|list| list.iter().all(Value::is_u64)),
                (KnownValues::Dtype, Value::String(text)) => is_dtype(text),
                (KnownValues::Dtype, _) => false,
                (KnownValues::Version, Value::String(text)) => is_version(text),
                (KnownValues::Version, _) => false,
                (KnownValues::Texts(known), Value::String(text)) => {
                    texts = true;
                    known.iter().any(|known| known.eq_ignore_ascii_case(text))
                }
                // in place of a text that decides, nothing else is known
                (KnownValues::Texts(_), _) => {
                    texts = true;
                    false
                }
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
            _ => self.add(value, texts),
        }
    }

    fn add(&mut self, value: &Value, decides: bool) -> Result<()> {
        let key = self.path.join(".");
        let last = self.path.last().copied().unwrap_or_default();
        let is_altering = is_altering(&key) || is_short_for_altering(&key) || has_rotation(value);
        // a size of 0 says that nothing is altered
        if is_altering && value.as_f64() == Some(0.0) {
            return Ok(());
        }
        let decides = decides || DECIDING.contains(&last) || is_altering;
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

/// Names of dtypes of PyTorch.
static DTYPES: &[&str] = &[
    "bfloat16",
    "float16",
    "float32",
    "float64",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
];

fn is_dtype(text: &str) -> bool {
    DTYPES.contains(&text.strip_prefix("torch.").unwrap_or(text))
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
            ("*", KnownValues::ModuleFlag),
            ("size", KnownValues::Count),
            ("group", KnownValues::GroupSize),
            ("scale", KnownValues::Dtype),
            ("packing", KnownValues::Words(&["a", "b"])),
            ("meta", KnownValues::Unrotated),
        ],
    };

    fn unknown(text: &str) -> Vec<(String, bool)> {
        let map: Map<String, Value> = serde_json::from_str(text).unwrap();
        let budget = Budget::new(Limits::default());
        let found = unknown_settings(&map, &[&ROWS], &|name| Ok(name == "m.n"), &budget).unwrap();
        found.into_iter().map(|s| (s.key, s.decides)).collect()
    }

    #[test]
    fn known_keys_are_no_evidence() {
        for text in [
            r#"{"bits": 4, "format": "A", "version": "0.1.dev2", "quant_method": "x"}"#,
            r#"{"groups": {"g": {"weights": {"bits": 3}}}, "m.n": {"bits": 2}, "rotation": null, "y": [], "z": false}"#,
            r#"{"m.n": true, "size": 3, "group": -1, "scale": "torch.float16", "rotation_size": 0}"#,
            r#"{"packing": "a:B", "meta": {"rotation": false, "x": 3}, "transform_config": {"config_groups": {}}}"#,
        ] {
            assert_eq!(unknown(text), [], "{text}");
        }
    }

    #[test]
    fn unknown_keys_and_values_are_listed_at_any_depth() {
        let cases = [
            (r#"{"format": "b"}"#, "format", true),
            (r#"{"quant_method": 5}"#, "quant_method", true),
            (r#"{"version": "gemm"}"#, "version", true),
            (r#"{"new": 1}"#, "new", false),
            (r#"{"Rotation": {"a": 1}}"#, "Rotation.a", true),
            (
                r#"{"groups": {"g": {"weights": {"new": 3}}}}"#,
                "groups.g.weights.new",
                false,
            ),
            (r#"{"m": {"type": "n"}}"#, "m.type", true),
            (r#"{"rotate": true}"#, "rotate", true),
            (r#"{"lut_size": 16}"#, "lut_size", true),
            (r#"{"x_perm": [1]}"#, "x_perm.*", true),
            (r#"{"m.rotation": true}"#, "m.rotation", true),
            (r#"{"k": true}"#, "k", false),
            (r#"{"size": "3"}"#, "size", false),
            (r#"{"group": -2}"#, "group", false),
            (r#"{"group": 0}"#, "group", false),
            (r#"{"scale": "float9"}"#, "scale", false),
            (r#"{"format": ["a"]}"#, "format", true),
            (r#"{"format": 7}"#, "format", true),
            (r#"{"quant_method": ["x"]}"#, "quant_method", true),
            (r#"{"packing": "a:c"}"#, "packing", true),
            (r#"{"meta": {"a": [{"rotation": "x"}]}}"#, "meta.a", true),
            (r#"{"k": {"use": "hadamard"}}"#, "k.use", true),
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
