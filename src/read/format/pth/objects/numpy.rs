//! Arrays, scalars and dtypes of numpy in the graph: a descriptor as numpy writes it to an NPY file, and the bytes of the elements.
//!
//! Source: the `__reduce__` and `__setstate__` methods of `numpy.dtype`, `numpy.generic` and `numpy.ndarray`, and
//! `numpy/_core/numeric.py` (`_frombuffer`). Their arguments are data of the pickle like any other, and are checked here, so that
//! a consumer makes arrays of a descriptor and of as many bytes as it needs.

use std::collections::HashMap;

use crate::base::error::{Error, Result};
use crate::base::limits::text_cost;
use crate::read::catalog::{Shape, elements};
use crate::read::format::npy::{self, Literal};
use crate::read::format::pickle::globals::{Global, NumpyGlobal};
use crate::read::format::pickle::value_heap::{PickleValue, RecordedCall, ValueId};
use crate::read::format::pth::geometry::dims;
use crate::read::format::pth::storage::non_negative;
use crate::read::objects::{NumpyElements, ObjectNode};

use super::{TreeBuilder, WHAT};

/// Largest depth of structures inside each other, which bounds the recursion. A descriptor takes three levels of literals per level.
const DEPTH: u32 = 12;

/// `NPY_MAXDIMS` of numpy 2.
const RANK_MAX: usize = 64;

