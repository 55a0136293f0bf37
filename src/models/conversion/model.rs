//! A GGUF of a known architecture: its metadata by the keys of the architecture.

use std::cell::OnceCell;

use crate::base::error::{Error, Result};
use crate::models::config::MAX_LAYERS;
use crate::models::config::keys::{self, ConfigField};
use crate::read::catalog::metadata::Value;
use crate::read::catalog::quote;
use crate::read::checkpoint::Checkpoint;

use super::GgufConversion;

/// A condition on the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::models) enum Need {
    Nothing,
    /// A tensor of this name exists.
    Tensor(&'static str),
    /// No tensor of this name exists.
    NoTensor(&'static str),
}

/// A GGUF checkpoint of a known architecture.
#[derive(Debug)]
pub(crate) struct Model<'c> {
    pub(in crate::models) checkpoint: &'c Checkpoint,
    pub(in crate::models) conversion: &'static GgufConversion,
    /// Attention heads per layer, or one number for all; read once, since every tensor of attention needs them.
    heads: OnceCell<Vec<Value>>,
    /// The same for heads of keys and values. Empty if the metadata has none.
    key_value_heads: OnceCell<Vec<Value>>,
}

impl<'c> Model<'c> {
    /// The model of a GGUF checkpoint, if its metadata is a whole configuration: a file of a few tensors, such as an adapter,
    /// is no model.
    pub(in crate::models) fn new(
        checkpoint: &'c Checkpoint,
        conversion: &'static GgufConversion,
    ) -> Option<Self> {
        let model = Self {
            checkpoint,
            conversion,
            heads: OnceCell::new(),
            key_value_heads: OnceCell::new(),
        };
        // the only complete test: it reads every key that the files need
        (conversion.config)(&model).is_ok().then_some(model)
    }

    /// The value of `general.architecture`.
    pub(crate) fn name(checkpoint: &'c Checkpoint) -> Option<&'c str> {
        match checkpoint
            .catalog()
            .metadata()
            .get(keys::MODEL_TYPE.key(true))
        {
            Some(Value::Text(name)) => Some(name),
            _ => None,
        }
    }

    /// A metadata value by its whole key.
    pub(in crate::models) fn value(&self, key: &str) -> Option<&'c Value> {
        self.checkpoint.catalog().metadata().get(key)
    }

