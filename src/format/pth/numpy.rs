//! Scalars and arrays of numpy inside a pickle: they become metadata, not tensors.
//!
//! Source: the `__reduce__` methods of `numpy.generic`, `numpy.ndarray` and `numpy.dtype`.

use crate::catalog::metadata;
use crate::error::{Error, Result};
use crate::format::pickle::globals::{Global, NumpyGlobal};
use crate::format::pickle::value_heap::{PickleValue, ValueHeap, ValueId};
use crate::limits::text_cost;

use super::geometry::dims;
use super::rebuild::{CallResult, unexpected_arguments};

/// Arrays of more elements are described by dtype and shape instead of listed.
const LISTED_MAX: u64 = 64;

/// A numpy dtype: type code and byte order.
struct NumpyItem<'h> {
    /// numpy's type code, such as `f8`.
    code: &'h str,
    big_endian: bool,
}

pub(super) fn value(
    heap: &ValueHeap<'_>,
    kind: NumpyGlobal,
    args: &[ValueId],
    state: Option<ValueId>,
) -> Result<CallResult> {
    match (kind, args) {
        (NumpyGlobal::Scalar, &[dtype, bytes]) => {
            let item = item(heap, dtype).ok_or_else(|| unexpected_arguments("a numpy scalar"))?;
            let PickleValue::Bytes(bytes) = heap.get(bytes) else {
                return Err(unexpected_arguments("a numpy scalar"));
            };
            let bytes = heap.bytes(bytes);
            described(heap, item.code.len())?;
            Ok(match item.number(bytes) {
                Some(number) => CallResult::Metadata(number),
                None => {
                    let text = format!("numpy scalar of {}", item.code);
                    CallResult::NotShown("numpy scalars", metadata::Value::text(text))
                }
            })
        }
        (NumpyGlobal::Dtype, &[code, ..]) => {
            let code = heap
                .text_of(code)
                .ok_or_else(|| unexpected_arguments("a numpy dtype"))?;
            described(heap, code.len())?;
            let text = format!("numpy.{code}");
            Ok(CallResult::Metadata(metadata::Value::text(text)))
        }
        (NumpyGlobal::Reconstruct, &[_class, _shape, _code]) => match state {
            Some(state) => array(heap, state).map(CallResult::Metadata),
            None => Err(Error::malformed(
                "a numpy array has no state (version, shape, dtype, order, bytes)",
            )),
        },
        _ => Err(unexpected_arguments("a numpy object")),
    }
}

/// Charges a text that quotes `len` bytes of the pickle, and that doubles as it grows.
fn described(heap: &ValueHeap<'_>, len: usize) -> Result<()> {
    heap.budget().memory(2 * text_cost(len), "the metadata")
}

/// An array, by its state `(version, shape, dtype, fortran_order, bytes)`.
fn array(heap: &ValueHeap<'_>, state: ValueId) -> Result<metadata::Value> {
    // what `ndarray.__setstate__` receives
    let Some(&[_version, shape, dtype, fortran, data]) = heap.sequence(state) else {
        return Err(unexpected_arguments("a numpy array"));
    };
    let shape = dims(heap, shape, "size")?;
    let item = item(heap, dtype).ok_or_else(|| unexpected_arguments("a numpy array"))?;
    let count =
        crate::catalog::elements(&shape).ok_or_else(|| unexpected_arguments("a numpy array"))?;
    if let (PickleValue::Bytes(bytes), Some(size)) = (heap.get(data), item.size()) {
        let bytes = heap.bytes(bytes);
        // the state is data of the pickle like any other, and need not be consistent
        if u64::try_from(size)
            .ok()
            .and_then(|size| size.checked_mul(count))
            != Some(bytes.len() as u64)
        {
            return Err(Error::malformed(
                "the number of bytes of a numpy array does not match its shape and dtype",
            ));
        }
        // column-major matrices are described, not listed, because a list has no order of its own
        let flat = shape.len() <= 1 || heap.get(fortran) == PickleValue::Bool(false);
        if count <= LISTED_MAX && flat {
            heap.budget()
                .memory(count * size_of::<metadata::Value>() as u64, "a numpy array")?;
            let values: Option<Vec<_>> = bytes
                .chunks_exact(size)
                .map(|bytes| item.number(bytes))
                .collect();
            if let Some(values) = values {
                return Ok(metadata::Value::List(values.into_boxed_slice()));
            }
        }
    }
    // a size has up to 20 digits
    described(heap, item.code.len() + 22 * shape.len())?;
    Ok(metadata::Value::text(format!(
        "numpy array of {}, shape {shape:?}",
        item.code
    )))
}

fn item<'h>(heap: &'h ValueHeap<'_>, id: ValueId) -> Option<NumpyItem<'h>> {
    let PickleValue::Call(index) = heap.get(id) else {
        return None;
    };
    let call = heap.call(index);
    if call.callee != PickleValue::Global(Global::Numpy(NumpyGlobal::Dtype)) {
        return None;
    }
    let code = heap.text_of(*heap.items(call.args).first()?)?;
    // (version, byte order, subdtype, names, fields, size, alignment, flags)
    // the byte order is in the state of the dtype, not in its type code
    let order = call.state.and_then(|state| {
        heap.sequence(state)?
            .get(1)
            .and_then(|&id| heap.text_of(id))
    });
    Some(NumpyItem {
        code,
        big_endian: order == Some(">"),
    })
}

impl NumpyItem<'_> {
    /// Bytes per element; `None` for codes other than integers, floats and truth values.
    fn size(&self) -> Option<usize> {
        match self.code {
            "b1" | "i1" | "u1" => Some(1),
            "i2" | "u2" | "f2" => Some(2),
            "i4" | "u4" | "f4" => Some(4),
            "i8" | "u8" | "f8" => Some(8),
            _ => None,
        }
    }

    /// The element as a metadata value; `None` if `bytes` is not one element of this dtype.
    fn number(&self, bytes: &[u8]) -> Option<metadata::Value> {
        if self.size()? != bytes.len() {
            return None;
        }
        let mut wide = [0; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        if self.big_endian {
            wide[..bytes.len()].reverse();
        }
        let [a, b, c, d, ..] = wide;
        Some(match self.code {
            "b1" => metadata::Value::Bool(a != 0),
            "i1" => metadata::Value::I64(i64::from(i8::from_le_bytes([a]))),
            "i2" => metadata::Value::I64(i64::from(i16::from_le_bytes([a, b]))),
            "i4" => metadata::Value::I64(i64::from(i32::from_le_bytes([a, b, c, d]))),
            "i8" => metadata::Value::I64(i64::from_le_bytes(wide)),
            "u1" | "u2" | "u4" | "u8" => metadata::Value::U64(u64::from_le_bytes(wide)),
            "f2" => metadata::Value::F64(half::f16::from_le_bytes([a, b]).to_f64()),
            "f4" => metadata::Value::F64(f64::from(f32::from_le_bytes([a, b, c, d]))),
            "f8" => metadata::Value::F64(f64::from_le_bytes(wide)),
            _ => return None,
        })
    }
}
