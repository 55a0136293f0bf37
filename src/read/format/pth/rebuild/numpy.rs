//! Scalars and arrays of numpy inside a pickle. Arrays of numbers are tensors whose bytes are in the pickle; scalars are
//! metadata.
//!
//! Source: the `__reduce__` and `__reduce_ex__` methods of `numpy.generic`, `numpy.ndarray` and `numpy.dtype`, and
//! `numpy/_core/numeric.py` (`_frombuffer`).
//!
//! Arrays of text, dates, records and objects are not numbers. They are counted and described, not listed as tensors.

use crate::base::error::{Error, Result};
use crate::base::kernel::Dtype;
use crate::base::limits::text_cost;
use crate::read::catalog::metadata;
use crate::read::catalog::{ByteRange, Encoding, Endian, Layout, Packing, TensorInfo, elements};
use crate::read::format::pickle::globals::{Global, NumpyGlobal};
use crate::read::format::pickle::value_heap::{PickleValue, StoredBytes, ValueHeap, ValueId};

use super::{CallInterpreter, CallResult, unexpected_arguments};
use crate::read::format::pth::geometry::{check_size, dims};

/// `NPY_MAXDIMS` of numpy 2.
const RANK_MAX: usize = 64;

/// Where the bytes of a pickle are in the file.
#[derive(Clone, Copy, Debug)]
pub(in crate::read::format::pth) enum PickleBytes {
    /// Stored from this offset on.
    Stored(u64),
    /// A deflate stream in these bytes, of this inflated length.
    Deflated(ByteRange, u64),
}

impl PickleBytes {
    /// The byte range and the packing of a byte string of the pickle.
    fn place(self, stored: StoredBytes) -> (ByteRange, Packing) {
        let (skip, latin1) = (stored.at, stored.latin1);
        match self {
            Self::Stored(start) => {
                let bytes = ByteRange::new(start.saturating_add(stored.at), stored.len);
                let packing = if latin1 {
                    Packing::Latin1
                } else {
                    Packing::Raw
                };
                (bytes, packing)
            }
            Self::Deflated(bytes, inflated) if latin1 => {
                (bytes, Packing::DeflatedLatin1 { inflated, skip })
            }
            Self::Deflated(bytes, inflated) => (bytes, Packing::Deflate { inflated, skip }),
        }
    }
}

/// A numpy dtype.
struct NumpyItem<'h> {
    /// numpy's type code, such as `f8`.
    code: &'h str,
    big_endian: bool,
    /// Whether it has fields or is an array itself.
    structured: bool,
}

/// The value that a call of one of numpy's functions describes.
pub(in crate::read::format::pth) fn value(
    interpreter: &mut CallInterpreter<'_, '_, '_>,
    kind: NumpyGlobal,
    args: &[ValueId],
    state: Option<ValueId>,
) -> Result<CallResult> {
    let heap = interpreter.heap;
    match (kind, args) {
        (NumpyGlobal::Scalar, &[dtype, bytes]) => scalar(heap, dtype, bytes),
        (NumpyGlobal::Dtype, &[code, ..]) => {
            let code = heap
                .text_of(code)
                .ok_or_else(|| unexpected_arguments("a numpy dtype"))?;
            described(heap, code.len())?;
            let text = format!("numpy.{code}");
            Ok(CallResult::Metadata(metadata::Value::text(text)))
        }
        (NumpyGlobal::Reconstruct, &[class, _shape, _code]) => {
            if heap.get(class) != PickleValue::Global(Global::Numpy(NumpyGlobal::Array)) {
                return Err(unexpected_arguments("a numpy array"));
            }
            let Some(state) = state else {
                return Err(Error::malformed(
                    "a numpy array has no state (version, shape, dtype, order, bytes)",
                ));
            };
            // the arguments of `ndarray.__setstate__`
            let Some(&[_version, shape, dtype, fortran, data]) = heap.sequence(state) else {
                return Err(unexpected_arguments("a numpy array"));
            };
            let PickleValue::Bool(fortran) = heap.get(fortran) else {
                return Err(unexpected_arguments("a numpy array"));
            };
            array(interpreter, [shape, dtype, data], Some(fortran))
        }
        (NumpyGlobal::FromBuffer, &[data, dtype, shape, order, ..]) => {
            let fortran = match heap.text_of(order) {
                Some("C") => Some(false),
                Some("F") => Some(true),
                // `K`: the dimensions are in an order of their own
                _ => None,
            };
            array(interpreter, [shape, dtype, data], fortran)
        }
        _ => Err(unexpected_arguments("a numpy object")),
    }
}

/// Charges a text that quotes `len` bytes of the pickle, and that doubles as it grows.
fn described(heap: &ValueHeap<'_>, len: usize) -> Result<()> {
    heap.budget().memory(2 * text_cost(len), "the metadata")
}

fn scalar(heap: &ValueHeap<'_>, dtype: ValueId, bytes: ValueId) -> Result<CallResult> {
    let item = item(heap, dtype).ok_or_else(|| unexpected_arguments("a numpy scalar"))?;
    let PickleValue::Bytes(bytes) = heap.get(bytes) else {
        return Err(unexpected_arguments("a numpy scalar"));
    };
    described(heap, item.code.len())?;
    Ok(match item.number(heap.bytes(bytes)) {
        Some(number) => CallResult::Metadata(number),
        None => {
            let text = format!("numpy scalar of {}", item.code);
            CallResult::NotShown("numpy scalars", metadata::Value::text(text))
        }
    })
}

