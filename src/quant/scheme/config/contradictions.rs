//! Contradictions within and between the configurations of one checkpoint. Writers store the same settings at several places; of two that
//! differ, nothing says which one the weights were stored by.

use std::fmt;

use serde_json::{Map, Value};

use crate::base::error::Result;
use crate::base::limits::Budget;
use crate::quant::settings::is_nothing;
use crate::read::catalog::quote;

use super::super::settings_of;
use super::method_of;
use super::sections::shown;

/// Settings that decide how weights are read, under all of their names.
static COMPARED: &[&[&str]] = &[
    &["quant_algo"],
    BITS,
    &["group_size", "q_group_size"],
    &["checkpoint_format"],
    &["format"],
    &["mode"],
    &["sym"],
    &["desc_act"],
    &["zero_point"],
    &["quant_type"],
    &["bnb_4bit_quant_type"],
    &["data_type"],
    &["packing_format"],
    &["fmt"],
    &["weight_block_size"],
    &["qformat_weight"],
];

/// The names of the number of bits of a code.
const BITS: &[&str] = &["bits", "w_bit", "wbits"];

/// Whether the settings of a method have that number.
fn has_bits(method: &str) -> bool {
    let mut keys = settings_of(method).flat_map(|settings| settings.keys);
    keys.any(|(key, _)| BITS.contains(key))
}

/// A setting that has different values in two configurations, or under two names in one.
pub(super) struct Contradiction {
    key: &'static str,
    /// Place and value.
    said: [(String, String); 2],
}

impl Contradiction {
    /// The first contradiction of a list of configurations, each with its place.
    pub(super) fn first(
        documents: &[(String, Map<String, Value>)],
        budget: &Budget,
    ) -> Result<Option<Self>> {
        for (later, (place, map)) in documents.iter().enumerate() {
            budget.steps(COMPARED.len() as u64, "the configuration")?;
            if let Some(found) = Self::within(place, map) {
                return Ok(Some(found));
            }
            for (before, earlier) in &documents[..later] {
                budget.steps(COMPARED.len() as u64, "the configuration")?;
                let found = Self::between((before, earlier), (place, map));
                if found.is_some() {
                    return Ok(found);
                }
            }
        }
        Ok(None)
    }

    /// One setting under two of its names.
    fn within(place: &str, map: &Map<String, Value>) -> Option<Self> {
        COMPARED.iter().find_map(|names| {
            let mut values = names.iter().filter_map(|name| said(map, &[name]));
            let first = values.next()?;
            let other = values.find(|value| !same(first, value))?;
            let said = [first, other].map(|value| (place.to_owned(), shown(value)));
            Some(Self {
                key: names[0],
                said,
            })
        })
    }

    fn between(
        (place, one): (&str, &Map<String, Value>),
        (beside, other): (&str, &Map<String, Value>),
    ) -> Option<Self> {
        let made = |key: &'static str, one: String, other: String| Self {
            key,
            said: [(place.to_owned(), one), (beside.to_owned(), other)],
        };
        if let (Some(a), Some(b)) = (method_of(one), method_of(other))
            && family(&a) != family(&b)
        {
            let said = |method: &str| format!(": {}", quote(method));
            return Some(made("quant_method", said(&a), said(&b)));
        }
        // GPTQ's and AWQ's older files name no method, and their settings are of no other one
        for (named, nameless) in [(one, other), (other, one)] {
            let method = method_of(named).filter(|_| method_of(nameless).is_none());
            let is_other = method.is_some_and(|method| !has_bits(&method));
            if is_other && said(named, BITS).is_none() && said(nameless, BITS).is_some() {
                let of = |map| said(map, BITS).map_or_else(String::new, shown);
                return Some(made("bits", of(one), of(other)));
            }
        }
        COMPARED.iter().find_map(|names| {
            let (a, b) = (said(one, names)?, said(other, names)?);
            (!same(a, b)).then(|| made(names[0], shown(a), shown(b)))
        })
    }
}

/// The value of a setting, under the first of its names. False is a value, unlike null.
fn said<'m>(map: &'m Map<String, Value>, names: &[&str]) -> Option<&'m Value> {
    let found = names.iter().find_map(|name| map.get(*name));
    found.filter(|value| value.is_boolean() || !is_nothing(value))
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [(place, one), (beside, other)] = &self.said;
        let key = quote(self.key);
        write!(
            f,
            "the meaning of {key}{one} of {place} beside {key}{other} of {beside}"
        )
    }
}

/// The names of one method.
fn family(method: &str) -> &str {
    let names = ["modelopt", "bitsandbytes"];
    let found = names.into_iter().find(|name| method.starts_with(name));
    found.unwrap_or(method)
}

fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::String(one), Value::String(other)) => one.eq_ignore_ascii_case(other),
        _ => one == other,
    }
}
