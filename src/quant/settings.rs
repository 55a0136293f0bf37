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
    /// True and false, under the name of a module.
    ModuleFlag,
    /// A number from 0 on.
    Count,
    /// A list of such numbers.
    Counts,
    /// The name of a dtype of PyTorch, with or without `torch.`.
    Dtype,
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

/// Whether a name says that stored numbers are not the weights themselves. It is asked of most keys and tensors: nothing is
/// copied, and the words, of which no two begin alike, are found by their first two letters.
pub(crate) fn is_altering(name: &str) -> bool {
    let name = name.as_bytes();
    name.array_windows::<2>().enumerate().any(|(at, pair)| {
        let word: &[u8] = match &[pair[0] | 0x20, pair[1] | 0x20] {
            b"ro" => b"rotat",
            b"tr" => b"transform",
            b"pe" => b"permut",
            b"co" => b"codebook",
            b"of" => b"offset",
            b"ha" => b"hadamard",
            b"sp" => b"spinquant",
            b"qu" => b"quarot",
            _ => return false,
        };
        let part = name.get(at..at + word.len());
        part.is_some_and(|part| part.eq_ignore_ascii_case(word))
    })
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
                (KnownValues::ModuleFlag, value) => {
                    let name = self.path.join(".");
                    // a dotted name is a module's, whose tensors may be in another file
                    let dotted = name.contains('.') && !is_altering(&name);
                    value.is_boolean() && (dotted || (self.is_module)(&name)?)
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
        let is_altering = is_altering(&key);
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

/// Whether a value says no, as some writers do in a text or a number. Null says nothing.
pub(crate) fn is_off(value: &Value) -> bool {
    match value {
        Value::Bool(on) => !on,
        Value::String(text) => text.eq_ignore_ascii_case("false"),
        other => other.as_f64() == Some(0.0),
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
            ("*", KnownValues::ModuleFlag),
            ("size", KnownValues::Count),
            ("scale", KnownValues::Dtype),
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
            r#"{"m.n": true, "size": 3, "scale": "torch.float16", "rotation_size": 0}"#,
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
            (r#"{"rotate": true}"#, "rotate", true),
            (r#"{"m.rotation": true}"#, "m.rotation", true),
            (r#"{"k": true}"#, "k", false),
            (r#"{"size": "3"}"#, "size", false),
            (r#"{"scale": "float9"}"#, "scale", false),
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
