//! Tensors of torchao's classes, listed as torchao lists them in safetensors files: `m.weight` is the tensors
//! `m._weight_qdata`, `m._weight_scale`, …, and a JSON text under its own name that says what they are.
//!
//! `_rebuild_from_type_v2(_rebuild_wrapper_subclass, class, (class, dtype, size, …), attributes)`. An attribute may be
//! such a tensor itself: its parts and attributes are those of the outer one.
//! Sources: torchao 0.18, `prototype/safetensors/safetensors_support.py`, and 0.13, `dtypes/`; PyTorch,
//! `Tensor.__reduce_ex__`.

use serde_json::{Map, Value as Json, json};

use crate::error::Result;
use crate::format::pickle::heap::{Id, Value};
use crate::format::pickle::world::{Global, Torchao};

use super::geometry::dims;
use super::rebuild::{Made, Work, wrong};

const WHAT: &str = "a tensor's attributes";

/// A list among the attributes has a number for each dimension, and a text is a name.
const LONGEST: usize = 64;

/// Bytes that an attribute takes at most, beside its name.
const ROOM: usize = 32 * LONGEST;

/// What a tensor of a class consists of.
#[derive(Clone, Debug)]
pub(super) struct Subclass {
    class: Torchao,
    /// Attributes that are tensors, by name: indices into [`Rebuilt::tensors`](super::rebuild::Rebuilt::tensors).
    pub(super) parts: Vec<(Box<str>, usize)>,
    /// Those that are not.
    data: Map<String, Json>,
}

pub(super) fn rebuild(
    work: &Work<'_, '_, '_>,
    class: Torchao,
    size: Id,
    attributes: Id,
) -> Result<Subclass> {
    let heap = work.heap;
    let Value::Dict { items, .. } = heap.get(attributes) else {
        return Err(wrong("a tensor of torchao's"));
    };
    let items = heap.open(items);
    // many tensors may be said to have the same attributes
    heap.budget().steps(items.len() as u64, WHAT)?;
    let mut made = Subclass {
        class,
        parts: Vec::new(),
        data: Map::new(),
    };
    for pair in items.chunks_exact(2) {
        let name = heap
            .text_of(pair[0])
            .ok_or_else(|| wrong("a tensor of torchao's"))?;
        heap.budget().memory((4 * name.len() + ROOM) as u64, WHAT)?;
        match work.made(pair[1]) {
            Some(&Made::Tensor(index)) => made.parts.push((name.into(), index)),
            Some(Made::Subclass(inner)) => {
                heap.budget().memory(inner.room() as u64, WHAT)?;
                made.take(inner);
            }
            _ => made
                .data
                .extend(attribute(work, pair[1]).map(|value| (name.to_owned(), value))),
        }
    }
    // what PyTorch keeps for the class
    made.data.insert(
        "shape".to_owned(),
        dims(heap, size, "size")?.to_vec().into(),
    );
    Ok(made)
}

impl Subclass {
    /// Takes over what a tensor inside consists of.
    fn take(&mut self, inner: &Self) {
        if self.class.is_wrapper() {
            self.class = inner.class;
        }
        self.parts.extend_from_slice(&inner.parts);
        self.data.extend(inner.data.clone());
    }

    /// Bytes that it takes, and that its text does.
    pub(super) fn room(&self) -> usize {
        let names = self
            .parts
            .iter()
            .map(|(name, _)| &**name)
            .chain(self.data.keys().map(String::as_str));
        names.map(|name| 4 * name.len() + ROOM).sum()
    }

    /// What torchao's own files say of such a tensor.
    pub(super) fn said(&self) -> String {
        let names: Vec<&str> = self.parts.iter().map(|(name, _)| &**name).collect();
        json!({"_type": self.class.name(), "_data": self.data, "_tensor_data_names": names})
            .to_string()
    }
}

/// A value that says how numbers are stored. Those that say how to multiply by them are left out.
fn attribute(work: &Work<'_, '_, '_>, mut id: Id) -> Option<Json> {
    let heap = work.heap;
    if let Some(&Made::Same(sizes)) = work.made(id) {
        id = sizes;
    }
    Some(match heap.get(id) {
        Value::Bool(on) => on.into(),
        Value::Int(n) => n.into(),
        Value::Text(span) if span.range().len() <= LONGEST => heap.text(span).into(),
        // a choice, by its number
        Value::Call(index) => match (heap.call(index).callee, heap.items(heap.call(index).args)) {
            (Value::Global(Global::Torchao(class)), &[choice]) => match heap.get(choice) {
                Value::Int(n) => json!({"_type": class.name(), "_data": n}),
                _ => return None,
            },
            _ => return None,
        },
        Value::Global(Global::Dtype(dtype)) => {
            json!({"_type": "torch.dtype", "_data": dtype.name()})
        }
        _ => {
            let items = heap.sequence(id).filter(|items| items.len() <= LONGEST)?;
            let number = |id: &Id| match heap.get(*id) {
                Value::Int(n) => Some(Json::from(n)),
                _ => None,
            };
            items.iter().map(number).collect::<Option<_>>()?
        }
    })
}

/// What the names of its tensors begin with: `m._weight_` for `m.weight`.
pub(super) fn prefix(name: &str) -> String {
    match name.rsplit_once('.') {
        Some((module, own)) => format!("{module}._{own}_"),
        None => format!("_{name}_"),
    }
}
