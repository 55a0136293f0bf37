//! Tensors of torchao's classes, listed as torchao lists them in safetensors files: `m.weight` is the tensors
//! `m._weight_qdata`, `m._weight_scale`, …, and a JSON text under its own name that describes them.
//!
//! `_rebuild_from_type_v2(_rebuild_wrapper_subclass, class, (class, dtype, size, …), attributes)`. An attribute may be such
//! a tensor itself: its parts and attributes become parts and attributes of the outer one. Sources: torchao 0.18,
//! `prototype/safetensors/safetensors_support.py`, and 0.13, `dtypes/`; PyTorch, `Tensor.__reduce_ex__`.

use serde_json::{Map, Value as Json, json};

use crate::base::error::Result;
use crate::read::format::pickle::globals::{Global, TorchaoClass};
use crate::read::format::pickle::value_heap::{PickleValue, ValueId};

use super::{CallInterpreter, CallResult, unexpected_arguments};
use crate::read::format::pth::geometry::dims;

const ATTRIBUTES: &str = "a tensor's attributes";

/// Longer texts and lists among the attributes are left out: real ones are names and one number per dimension.
const ATTRIBUTE_LEN_MAX: usize = 64;

/// Upper bound of the memory of one attribute, without its name.
const ATTRIBUTE_BYTES: usize = 32 * ATTRIBUTE_LEN_MAX;

/// The parts and attributes of a tensor of one of torchao's classes.
#[derive(Clone, Debug)]
pub(in crate::read::format::pth) struct TensorSubclass {
    class: TorchaoClass,
    /// The attributes that are tensors: name, and index into [`RebuiltTensors::tensors`](super::RebuiltTensors::tensors).
    pub(in crate::read::format::pth) parts: Vec<(Box<str>, usize)>,
    /// The other attributes.
    data: Map<String, Json>,
}

pub(in crate::read::format::pth) fn rebuild(
    interpreter: &CallInterpreter<'_, '_, '_>,
    class: TorchaoClass,
    size: ValueId,
    attributes: ValueId,
) -> Result<TensorSubclass> {
    let heap = interpreter.heap;
    let PickleValue::Dict { items, .. } = heap.get(attributes) else {
        return Err(unexpected_arguments("a tensor of torchao's"));
    };
    let items = heap.container(items);
    // many tensors may refer to one dict of attributes, so each use is charged
    heap.budget().steps(items.len() as u64, ATTRIBUTES)?;
    let mut subclass = TensorSubclass {
        class,
        parts: Vec::new(),
        data: Map::new(),
    };
    for pair in items.chunks_exact(2) {
        let name = heap
            .text_of(pair[0])
            .ok_or_else(|| unexpected_arguments("a tensor of torchao's"))?;
        heap.budget()
            .memory((4 * name.len() + ATTRIBUTE_BYTES) as u64, ATTRIBUTES)?;
        match interpreter.result_of(pair[1]) {
            Some(&CallResult::Tensor(index)) => subclass.parts.push((name.into(), index)),
            Some(CallResult::Subclass(inner)) => {
                heap.budget().memory(inner.memory() as u64, ATTRIBUTES)?;
                subclass.merge_inner(inner);
            }
            _ => subclass
                .data
                .extend(attribute(interpreter, pair[1]).map(|value| (name.to_owned(), value))),
        }
    }
    // the shape is an argument of the wrapper, not an attribute
    subclass.data.insert(
        "shape".to_owned(),
        dims(heap, size, "size")?.to_vec().into(),
    );
    Ok(subclass)
}

impl TensorSubclass {
    /// Adds the parts and attributes of a tensor that is an attribute of this one. A wrapper, which only adds how inputs
    /// are quantised, takes the class of the tensor inside.
    fn merge_inner(&mut self, inner: &Self) {
        // the wrapper's own class describes how inputs are quantised, which the stored weight does not depend on
        if self.class.is_wrapper() {
            self.class = inner.class;
        }
        // parts keep the names that they have in the inner tensor, as torchao's own flattening does
        self.parts.extend_from_slice(&inner.parts);
        self.data.extend(inner.data.clone());
    }

    /// Upper bound of the memory of this value and of its JSON text.
    pub(in crate::read::format::pth) fn memory(&self) -> usize {
        let names = self
            .parts
            .iter()
            .map(|(name, _)| &**name)
            .chain(self.data.keys().map(String::as_str));
        names.map(|name| 4 * name.len() + ATTRIBUTE_BYTES).sum()
    }

    /// The JSON text by which torchao describes such a tensor in safetensors files.
    pub(in crate::read::format::pth) fn torchao_json(&self) -> String {
        let names: Vec<&str> = self.parts.iter().map(|(name, _)| &**name).collect();
        json!({"_type": self.class.name(), "_data": self.data, "_tensor_data_names": names})
            .to_string()
    }
}

/// An attribute that describes how numbers are stored, as torchao writes it. `None` for the other attributes, which
/// describe the matrix multiplication.
fn attribute(interpreter: &CallInterpreter<'_, '_, '_>, mut id: ValueId) -> Option<Json> {
    let heap = interpreter.heap;
    if let Some(&CallResult::PassThrough(sizes)) = interpreter.result_of(id) {
        id = sizes;
    }
    Some(match heap.get(id) {
        PickleValue::Bool(on) => on.into(),
        PickleValue::Int(n) => n.into(),
        PickleValue::Text(span) if span.range().len() <= ATTRIBUTE_LEN_MAX => {
            heap.text(span).into()
        }
        // a member of an enumeration, which is pickled as its class called with a number
        PickleValue::Call(index) => {
            match (heap.call(index).callee, heap.items(heap.call(index).args)) {
                (PickleValue::Global(Global::Torchao(class)), &[choice]) => {
                    match heap.get(choice) {
                        PickleValue::Int(n) => json!({"_type": class.name(), "_data": n}),
                        _ => return None,
                    }
                }
                _ => return None,
            }
        }
        PickleValue::Global(Global::Dtype(dtype)) => {
            json!({"_type": "torch.dtype", "_data": dtype.name()})
        }
        _ => {
            let items = heap
                .sequence(id)
                .filter(|items| items.len() <= ATTRIBUTE_LEN_MAX)?;
            let number = |id: &ValueId| match heap.get(*id) {
                PickleValue::Int(n) => Some(Json::from(n)),
                _ => None,
            };
            items.iter().map(number).collect::<Option<_>>()?
        }
    })
}

/// The prefix of the names of the parts: `m._weight_` for the tensor `m.weight`.
pub(in crate::read::format::pth) fn prefix(name: &str) -> String {
    match name.rsplit_once('.') {
        Some((module, own)) => format!("{module}._{own}_"),
        None => format!("_{name}_"),
    }
}
