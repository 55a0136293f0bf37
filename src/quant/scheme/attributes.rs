//! Attributes: settings that HQQ stores under a module's name, as tensors of one value or a text, or as values of a pickle.

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::read::catalog::metadata::Value;

use super::context::{Context, not_known, plain};

/// The attributes of one module.
pub(super) struct Attributes<'x, 'c> {
    pub(super) cx: &'x Context<'c>,
    /// Prefix of the attributes' names, without the dot.
    pub(super) prefix: &'x str,
}

impl<'c> Attributes<'_, 'c> {
    fn name(&self, key: &str) -> String {
        [self.prefix, ".", key].concat()
    }

    /// The tensor of this attribute.
    pub(super) fn tensor(&self, key: &str) -> Option<usize> {
        self.cx.position(&self.name(key))
    }

    /// The tensors of this attribute, under this prefix and under `other`.
    pub(super) fn tensors(&self, key: &str, other: &str) -> impl Iterator<Item = usize> + use<> {
        let here = self.tensor(key);
        // settings occur under the module and under its `meta`
        let there = self
            .cx
            .position(&[other, ".", key].concat())
            .filter(|there| here != Some(*there));
        here.into_iter().chain(there)
    }

    /// Records that these attributes are known, also where no decoder reads them.
    pub(super) fn know(&self, keys: &[&str]) {
        for key in keys {
            self.value(key);
        }
    }

    fn value(&self, key: &str) -> Option<&'c Value> {
        self.cx.metadata_value(&self.name(key))
    }

    /// An integer or a boolean.
    pub(super) fn integer(&self, key: &str) -> Result<Option<i64>> {
        if let Some(tensor) = self.tensor(key) {
            return match *self.cx.peek_integers(tensor)? {
                [n] => Ok(Some(n)),
                _ => Err(not_known(self.cx.info(tensor), "expected a single number")),
            };
        }
        Ok(self.value(key).and_then(integer))
    }

    /// A number.
    pub(super) fn number(&self, key: &str) -> Result<Option<f64>> {
        if let Some(tensor) = self
            .tensor(key)
            .filter(|t| plain(self.cx.info(*t)) == Some(Dtype::F32))
        {
            return match *self.cx.peek(tensor)? {
                [a, b, c, d] => Ok(Some(f32::from_le_bytes([a, b, c, d]).into())),
                _ => Err(not_known(self.cx.info(tensor), "expected a single number")),
            };
        }
        match self.value(key) {
            Some(Value::F64(x)) => Ok(Some(*x)),
            #[allow(clippy::cast_precision_loss)] // sizes of codes, in bits
            _ => Ok(self.integer(key)?.map(|n| n as f64)),
        }
    }

    /// A string; in a tensor, one byte per character.
    pub(super) fn text(&self, key: &str) -> Result<Option<String>> {
        if let Some(tensor) = self.tensor(key) {
            return Ok(Some(
                self.cx.peek(tensor)?.into_iter().map(char::from).collect(),
            ));
        }
        Ok(match self.value(key) {
            Some(Value::Text(text)) => Some(text.to_string()),
            _ => None,
        })
    }

    /// A shape.
    pub(super) fn sizes(&self, key: &str) -> Result<Option<Vec<u64>>> {
        let sizes: Vec<i64> = match (self.tensor(key), self.value(key)) {
            (Some(tensor), _) => self.cx.peek_integers(tensor)?,
            // pickled settings arrive as values of the catalog, not as tensors
            (None, Some(Value::List(list))) => list.iter().filter_map(integer).collect(),
            (None, _) => return Ok(None),
        };
        let sizes: Option<Vec<u64>> = sizes.into_iter().map(|n| u64::try_from(n).ok()).collect();
        // an attacker's list may be long; weights have few dimensions
        Ok(sizes.filter(|sizes| (1..=8).contains(&sizes.len())))
    }
}

fn integer(value: &Value) -> Option<i64> {
    match *value {
        Value::I64(n) => Some(n),
        Value::U64(n) => i64::try_from(n).ok(),
        Value::Bool(on) => Some(on.into()),
        _ => None,
    }
}