/// A reason to refuse a value, or an error that ends reading.
enum Fault {
    Refused(String),
    Error(Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

fn refused(why: &str) -> Fault {
    Fault::Refused(why.to_owned())
}

/// The shape of stored elements in C order, and the order of their axes in the array if it is another one.
type StoredOrder = (Shape, Option<Box<[u64]>>);

/// A dtype: its descriptor, and the bytes of an item.
struct ItemDtype {
    descriptor: Box<str>,
    nbytes: u64,
}

impl TreeBuilder<'_, '_, '_> {
    /// The node of what a call of one of numpy's functions makes.
    pub(super) fn numpy(&mut self, kind: NumpyGlobal, call: RecordedCall) -> Result<ObjectNode> {
        match self.numpy_node(kind, call) {
            Ok(node) => Ok(node),
            Err(Fault::Refused(why)) => self.refused(&why),
            Err(Fault::Error(error)) => Err(error),
        }
    }

    fn numpy_node(&mut self, kind: NumpyGlobal, call: RecordedCall) -> Result<ObjectNode, Fault> {
        let heap = self.heap;
        match (kind, heap.items(call.args)) {
            (NumpyGlobal::Dtype, _) => {
                let literal = self.dtype_literal(call, 0)?;
                Ok(ObjectNode::NumpyDtype(self.item(&literal)?.descriptor))
            }
            (NumpyGlobal::Scalar, &[dtype, bytes]) => {
                let item = self.item_dtype(dtype)?;
                let elements = self.elements(item, Shape::new(), None, bytes)?;
                Ok(ObjectNode::NumpyScalar {
                    dtype: elements.dtype,
                    bytes: elements.bytes,
                })
            }
            (NumpyGlobal::Reconstruct, _) => {
                // the arguments of `ndarray.__setstate__`, as `rebuild/numpy.rs` has checked
                let state = call.state.and_then(|state| heap.sequence(state));
                let Some(&[_, shape, dtype, fortran, data]) = state else {
                    return Err(refused("an array of numpy without its state"));
                };
                let fortran = heap.get(fortran) == PickleValue::Bool(true);
                if self.is_of_objects(dtype) {
                    return self.objects(shape, fortran, data);
                }
                let (shape, axes) = self.order(shape, fortran)?;
                let item = self.item_dtype(dtype)?;
                let mut elements = self.elements(item, shape, axes, data)?;
                // each field of a structure keeps its own
                elements.native = elements.dtype.starts_with('>');
                Ok(ObjectNode::NumpyArray(Box::new(elements)))
            }
            (NumpyGlobal::FromBuffer, &[data, dtype, shape, order, ref axes @ ..]) => {
                let (shape, axes) = match (heap.text_of(order), axes) {
                    (Some("C"), _) => self.order(shape, false)?,
                    (Some("F"), _) => self.order(shape, true)?,
                    (Some("K"), &[axes]) => {
                        let (shape, axes) = (dims(heap, shape, "size")?, dims(heap, axes, "axis")?);
                        let mut sorted = self.sizes(&axes)?;
                        sorted.sort_unstable();
                        if sorted.len() != shape.len()
                            || !(0..).zip(&*sorted).all(|(i, &axis)| i == axis)
                        {
                            return Err(refused("an array of numpy whose axes are no permutation"));
                        }
                        let axes = self.sizes(&axes)?;
                        (shape, Some(axes))
                    }
                    _ => return Err(refused("an array of numpy in an unknown order")),
                };
                let item = self.item_dtype(dtype)?;
                let elements = self.elements(item, shape, axes, data)?;
                Ok(ObjectNode::NumpyArray(Box::new(elements)))
            }
            _ => Err(refused("a value of numpy of an unexpected form")),
        }
    }

    /// The order of elements that are in C or in Fortran order.
    fn order(&self, shape: ValueId, fortran: bool) -> Result<StoredOrder, Fault> {
        let mut shape = dims(self.heap, shape, "size")?;
        if !fortran || shape.len() < 2 {
            return Ok((shape, None));
        }
        shape.reverse();
        let axes: Shape = (0..shape.len() as u64).rev().collect();
        Ok((shape, Some(self.sizes(&axes)?)))
    }

    /// Elements whose bytes are as many as the dtype and the shape need.
    fn elements(
        &self,
        item: ItemDtype,
        shape: Shape,
        axes: Option<Box<[u64]>>,
        data: ValueId,
    ) -> Result<NumpyElements, Fault> {
        if shape.len() > RANK_MAX {
            return Err(refused("an array of numpy with more than 64 axes"));
        }
        let PickleValue::Bytes(span) = self.heap.get(data) else {
            return Err(refused(
                "an array or a scalar of numpy whose elements are no byte string",
            ));
        };
        let bytes = self.bytes(span)?;
        let needed = elements(&shape).and_then(|count| count.checked_mul(item.nbytes));
        if needed != Some(bytes.len() as u64) {
            let what = "the number of bytes of a value of numpy does not match its shape and dtype";
            return Err(Error::malformed(what).into());
        }
        self.heap
            .budget()
            .memory(size_of::<NumpyElements>() as u64 + 16, WHAT)?;
        Ok(NumpyElements {
            dtype: item.descriptor,
            shape: self.sizes(&shape)?,
            axes,
            bytes: bytes.into(),
            native: false,
        })
    }

    /// An array of Python's objects, which are nodes.
    fn objects(
        &mut self,
        shape: ValueId,
        fortran: bool,
        data: ValueId,
    ) -> Result<ObjectNode, Fault> {
        let heap = self.heap;
        let (shape, PickleValue::List(items)) = (dims(heap, shape, "size")?, heap.get(data)) else {
            return Err(refused("an array of numpy whose objects are no list"));
        };
        let items = heap.container(items);
        if shape.len() > RANK_MAX || elements(&shape) != Some(items.len() as u64) {
            return Err(refused(
                "an array of numpy with more or fewer objects than its shape has",
            ));
        }
        Ok(ObjectNode::NumpyObjects {
            shape: self.sizes(&shape)?,
            fortran,
            items: self.refer_all(items)?,
        })
    }

    fn dtype_call(&self, id: ValueId) -> Option<RecordedCall> {
        let PickleValue::Call(index) = self.heap.get(id) else {
            return None;
        };
        let call = self.heap.call(index);
        let is_dtype = call.callee == PickleValue::Global(Global::Numpy(NumpyGlobal::Dtype));
        is_dtype.then_some(call)
    }

    fn is_of_objects(&self, dtype: ValueId) -> bool {
        let call = self.dtype_call(dtype);
        let code = call.and_then(|call| self.heap.items(call.args).first());
        code.and_then(|&code| self.heap.text_of(code))
            .is_some_and(|code| code.starts_with('O'))
    }

    fn item_dtype(&self, id: ValueId) -> Result<ItemDtype, Fault> {
        let call = self.dtype_call(id);
        let call = call.ok_or_else(|| refused("an array or a scalar of numpy without a dtype"))?;
        let literal = self.dtype_literal(call, 0)?;
        self.item(&literal)
    }

    /// The descriptor and its bytes, by the rules for headers of NPY files.
    fn item(&self, literal: &Literal) -> Result<ItemDtype, Fault> {
        let (nbytes, units) =
            npy::item(literal).map_err(|error| Fault::Refused(error.reason().to_owned()))?;
        // a subarray of structures has a unit for each of its numbers
        self.heap.budget().steps(units, WHAT)?;
        let descriptor = match literal {
            Literal::Text(text) => text.clone(),
            structured => structured.to_string(),
        };
        self.heap.budget().text(descriptor.len(), WHAT)?;
        Ok(ItemDtype {
            descriptor: descriptor.into(),
            nbytes,
        })
    }

    /// The descriptor of a dtype, from the state of its call: (version, byte order, subarray, names, fields, size, alignment, flags,
    /// metadata).
    fn dtype_literal(&self, call: RecordedCall, depth: u32) -> Result<Literal, Fault> {
        let heap = self.heap;
        if depth > DEPTH {
            return Err(refused(
                "a dtype of numpy with too many levels of structures",
            ));
        }
        let code = heap
            .items(call.args)
            .first()
            .and_then(|&code| heap.text_of(code));
        let code = code.ok_or_else(|| refused("a dtype of numpy without a type code"))?;
        // one call may be the dtype of many fields, each with a copy
        heap.budget().steps(1, WHAT)?;
        heap.budget().memory(
            4 * size_of::<Literal>() as u64 + text_cost(code.len()),
            WHAT,
        )?;
        let state = call
            .state
            .and_then(|state| heap.sequence(state))
            .unwrap_or_default();
        let field = |i: usize| {
            let id = state.get(i).copied()?;
            (heap.get(id) != PickleValue::None).then_some(id)
        };
        if let Some(subarray) = field(2) {
            let Some(&[base, shape]) = heap.sequence(subarray) else {
                return Err(refused("a subarray of numpy of an unexpected form"));
            };
            let base = self
                .dtype_call(base)
                .ok_or_else(|| refused("a subarray of numpy without a dtype"))?;
            let base = self.dtype_literal(base, depth + 1)?;
            let shape = dims(heap, shape, "size")?;
            heap.budget()
                .memory((shape.len() * size_of::<Literal>()) as u64, WHAT)?;
            let sizes = shape.iter().map(|&size| Literal::Number(size)).collect();
            return Ok(Literal::Tuple(vec![base, Literal::Tuple(sizes)]));
        }
        if let (Some(names), Some(fields)) = (field(3), field(4)) {
            let size = field(5).and_then(|size| non_negative(heap, size));
            return self.structure(names, fields, size, depth);
        }
        let order = field(1).and_then(|order| heap.text_of(order));
        // `=` is the byte order of the machine, and writers name theirs
        let order = order.filter(|order| [">", "|"].contains(order));
        let order = order.unwrap_or("<");
        let unit = match field(8) {
            Some(metadata) if code.starts_with(['M', 'm']) => self.date_unit(metadata)?,
            _ => String::new(),
        };
        Ok(Literal::Text(format!("{order}{code}{unit}")))
    }

    /// The unit of dates: `(metadata, (unit, count, divisor, events))`.
    fn date_unit(&self, metadata: ValueId) -> Result<String, Fault> {
        let heap = self.heap;
        let unit = match heap.sequence(metadata) {
            Some(&[_, unit]) => heap.sequence(unit),
            _ => None,
        };
        let unit = unit.and_then(|unit| match unit {
            &[base, count, divisor, _] => Some((
                heap.text_of(base)?,
                non_negative(heap, count)?,
                non_negative(heap, divisor)?,
            )),
            _ => None,
        });
        match unit {
            Some(("generic", ..)) => Ok(String::new()),
            Some((base, 1, 1)) if base.len() < 8 => Ok(format!("[{base}]")),
            Some((base, count, 1)) if base.len() < 8 => Ok(format!("[{count}{base}]")),
            _ => Err(refused("dates of numpy with an unexpected unit")),
        }
    }

    /// A list of fields, with padding as numpy writes it: fields without a name.
    fn structure(
        &self,
        names: ValueId,
        fields: ValueId,
        size: Option<u64>,
        depth: u32,
    ) -> Result<Literal, Fault> {
        let heap = self.heap;
        let unexpected = || refused("a structure of numpy of an unexpected form");
        let (Some(names), PickleValue::Dict { items, .. }, Some(size)) =
            (heap.sequence(names), heap.get(fields), size)
        else {
            return Err(unexpected());
        };
        let items = heap.container(items);
        // a table that doubles, and a list of fields with padding between them
        let room = 64 * items.len() + 2 * names.len() * 6 * size_of::<Literal>();
        heap.budget().memory(room as u64, WHAT)?;
        heap.budget().steps(items.len() as u64, WHAT)?;
        let by_name = items
            .chunks_exact(2)
            .filter_map(|pair| Some((heap.text_of(pair[0])?, pair[1])));
        let by_name: HashMap<&str, ValueId> = by_name.collect();
        let (mut list, mut at) = (Vec::with_capacity(2 * names.len() + 1), 0_u64);
        for &name in names {
            let name = heap
                .text_of(name)
                .filter(|name| !name.is_empty())
                .ok_or_else(unexpected)?;
            let field = by_name.get(name).and_then(|&field| heap.sequence(field));
            let (dtype, offset, title) = match field {
                Some(&[dtype, offset]) => (dtype, offset, None),
                Some(&[dtype, offset, title]) => (
                    dtype,
                    offset,
                    Some(heap.text_of(title).ok_or_else(unexpected)?),
                ),
                _ => return Err(unexpected()),
            };
            let (Some(call), Some(offset)) = (self.dtype_call(dtype), non_negative(heap, offset))
            else {
                return Err(unexpected());
            };
            let literal = self.dtype_literal(call, depth + 1)?;
            let (nbytes, units) =
                npy::item(&literal).map_err(|error| Fault::Refused(error.reason().to_owned()))?;
            heap.budget().steps(units, WHAT)?;
            let texts = name.len() + title.map_or(0, str::len);
            heap.budget().memory(2 * text_cost(texts), WHAT)?;
            pad(&mut list, at, offset)?;
            let name = Literal::Text(name.to_owned());
            let name = match title {
                Some(title) => Literal::Tuple(vec![Literal::Text(title.to_owned()), name]),
                None => name,
            };
            list.push(Literal::Tuple(vec![name, literal]));
            at = offset.saturating_add(nbytes);
        }
        pad(&mut list, at, size)?;
        Ok(Literal::List(list))
    }
}

/// Adds the padding between two offsets.
fn pad(list: &mut Vec<Literal>, at: u64, next: u64) -> Result<(), Fault> {
    match next.checked_sub(at) {
        None => Err(refused(
            "a structure of numpy whose fields overlap, or are not in the order of their names",
        )),
        Some(0) => Ok(()),
        Some(gap) => {
            let padding = [String::new(), format!("|V{gap}")].map(Literal::Text);
            list.push(Literal::Tuple(padding.into()));
            Ok(())
        }
    }
}
