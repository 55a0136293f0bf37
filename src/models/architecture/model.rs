//! A GGUF of a known architecture: its metadata by the keys of the architecture.

use std::cell::OnceCell;

use crate::base::error::{Error, Result};
use crate::read::catalog::metadata::Value;
use crate::read::catalog::quote;
use crate::read::checkpoint::Checkpoint;

use super::Architecture;

/// Elements of a metadata array that is read here: one per layer.
const MAX_LAYERS: u64 = 1 << 16;

/// A condition on the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    Nothing,
    /// A tensor of this name exists.
    Tensor(&'static str),
    /// No tensor of this name exists.
    NoTensor(&'static str),
}

/// A GGUF checkpoint and its row of the table.
#[derive(Debug)]
pub(crate) struct Model<'c> {
    pub(super) checkpoint: &'c Checkpoint,
    pub(super) architecture: &'static Architecture,
    /// Attention heads per layer, or one number for all; read once, since every tensor of attention needs them.
    heads: OnceCell<Vec<Value>>,
    /// The same for heads of keys and values. Empty if the metadata has none.
    key_value_heads: OnceCell<Vec<Value>>,
}

impl<'c> Model<'c> {
    /// The model of a GGUF checkpoint, if its architecture is in the table and its metadata is a whole configuration: a file
    /// of a few tensors, such as an adapter, is no model.
    pub(crate) fn of(checkpoint: &'c Checkpoint) -> Option<Self> {
        if checkpoint.catalog().format() != "gguf" {
            return None;
        }
        let architecture = Architecture::find(Self::name(checkpoint)?)?;
        let model = Self {
            checkpoint,
            architecture,
            heads: OnceCell::new(),
            key_value_heads: OnceCell::new(),
        };
        (architecture.config)(&model).is_ok().then_some(model)
    }

    /// The value of `general.architecture`.
    pub(crate) fn name(checkpoint: &'c Checkpoint) -> Option<&'c str> {
        match checkpoint.catalog().metadata().get("general.architecture") {
            Some(Value::Text(name)) => Some(name),
            _ => None,
        }
    }

    /// A metadata value by its whole key.
    pub(super) fn value(&self, key: &str) -> Option<&'c Value> {
        self.checkpoint.catalog().metadata().get(key)
    }