    /// A metadata value by its key without the architecture's prefix.
    fn own(&self, key: &str) -> Option<&'c Value> {
        self.value(&[self.conversion.name, ".", key].concat())
    }

    pub(in crate::models) fn integer(&self, key: &str) -> Option<u64> {
        self.own(key).and_then(as_integer)
    }

    /// A number by all keys of a field; of an array its length.
    pub(in crate::models) fn number(&self, field: &'static ConfigField) -> Option<u64> {
        field.gguf().iter().find_map(|key| {
            // the tokenizer's keys have no prefix of an architecture
            if key.starts_with(keys::GGUF_TOKENIZER) {
                return match self.value(key) {
                    Some(Value::Array(array)) => Some(array.len),
                    _ => None,
                };
            }
            self.integer(key)
        })
    }

    /// A number that the architecture cannot be without.
    pub(in crate::models) fn needed(&self, field: &'static ConfigField) -> Result<u64> {
        self.number(field).ok_or_else(|| self.missing_field(field))
    }

    #[cold]
    pub(in crate::models) fn missing_field(&self, field: &'static ConfigField) -> Error {
        self.missing(field.key(true))
    }

    pub(in crate::models) fn float(&self, key: &str) -> Option<f64> {
        self.own(key).and_then(as_float)
    }

    pub(in crate::models) fn flag(&self, key: &str) -> Option<bool> {
        match self.own(key) {
            Some(Value::Bool(flag)) => Some(*flag),
            _ => None,
        }
    }

    pub(in crate::models) fn text(&self, key: &str) -> Option<&'c str> {
        match self.own(key) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// A value that the architecture cannot be without.
    pub(in crate::models) fn required(&self, key: &str) -> Result<u64> {
        self.integer(key).ok_or_else(|| self.missing(key))
    }

    pub(in crate::models) fn required_float(&self, key: &str) -> Result<f64> {
        self.float(key).ok_or_else(|| self.missing(key))
    }

    #[cold]
    pub(in crate::models) fn missing(&self, key: &str) -> Error {
        let key = [self.conversion.name, ".", key].concat();
        Error::malformed(format!(
            "the metadata has no usable {}, which a Hugging Face checkpoint needs; the stored names need none",
            quote(&key)
        ))
    }

    /// The elements of an array, or the one value as an array.
    pub(in crate::models) fn list(&self, key: &str) -> Result<Option<Vec<Value>>> {
        let Some(value) = self.own(key) else {
            return Ok(None);
        };
        match value {
            // before it is read: a file may state 2⁶⁰ entries
            Value::Array(array) if array.len > MAX_LAYERS => Err(self.missing(key)),
            Value::Array(_) => {
                let key = [self.conversion.name, ".", key].concat();
                match self.checkpoint.metadata(&key)? {
                    Some(Value::List(list)) => Ok(Some(list.into_vec())),
                    _ => Ok(None),
                }
            }
            // converters write one number where all layers agree
            value => Ok(Some(vec![value.clone()])),
        }
    }

    /// The number of a layer: one value for all, or the layer's of an array. `read` keeps the values.
    fn of_layer(
        &self,
        read: &OnceCell<Vec<Value>>,
        field: &'static ConfigField,
        layer: Option<u64>,
    ) -> Result<Option<u64>> {
        let list = match read.get() {
            Some(list) => list,
            None => {
                // an array of a GGUF is read from the file each time
                let list = self.list(field.key(true))?.unwrap_or_default();
                read.get_or_init(|| list)
            }
        };
        let layer = usize::try_from(layer.unwrap_or(0)).unwrap_or(usize::MAX);
        let value = match &list[..] {
            // also of an array with one entry, as a model of one layer has it
            [one] => Some(one),
            list => list.get(layer),
        };
        Ok(value.and_then(as_integer))
    }

    /// Attention heads of a layer.
    pub(in crate::models) fn heads(&self, layer: Option<u64>) -> Result<u64> {
        self.of_layer(&self.heads, &keys::HEADS, layer)?
            .filter(|heads| *heads > 0)
            .ok_or_else(|| self.missing_field(&keys::HEADS))
    }

    /// Heads of keys and values of a layer: as many as of queries where the metadata has no number of their own.
    pub(in crate::models) fn key_value_heads(&self, layer: Option<u64>) -> Result<u64> {
        let heads = self.of_layer(&self.key_value_heads, &keys::KV_HEADS, layer)?;
        heads
            .filter(|heads| *heads > 0)
            .map_or_else(|| self.heads(layer), Ok)
    }

    /// Elements of a head.
    pub(in crate::models) fn head_size(&self) -> Result<u64> {
        match self.number(&keys::HEAD_DIM) {
            Some(size) => Ok(size),
            None => Ok(self.needed(&keys::HIDDEN_SIZE)? / self.heads(None)?),
        }
    }

    pub(in crate::models) fn has_tensor(&self, name: &str) -> bool {
        self.checkpoint.catalog().position(name).is_some()
    }

    /// The shape of a stored tensor.
    pub(in crate::models) fn shape(&self, name: &str) -> Option<&'c [u64]> {
        Some(&self.checkpoint.catalog().get(name)?.shape)
    }

    /// The elements of a small F32 tensor.
    pub(in crate::models) fn floats(&self, name: &str) -> Result<Option<Vec<f32>>> {
        // a factor for each frequency: half a head's elements are some hundred numbers
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

    pub(in crate::models) fn satisfies(&self, needs: Need) -> bool {
        match needs {
            Need::Nothing => true,
            Need::Tensor(name) => self.has_tensor(name),
            Need::NoTensor(name) => !self.has_tensor(name),
        }
    }
}

pub(in crate::models) fn as_integer(value: &Value) -> Option<u64> {
    match value {
        Value::U64(n) => Some(*n),
        Value::I64(n) => u64::try_from(*n).ok(),
        _ => None,
    }
}

/// A float with the digits that it has as an F32.
pub(in crate::models) fn as_float(value: &Value) -> Option<f64> {
    match value {
        // through text: 1e-6 as an F32, widened to F64, would be written as 9.999999974752427e-7
        Value::F32(n) => n.to_string().parse().ok(),
        Value::F64(n) => Some(*n),
        #[allow(clippy::cast_precision_loss)] // a base of frequencies stored as an integer
        Value::U64(n) => Some(*n as f64),
        _ => None,
    }
    // JSON has no number for the others
    .filter(|n| n.is_finite())
}