/// An array. `fortran` is whether it is column-major; `None` for another order.
fn array(
    interpreter: &mut CallInterpreter<'_, '_, '_>,
    [shape, dtype, data]: [ValueId; 3],
    fortran: Option<bool>,
) -> Result<CallResult> {
    let heap = interpreter.heap;
    let shape = dims(heap, shape, "size")?;
    let item = item(heap, dtype).ok_or_else(|| unexpected_arguments("a numpy array"))?;
    if shape.len() > RANK_MAX {
        return Err(unexpected_arguments("a numpy array"));
    }
    let span = match heap.get(data) {
        PickleValue::Bytes(span) => Some(span),
        _ => None,
    };
    let stored = span.and_then(|span| heap.stored_bytes(span));
    let is_empty = elements(&shape) == Some(0);
    let not_shown = match (item.dtype(), fortran) {
        (None, _) if item.code.starts_with('O') => Some("numpy arrays of objects"),
        (None, _) => Some("numpy arrays that are not of numbers"),
        (Some(_), None) => Some("numpy arrays with transposed dimensions"),
        // Python 2 wrote bytes as text, and other writers may assemble them
        (Some(_), Some(_)) if stored.is_none() && !is_empty => {
            Some("numpy arrays whose bytes are not in one place")
        }
        _ => None,
    };
    let (Some(dtype), Some(fortran), None) = (item.dtype(), fortran, not_shown) else {
        // a size has up to 20 digits
        described(heap, item.code.len() + 22 * shape.len())?;
        let text = format!("numpy array of {}, shape {shape:?}", item.code);
        let what = not_shown.unwrap_or("numpy arrays");
        return Ok(CallResult::NotShown(what, metadata::Value::text(text)));
    };
    check_size(&shape)?;
    let encoding = Encoding::Plain(dtype);
    let nbytes = elements(&shape).and_then(|count| encoding.nbytes(count));
    // the state is data of the pickle like any other, and need not be consistent
    if nbytes != Some(stored.map_or(0, |stored| stored.decoded)) {
        return Err(Error::malformed(
            "the number of bytes of a numpy array does not match its shape and dtype",
        ));
    }
    let (bytes, packing) = match stored {
        Some(stored) => interpreter.pickle.place(stored),
        None => (ByteRange::default(), Packing::Raw),
    };
    let mut info = TensorInfo::new("", shape, encoding, bytes);
    info.packing = packing;
    // single bytes have no order
    if item.big_endian && dtype.swap_unit() > 1 {
        info.endian = Endian::Big;
    }
    // one dimension has the same order both ways
    if fortran && info.shape.len() > 1 && !is_empty {
        info.layout = Layout::ColumnMajor;
    }
    interpreter.add_tensor(info)
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
    let state = call.state.and_then(|state| heap.sequence(state));
    let field = |i: usize| state.and_then(|state| state.get(i)).copied();
    let order = field(1).and_then(|id| heap.text_of(id));
    let is_none = |i: usize| field(i).is_none_or(|id| heap.get(id) == PickleValue::None);
    Some(NumpyItem {
        code,
        big_endian: order == Some(">"),
        structured: !(is_none(2) && is_none(3) && is_none(4)),
    })
}

impl NumpyItem<'_> {
    /// The dtype of its elements; `None` if they are not numbers, or numbers that no dtype here describes.
    fn dtype(&self) -> Option<Dtype> {
        if self.structured {
            return None;
        }
        Some(match self.code {
            "b1" => Dtype::BOOL,
            "i1" => Dtype::I8,
            "i2" => Dtype::I16,
            "i4" => Dtype::I32,
            "i8" => Dtype::I64,
            "u1" => Dtype::U8,
            "u2" => Dtype::U16,
            "u4" => Dtype::U32,
            "u8" => Dtype::U64,
            "f2" => Dtype::F16,
            "f4" => Dtype::F32,
            "f8" => Dtype::F64,
            "c8" => Dtype::C64,
            "c16" => Dtype::C128,
            _ => return None,
        })
    }

    /// The element as a metadata value; `None` if `bytes` is not one real number of this dtype.
    fn number(&self, bytes: &[u8]) -> Option<metadata::Value> {
        let dtype = self.dtype()?;
        // complex numbers are no value of the metadata
        if dtype.item_bytes()? != bytes.len() as u64 || bytes.len() > 8 {
            return None;
        }
        let mut wide = [0; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        if self.big_endian {
            wide[..bytes.len()].reverse();
        }
        let [a, b, c, d, ..] = wide;
        Some(match dtype {
            Dtype::BOOL => metadata::Value::Bool(a != 0),
            Dtype::I8 => metadata::Value::I64(i64::from(i8::from_le_bytes([a]))),
            Dtype::I16 => metadata::Value::I64(i64::from(i16::from_le_bytes([a, b]))),
            Dtype::I32 => metadata::Value::I64(i64::from(i32::from_le_bytes([a, b, c, d]))),
            Dtype::I64 => metadata::Value::I64(i64::from_le_bytes(wide)),
            Dtype::U8 | Dtype::U16 | Dtype::U32 | Dtype::U64 => {
                metadata::Value::U64(u64::from_le_bytes(wide))
            }
            Dtype::F16 => metadata::Value::F64(half::f16::from_le_bytes([a, b]).to_f64()),
            Dtype::F32 => metadata::Value::F64(f64::from(f32::from_le_bytes([a, b, c, d]))),
            Dtype::F64 => metadata::Value::F64(f64::from_le_bytes(wide)),
            _ => return None,
        })
    }
}
