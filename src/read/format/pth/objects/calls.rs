//! Nodes of recorded calls: tensors, parameters, and the values that PyTorch pickles as calls.

use crate::base::error::Result;
use crate::read::catalog::{Encoding, Layout, Quantizer};
use crate::read::format::pickle::globals::{Global, RebuildFunction, TorchDtype};
use crate::read::format::pickle::value_heap::{PickleValue, RecordedCall, ValueId};
use crate::read::format::pth::geometry::dims;
use crate::read::format::pth::plain_values::plain_text;
use crate::read::format::pth::rebuild::CallResult;
use crate::read::format::pth::rebuild::sparse::layout_name;
use crate::read::format::pth::storage::{PersistentId, non_negative};
use crate::read::objects::{ObjectNode, ObjectQuantizer, ObjectTensor};

use super::{TreeBuilder, WHAT};

/// The value that a call returns unchanged.
struct Returned {
    value: ValueId,
    /// The attributes that the call sets on it.
    state: Option<ValueId>,
}

impl TreeBuilder<'_, '_, '_> {
    /// The node of what a call returns. Calls that return an argument unchanged are followed to the call that made it; their
    /// number is bounded, so that the cost of a call is.
    pub(super) fn call(&mut self, mut index: u32) -> Result<ObjectNode> {
        let heap = self.heap;
        let mut state = None;
        let mut followed = 0;
        // a loop and not a recursion: a chain of calls is as long as its writer wants
        while let Some(returned) = self.returned(index) {
            followed += 1;
            heap.budget().depth(followed, WHAT)?;
            heap.budget().steps(1, WHAT)?;
            // attributes that are set later replace those before
            if state.is_none_or(|state| self.is_empty(state)) {
                state = returned.state.or(state);
            }
            index = match heap.get(returned.value) {
                PickleValue::Call(index) => index,
                // a container that is marked with a type: a second node with the same items
                PickleValue::List(_) | PickleValue::Tuple(_) | PickleValue::Dict { .. } => {
                    return self.node(returned.value);
                }
                _ => return self.refused("a mark of a type on a value of an unexpected type"),
            };
        }
        let mut node = self.made_by(index)?;
        if let Some(state) = state {
            self.set_attributes(&mut node, state)?;
        }
        Ok(node)
    }

    /// The argument that a call returns unchanged, if it does. It is older than the call.
    fn returned(&self, index: u32) -> Option<Returned> {
        let heap = self.heap;
        let call = heap.call(index);
        let PickleValue::Global(global) = call.callee else {
            return None;
        };
        if let CallResult::Refused(_) = self.rebuilt.results[index as usize] {
            return None;
        }
        match (global, heap.items(call.args)) {
            (Global::TypeMark, &[value, ..])
            | (Global::TensorClass, &[value])
            // tensors of devices without host storage: the tensor that holds their values
            | (Global::Rebuild(RebuildFunction::FromCpu), &[value, ..]) => {
                Some(Returned { value, state: None })
            }
            (Global::Rebuild(RebuildFunction::FromType), &[func, _, inner, state]) => {
                match (heap.get(func), heap.sequence(inner)) {
                    (
                        PickleValue::Global(Global::Rebuild(RebuildFunction::FromCpu)),
                        Some(&[value, ..]),
                    ) => Some(Returned {
                        value,
                        state: Some(state),
                    }),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Whether a state sets no attributes.
    fn is_empty(&self, state: ValueId) -> bool {
        match self.heap.get(state) {
            PickleValue::None => true,
            PickleValue::Dict { items, .. } => self.heap.container(items).is_empty(),
            _ => false,
        }
    }

    /// Sets the attributes of a tensor or parameter.
    fn set_attributes(&mut self, node: &mut ObjectNode, state: ValueId) -> Result<()> {
        match node {
            ObjectNode::Parameter { attributes, .. } => *attributes = Some(self.refer(state)?),
            ObjectNode::Tensor(tensor) if !self.is_empty(state) => {
                tensor.attributes = Some(self.refer(state)?);
            }
            _ => {}
        }
        Ok(())
    }

    /// The node of what a call makes.
    fn made_by(&mut self, index: u32) -> Result<ObjectNode> {
        let heap = self.heap;
        let call = heap.call(index);
        let args = heap.items(call.args);
        let result = &self.rebuilt.results[index as usize];
        // first, since the arms below rely on arguments that `rebuild.rs` has checked
        if let CallResult::Refused(why) = result {
            return self.refused(why);
        }
        let global = match call.callee {
            PickleValue::Global(global) => global,
            PickleValue::ScriptClass(name) | PickleValue::OpaqueGlobal(name) => {
                let class = self.text(heap.text(name))?;
                return self.object(class, call);
            }
            _ => return self.refused("a call of a value that is no function"),
        };
        match (global, args) {
            (Global::Rebuild(RebuildFunction::FromType), &[func, _, inner, state]) => {
                let (PickleValue::Global(Global::Rebuild(how)), PickleValue::Tuple(inner)) =
                    (heap.get(func), heap.get(inner))
                else {
                    return self.refused("a tensor with attributes of an unexpected form");
                };
                // one level, since `rebuild.rs` has refused a deeper one
                let mut node = self.rebuilt_tensor(how, heap.items(inner), result)?;
                self.set_attributes(&mut node, state)?;
                Ok(node)
            }
            (Global::Rebuild(how), args) => self.rebuilt_tensor(how, args, result),
            (Global::TensorClass, &[data, requires_grad]) => Ok(ObjectNode::Parameter {
                data: self.refer(data)?,
                // the default of a parameter is that it requires gradients; of a tensor, that it does not
                requires_grad: heap.get(requires_grad) != PickleValue::Bool(false),
                attributes: None,
            }),
            (Global::TensorClass, []) => {
                // `Tensor.__setstate__` of PyTorch has these cases: four items are the geometry of a tensor, five were
                // a `Variable`
                let state = call.state.and_then(|state| heap.sequence(state));
                match state {
                    Some(&[storage, offset, size, stride]) => {
                        self.strided(result, [storage, offset, size, stride], None)
                    }
                    _ => self.refused("a variable of PyTorch before 0.4"),
                }
            }
            (Global::Size, &[sizes]) => {
                Ok(ObjectNode::Size(self.sizes(&dims(heap, sizes, "size")?)?))
            }
            (Global::Device, args) => {
                let parts: Vec<String> = args.iter().map(|&id| plain_text(heap, id)).collect();
                // like PyTorch's text of a device and its number: `cuda:0`
                Ok(ObjectNode::Device(self.text(&parts.join(":"))?))
            }
            (Global::GetLayout, args) => Ok(ObjectNode::TorchLayout(
                self.text(layout_name(heap, args)?)?,
            )),
            (Global::Complex, args) => {
                let number = |id: &ValueId| match heap.get(*id) {
                    PickleValue::Float(x) => Some(x),
                    #[allow(clippy::cast_precision_loss)]
                    // Python's `complex()` rounds in the same way
                    PickleValue::Int(n) => Some(n as f64),
                    _ => None,
                };
                match (
                    args.first().map(number),
                    args.get(1).map_or(Some(0.0), number),
                ) {
                    (Some(Some(re)), Some(im)) => Ok(ObjectNode::Complex(re, im)),
                    _ => self.refused("a complex number that is not of two numbers"),
                }
            }
            (Global::Torchao(class), _) => {
                let class = self.text(class.name())?;
                self.object(class, call)
            }
            (Global::Numpy(kind), _) => self.numpy(kind, call),
            _ => self.refused("a call that makes no plain value"),
        }
    }

    fn object(&mut self, class: Box<str>, call: RecordedCall) -> Result<ObjectNode> {
        let arguments = self.refer_all(self.heap.items(call.args))?;
        let state = call.state.map(|id| self.refer(id)).transpose()?;
        let items = call.items.map(|id| self.refer(id)).transpose()?;
        Ok(ObjectNode::Opaque {
            class,
            arguments,
            state,
            items,
        })
    }

    fn rebuilt_tensor(
        &mut self,
        how: RebuildFunction,
        args: &[ValueId],
        result: &CallResult,
    ) -> Result<ObjectNode> {
        let heap = self.heap;
        let grad = |id: ValueId| heap.get(id) == PickleValue::Bool(true);
        match (how, args) {
            (RebuildFunction::Plain, &[storage, offset, size, stride]) => {
                self.strided(result, [storage, offset, size, stride], None)
            }
            (
                RebuildFunction::Strided | RebuildFunction::StridedAs,
                &[storage, offset, size, stride, requires_grad, ..],
            ) => self.strided(
                result,
                [storage, offset, size, stride],
                Some(grad(requires_grad)),
            ),
            (
                RebuildFunction::Quantized,
                &[storage, offset, size, stride, params, requires_grad, _],
            ) => {
                let geometry = [storage, offset, size, stride];
                let mut node = self.strided(result, geometry, Some(grad(requires_grad)))?;
                if let (ObjectNode::Tensor(tensor), &CallResult::Tensor(index)) =
                    (&mut node, result)
                {
                    let params = heap.sequence(params).unwrap_or_default();
                    tensor.quantizer = match (self.rebuilt.tensors[index].quantizer(), params) {
                        (Some(&Quantizer::PerTensor { scale, zero_point }), _) => {
                            Some(ObjectQuantizer::PerTensor { scale, zero_point })
                        }
                        (
                            Some(&Quantizer::PerChannel { axis, .. }),
                            &[_, scales, zero_points, _],
                        ) => Some(ObjectQuantizer::PerChannel {
                            scales: self.refer(scales)?,
                            zero_points: self.refer(zero_points)?,
                            axis,
                        }),
                        _ => None,
                    };
                    if tensor.quantizer.is_none() {
                        return self.refused("a quantised tensor whose scales are no tensor");
                    }
                }
                Ok(node)
            }
            (RebuildFunction::Parameter, &[data, requires_grad, _, ref state @ ..]) => {
                Ok(ObjectNode::Parameter {
                    data: self.refer(data)?,
                    requires_grad: grad(requires_grad),
                    attributes: state.first().map(|&id| self.refer(id)).transpose()?,
                })
            }
            (RebuildFunction::Sparse, &[_, data]) => self.sparse(data, result),
            (RebuildFunction::Meta, &[dtype, size, stride, requires_grad]) => {
                let PickleValue::Global(Global::Dtype(dtype)) = heap.get(dtype) else {
                    return self.refused("a tensor without data whose dtype is no dtype");
                };
                Ok(ObjectNode::MetaTensor {
                    dtype: dtype.name(),
                    shape: self.sizes(&dims(heap, size, "size")?)?,
                    strides: self.sizes(&dims(heap, stride, "stride")?)?,
                    requires_grad: grad(requires_grad),
                })
            }
            (RebuildFunction::Wrapper, _) => {
                self.refused("a tensor of a subclass, which is stored as several tensors")
            }
            _ => self.refused("a tensor of a kind that cannot be rebuilt"),
        }
    }

    fn strided(
        &mut self,
        result: &CallResult,
        [storage, offset, size, stride]: [ValueId; 4],
        requires_grad: Option<bool>,
    ) -> Result<ObjectNode> {
        let heap = self.heap;
        let (&CallResult::Tensor(index), PickleValue::Persistent(id)) = (result, heap.get(storage))
        else {
            return self.refused("a tensor without a storage");
        };
        let info = &self.rebuilt.tensors[index];
        let (number, typed) = self.storages.number(heap, id)?;
        let Encoding::Plain(dtype) = info.encoding else {
            return self.refused("a tensor without a dtype");
        };
        if !self.storages.swaps_like(number, dtype, info.endian) {
            return self.refused("its storage holds numbers of several sizes or byte orders");
        }
        let name = match typed {
            Some(typed) if typed.dtype() == Some(dtype) => typed.name(),
            _ => match TorchDtype::of(dtype) {
                Some(dtype) => dtype.name(),
                None => return self.refused("a tensor whose dtype PyTorch does not have"),
            },
        };
        // a stream may name a part of a storage
        let (start, _) = PersistentId::parse(heap, id)?.view.unwrap_or_default();
        let offset = non_negative(heap, offset)
            .unwrap_or(0)
            .saturating_add(start);
        let (shape, strides) = (dims(heap, size, "size")?, dims(heap, stride, "stride")?);
        let (shape, strides) = (self.sizes(&shape)?, self.sizes(&strides)?);
        heap.budget()
            .memory(size_of::<ObjectTensor>() as u64 + 16, WHAT)?;
        Ok(ObjectNode::Tensor(Box::new(ObjectTensor {
            storage: number,
            dtype: name,
            offset,
            shape,
            strides,
            requires_grad: requires_grad.unwrap_or(false),
            view_flags: info.view_flags(),
            quantizer: None,
            attributes: None,
            entry: self.rows.get(index).copied().flatten(),
        })))
    }

    fn sparse(&mut self, data: ValueId, result: &CallResult) -> Result<ObjectNode> {
        let heap = self.heap;
        let &CallResult::Tensor(index) = result else {
            return self.refused("a sparse tensor without its description");
        };
        let info = &self.rebuilt.tensors[index];
        let Layout::Sparse(sparse) = &info.layout else {
            return self.refused("a sparse tensor without its description");
        };
        let data = heap.sequence(data).unwrap_or_default();
        // the tuple comes from the pickle, and may have fewer items than the layout has parts
        let count = sparse.parts.len().min(data.len());
        let (parts, rest) = data.split_at(count);
        // after the parts come the size and, for COO tensors of newer files, whether they are coalesced
        let coalesced = match rest.get(1).map(|&id| heap.get(id)) {
            Some(PickleValue::Bool(on)) => Some(on),
            _ => None,
        };
        let layout = self.text(sparse.kind)?;
        let shape = self.sizes(&info.shape)?;
        Ok(ObjectNode::SparseTensor {
            layout,
            parts: self.refer_all(parts)?,
            shape,
            coalesced,
        })
    }
}
