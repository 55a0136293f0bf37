//! The types of values without quotes, by the rules of YAML 1.1 as PyYAML has them: `no` is false, `1.0` a number, `v1.0` a text.
//!
//! Source: PyYAML 6.0 `resolver.py` (the patterns), `constructor.py` (`SafeConstructor`, the values).

use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input};

use super::card_value::CardValue;
use crate::base::error::{Error, Result};

#[derive(Clone, Copy)]
enum ScalarType {
    Null,
    True,
    False,
    Integer,
    Float,
    Date,
    Merge,
    Default,
}

/// Each pattern is for a whole value, and no value has two.
static PATTERNS: &[(ScalarType, &str)] = &[
    (ScalarType::Null, "~|null|Null|NULL|"),
    (ScalarType::True, "yes|Yes|YES|true|True|TRUE|on|On|ON"),
    (ScalarType::False, "no|No|NO|false|False|FALSE|off|Off|OFF"),
    (
        ScalarType::Integer,
        "[-+]?(?:0b[01_]+|0[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+|[1-9][0-9_]*(?::[0-5]?[0-9])+)",
    ),
    (
        ScalarType::Float,
        r"[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
    ),
    (
        ScalarType::Date,
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt]|[ \t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]*)?(?:[ \t]*(?:Z|[-+][0-9]{1,2}(?::[0-9]{2})?))?",
    ),
    (ScalarType::Merge, "<<"),
    (ScalarType::Default, "="),
];

/// Recognises the types of values.
pub(super) struct PlainScalars {
    automaton: DFA,
    cache: Cache,
}

impl PlainScalars {
    pub(super) fn new() -> Self {
        let patterns: Vec<String> = PATTERNS
            .iter()
            .map(|(_, pattern)| format!("^(?:{pattern})$"))
            .collect();
        let bytes = syntax::Config::new().unicode(false).utf8(false);
        let automaton = DFA::builder().syntax(bytes).build_many(&patterns);
        let automaton = automaton.expect("fixed patterns, which the tests compile");
        let cache = automaton.create_cache();
        Self { automaton, cache }
    }

    /// The value that a text without quotes stands for. `=` is a text where it is a key.
    ///
    /// # Errors
    /// If it has a meaning of its own in YAML 1.1: `<<` and `=`.
    pub(super) fn value(&mut self, text: &str, is_key: bool) -> Result<CardValue> {
        let input = Input::new(text).anchored(Anchored::Yes);
        let found = self.automaton.try_search_fwd(&mut self.cache, &input);
        let found =
            found.map_err(|e| Error::unsupported(format!("a value without quotes: {e}")))?;
        let kind = found.map(|found| PATTERNS[found.pattern().as_usize()].0);
        Ok(match kind {
            None => CardValue::Text(text.to_owned()),
            Some(ScalarType::Null) => CardValue::Null,
            Some(ScalarType::True) => CardValue::Flag(true),
            Some(ScalarType::False) => CardValue::Flag(false),
            Some(ScalarType::Integer) => CardValue::Integer(integer(text)),
            Some(ScalarType::Float) => CardValue::Float(float(text)),
            Some(ScalarType::Date) => CardValue::Date,
            Some(ScalarType::Default) if is_key => CardValue::Text(text.to_owned()),
            Some(ScalarType::Merge | ScalarType::Default) => {
                let what = format!("`{text}` without quotes merges or stands for other values");
                return Err(Error::unsupported(what));
            }
        })
    }
}

/// The digits of a number without `_`, and whether it is negative.
fn digits(text: &str) -> (String, bool) {
    let digits = text.replace('_', "").to_ascii_lowercase();
    let unsigned = digits.strip_prefix(['-', '+']);
    (
        unsigned.unwrap_or(&digits).to_owned(),
        digits.starts_with('-'),
    )
}

