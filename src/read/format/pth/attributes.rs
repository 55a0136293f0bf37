//! Attributes that PyTorch stores with a tensor: Python's own of a `Parameter`, and of a tensor with its class.
//!
//! They are no part of the tensor, and a writer may have put a scale there. They are listed in the metadata under the name of the
//! tensor, where the account of quantisation sees them.
//!
//! Source: `_rebuild_parameter_with_state` and `_rebuild_from_type_v2` of `torch/_utils.py` and `torch/_tensor.py`, whose last argument
//! is the dictionary, or that and the values of slots.

use crate::base::error::Result;
use crate::read::format::pickle::globals::{Global, RebuildFunction};
use crate::read::format::pickle::value_heap::{PickleValue, ValueHeap, ValueId};

/// Wrappers around a tensor that are looked through.
const MAX_WRAPPERS: usize = 8;

/// The names and values of a tensor's attributes, by turns. `id`: the value that stands for the tensor.
pub(super) fn attributes<'h>(heap: &'h ValueHeap<'_>, id: ValueId) -> Result<Vec<&'h [ValueId]>> {
    let mut found = Vec::new();
    let mut next = Some(id);
    for _ in 0..MAX_WRAPPERS {
        let Some(PickleValue::Call(index)) = next.map(|id| heap.get(id)) else {
            break;
        };
        let call = heap.call(index);
        let args = heap.items(call.args);
        let state = match (call.callee, args) {
            (
                PickleValue::Global(Global::Rebuild(RebuildFunction::Parameter)),
                &[data, _, _, state],
            ) => {
                next = Some(data);
                state
            }
            (PickleValue::Global(Global::Rebuild(RebuildFunction::Parameter)), &[data, _, _]) => {
                next = Some(data);
                continue;
            }
            (
                PickleValue::Global(Global::Rebuild(RebuildFunction::FromType)),
                &[_, _, _, state],
            ) => {
                next = None;
                state
            }
            _ => break,
        };
        let states: &[ValueId] = match heap.sequence(state) {
            Some(parts) => parts,
            None => std::slice::from_ref(&state),
        };
        heap.budget()
            .steps(1 + states.len() as u64, "the attributes of tensors")?;
        for state in states.iter().take(2) {
            if let PickleValue::Dict { items, .. } = heap.get(*state) {
                found.push(heap.container(items));
            }
        }
    }
    Ok(found)
}