    /// A metadata value by its key without the architecture's prefix.
    fn own(&self, key: &str) -> Option<&'c Value> {
        self.value(&[self.architecture.name, ".", key].concat())
    }

    pub(super) fn integer(&self, key: &str) -> Option<u64> {
        self.own(key).and_then(as_integer)
    }

    pub(super) fn float(&self, key: &str) -> Option<f64> {
        self.own(key).and_then(as_float)
    }

    pub(super) fn flag(&self, key: &str) -> Option<bool> {
        match self.own(key) {
            Some(Value::Bool(flag)) => Some(*flag),
            _ => None,
        }
    }

    pub(super) fn text(&self, key: &str) -> Option<&'c str> {
        match self.own(key) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// A value that the architecture cannot be without.
    pub(super) fn required(&self, key: &str) -> Result<u64> {
        self.integer(key).ok_or_else(|| self.missing(key))
    }

    pub(super) fn required_float(&self, key: &str) -> Result<f64> {
        self.float(key).ok_or_else(|| self.missing(key))
    }

    #[cold]
    pub(super) fn missing(&self, key: &str) -> Error {
        let key = [self.architecture.name, ".", key].concat();
        Error::malformed(format!(
            "the metadata has no usable {}, which a Hugging Face checkpoint needs; the stored names need none",
            quote(&key)
        ))
    }

    /// The elements of an array, or the one value as an array.
    pub(super) fn list(&self, key: &str) -> Result<Option<Vec<Value>>> {
        let Some(value) = self.own(key) else {
            return Ok(None);
        };
        match value {
            Value::Array(array) if array.len > MAX_LAYERS => Err(self.missing(key)),
            Value::Array(_) => {
                let key = [self.architecture.name, ".", key].concat();
                match self.checkpoint.metadata(&key)? {
                    Some(Value::List(list)) => Ok(Some(list.into_vec())),
                    _ => Ok(None),
                }
            }
            value => Ok(Some(vec![value.clone()])),
        }
    }

    /// The number of a layer: the one value of a key, or the layer's of an array. `read` keeps the values.
    fn of_layer(
        &self,
        read: &OnceCell<Vec<Value>>,
        key: &str,
        layer: Option<u64>,
    ) -> Result<Option<u64>> {
        let list = match read.get() {
            Some(list) => list,
            None => {
                let list = self.list(key)?.unwrap_or_default();
                read.get_or_init(|| list)
            }
        };
        let layer = usize::try_from(layer.unwrap_or(0)).unwrap_or(usize::MAX);
        let value = match &list[..] {
            [one] => Some(one),
            list => list.get(layer),
        };
        Ok(value.and_then(as_integer))
    }

    /// Attention heads of a layer.
    pub(super) fn heads(&self, layer: Option<u64>) -> Result<u64> {
        const KEY: &str = "attention.head_count";
        self.of_layer(&self.heads, KEY, layer)?
            .filter(|heads| *heads > 0)
            .ok_or_else(|| self.missing(KEY))
    }

    /// Heads of keys and values of a layer: those of queries where the metadata has no number of their own.
    pub(super) fn key_value_heads(&self, layer: Option<u64>) -> Result<u64> {
        const KEY: &str = "attention.head_count_kv";
        let heads = self.of_layer(&self.key_value_heads, KEY, layer)?;
        heads
            .filter(|heads| *heads > 0)
            .map_or_else(|| self.heads(layer), Ok)
    }

    /// Elements of a head.
    pub(super) fn head_size(&self) -> Result<u64> {
        match self.integer("attention.key_length") {
            Some(size) => Ok(size),
            None => Ok(self.required("embedding_length")? / self.heads(None)?),
        }
    }

    pub(super) fn has_tensor(&self, name: &str) -> bool {
        self.checkpoint.catalog().position(name).is_some()
    }

    /// The shape of a stored tensor.
    pub(super) fn shape(&self, name: &str) -> Option<&'c [u64]> {
        Some(&self.checkpoint.catalog().get(name)?.shape)
    }

    /// The elements of a small F32 tensor.
    pub(super) fn floats(&self, name: &str) -> Result<Option<Vec<f32>>> {
        const MAX_BYTES: u64 = 64 << 10;
        let Some(info) = self.checkpoint.catalog().get(name) else {
            return Ok(None);
        };
        if info.encoding != crate::read::catalog::Encoding::Plain(crate::base::kernel::Dtype::F32)
            || info.nbytes() > MAX_BYTES
        {
            return Err(Error::malformed(format!(
                "tensor {}: {} {:?} is no table of frequencies",
                quote(name),
                info.encoding,
                info.shape.as_slice()
            ))
            .at(info.bytes.start));
        }
        let bytes = self.checkpoint.tensor_of(info).bytes()?;
        let values = bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b));
        Ok(Some(values.collect()))
    }

    pub(super) fn satisfies(&self, needs: Need) -> bool {
        match needs {
            Need::Nothing => true,
            Need::Tensor(name) => self.has_tensor(name),
            Need::NoTensor(name) => !self.has_tensor(name),
        }
    }
}

pub(super) fn as_integer(value: &Value) -> Option<u64> {
    match value {
        Value::U64(n) => Some(*n),
        Value::I64(n) => u64::try_from(*n).ok(),
        _ => None,
    }
}

/// A float with the digits that it has as an F32.
pub(super) fn as_float(value: &Value) -> Option<f64> {
    match value {
        Value::F32(n) => n.to_string().parse().ok(),
        Value::F64(n) => Some(*n),
        #[allow(clippy::cast_precision_loss)] // a base of frequencies stored as an integer
        Value::U64(n) => Some(*n as f64),
        _ => None,
    }
    .filter(|n| n.is_finite())
}