/// `None` for more than 64 bits, and for a prefix without digits.
fn integer(text: &str) -> Option<i64> {
    let (digits, is_negative) = digits(text);
    let prefixed = [("0b", 2), ("0x", 16), ("0", 8)];
    let prefixed = prefixed.into_iter().find_map(|(prefix, radix)| {
        let rest = digits.strip_prefix(prefix)?;
        Some((rest, radix))
    });
    let magnitude = match prefixed {
        Some(("", 8)) => 0,
        Some((rest, radix)) => i64::from_str_radix(rest, radix).ok()?,
        // `1:30` is 90
        None => digits.split(':').try_fold(0_i64, |sum, part| {
            let part = part.parse().ok()?;
            sum.checked_mul(60)?.checked_add(part)
        })?,
    };
    Some(if is_negative { -magnitude } else { magnitude })
}

fn float(text: &str) -> f64 {
    let (digits, is_negative) = digits(text);
    let magnitude = match &*digits {
        ".inf" => f64::INFINITY,
        ".nan" => f64::NAN,
        _ => {
            // from the last part on, in the order of the reference
            let parts = digits
                .rsplit(':')
                .map(|part| part.parse().unwrap_or(f64::NAN));
            let mut base = 1.0;
            parts.fold(0.0, |sum, part: f64| {
                let sum = sum + part * base;
                base *= 60.0;
                sum
            })
        }
    };
    if is_negative { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_types_of_yaml_1_1() {
        let mut scalars = PlainScalars::new();
        let text = |text: &str| CardValue::Text(text.to_owned());
        let number = |number| CardValue::Integer(Some(number));
        // each from `yaml.safe_load`
        for (written, expected) in [
            ("", CardValue::Null),
            ("~", CardValue::Null),
            ("NULL", CardValue::Null),
            ("nULL", text("nULL")),
            ("no", CardValue::Flag(false)),
            ("On", CardValue::Flag(true)),
            ("y", text("y")),
            ("nO", text("nO")),
            ("noo", text("noo")),
            ("0", number(0)),
            ("-0", number(0)),
            ("00", number(0)),
            ("010", number(8)),
            ("09", text("09")),
            ("0o7", text("0o7")),
            ("+1_000", number(1000)),
            ("0x1F", number(31)),
            ("-0b101", number(-5)),
            ("1:30", number(90)),
            ("-1:30:05", number(-5405)),
            ("1:60", text("1:60")),
            ("9223372036854775807", number(i64::MAX)),
            ("9223372036854775808", CardValue::Integer(None)),
            ("1.0", CardValue::Float(1.0)),
            ("1.", CardValue::Float(1.0)),
            (".5", CardValue::Float(0.5)),
            ("-.5", text("-.5")),
            ("1e5", text("1e5")),
            ("1.0e5", text("1.0e5")),
            ("1.0e+5", CardValue::Float(1e5)),
            ("1_0.2_5", CardValue::Float(10.25)),
            ("1:30.5", CardValue::Float(90.5)),
            ("-.Inf", CardValue::Float(f64::NEG_INFINITY)),
            ("v1.0", text("v1.0")),
            ("1.0.0", text("1.0.0")),
            ("2024-01-31", CardValue::Date),
            ("2024-1-31", text("2024-1-31")),
            ("2024-1-31 1:02:03", CardValue::Date),
            ("2024-01-31t01:02:03.5 +01:00", CardValue::Date),
            ("2024-01-31T01:02", text("2024-01-31T01:02")),
            ("apache-2.0", text("apache-2.0")),
            ("llama3", text("llama3")),
        ] {
            assert_eq!(
                scalars.value(written, false).unwrap(),
                expected,
                "{written}"
            );
        }
        assert!(matches!(scalars.value(".NaN", false), Ok(CardValue::Float(n)) if n.is_nan()));
        assert!(scalars.value("<<", true).is_err() && scalars.value("=", false).is_err());
        assert_eq!(scalars.value("=", true).unwrap(), text("="));
    }
}
