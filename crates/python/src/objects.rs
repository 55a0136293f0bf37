//! The object of a file of `torch.save`: its nodes as tuples, of which `anamnesis.torch` makes objects of Python.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use anamnesis::OpenOptions;
use anamnesis::objects::{DictClass, ObjectNode, ObjectQuantizer, ObjectTensor};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyComplex, PyTuple};

use crate::checkpoint::{CoreCheckpoint, limits_of};
use crate::run::interruptible;

/// The nodes, the places that storages were saved from, and the storages.
type ReadObjects<'py> = (Vec<Bound<'py, PyTuple>>, Vec<String>, CoreCheckpoint);

/// The nodes of the file's object, each a kind and what it consists of, the place that each storage was saved from, and the storages as a checkpoint. `None` for files
/// of other formats.
#[pyfunction]
#[pyo3(signature = (source, *, mmap = true, opaque = false, limits = None))]
pub(crate) fn objects<'py>(
    py: Python<'py>,
    source: &Bound<'py, PyAny>,
    mmap: bool,
    opaque: bool,
    limits: Option<HashMap<String, Option<u64>>>,
) -> PyResult<Option<ReadObjects<'py>>> {
    let options = OpenOptions::new()
        .mmap(mmap)
        // tensors of Python are writable, and a file must not change with them
        .private(true)
        .opaque(opaque)
        .limits(limits_of(limits)?);
    let read = if let Ok(bytes) = source.cast::<PyBytes>() {
        // a copy, since the checkpoint outlives this call
        let bytes = bytes.as_bytes().to_vec();
        interruptible(py, None, |_| options.objects_from_bytes(bytes))?
    } else {
        let path: PathBuf = source.extract::<OsString>()?.into();
        interruptible(py, None, |state| {
            options.clone().cancel(&state.cancel).objects(path)
        })?
    };
    let Some(read) = read else { return Ok(None) };
    let (tree, storages) = read.into_parts();
    // nodes refer to each other by number, so that a deep object needs no recursion here and in Python
    let nodes = tree.nodes.iter().map(|node| row(py, node));
    let locations = tree.locations.iter().map(ToString::to_string);
    let inner = Arc::new(storages);
    Ok(Some((
        nodes.collect::<PyResult<_>>()?,
        locations.collect(),
        CoreCheckpoint { inner },
    )))
}

fn row<'py>(py: Python<'py>, node: &ObjectNode) -> PyResult<Bound<'py, PyTuple>> {
    let value = |value: Bound<'py, PyAny>| ("value", value).into_pyobject(py);
    let list = |ids: &[u32]| PyTuple::new(py, ids);
    let sizes = |sizes: &[u64]| PyTuple::new(py, sizes);
    match node {
        ObjectNode::None => value(py.None().into_bound(py)),
        ObjectNode::Bool(b) => value(b.into_bound_py_any(py)?),
        ObjectNode::Int(n) => value(n.into_bound_py_any(py)?),
        ObjectNode::Float(x) => value(x.into_bound_py_any(py)?),
        ObjectNode::Complex(re, im) => value(PyComplex::from_doubles(py, *re, *im).into_any()),
        ObjectNode::Text(text) => value(text.into_bound_py_any(py)?),
        ObjectNode::Bytes(bytes, true) => value(PyByteArray::new(py, bytes).into_any()),
        ObjectNode::Bytes(bytes, false) => value(PyBytes::new(py, bytes).into_any()),
        // as text: it may have more digits than any number of Rust
        ObjectNode::BigInt(text) => ("integer", &**text).into_pyobject(py),
        ObjectNode::Tuple(ids) => ("tuple", list(ids)?).into_pyobject(py),
        ObjectNode::List(ids) => ("list", list(ids)?).into_pyobject(py),
        ObjectNode::Set(ids, false) => ("set", list(ids)?).into_pyobject(py),
        ObjectNode::Set(ids, true) => ("frozenset", list(ids)?).into_pyobject(py),
        ObjectNode::Dict {
            class,
            entries,
            attributes,
        } => {
            let class = match class {
                DictClass::Ordered => "OrderedDict",
                DictClass::Counter => "Counter",
                DictClass::Default => "defaultdict",
                _ => "dict",
            };
            ("dict", class, entries.to_vec(), *attributes).into_pyobject(py)
        }
        ObjectNode::Size(shape) => ("size", sizes(shape)?).into_pyobject(py),
        ObjectNode::Dtype(name) => ("dtype", *name).into_pyobject(py),
        ObjectNode::Device(name) => ("device", &**name).into_pyobject(py),
        ObjectNode::TorchLayout(name) => ("layout", &**name).into_pyobject(py),
        ObjectNode::Tensor(tensor) => tensor_row(py, tensor),
        ObjectNode::Parameter {
            data,
            requires_grad,
            attributes,
        } => ("parameter", *data, *requires_grad, *attributes).into_pyobject(py),
        ObjectNode::SparseTensor {
            layout,
            parts,
            shape,
            coalesced,
        } => ("sparse", &**layout, list(parts)?, sizes(shape)?, *coalesced).into_pyobject(py),
        ObjectNode::MetaTensor {
            dtype,
            shape,
            strides,
            requires_grad,
        } => (
            "meta",
            *dtype,
            sizes(shape)?,
            sizes(strides)?,
            *requires_grad,
        )
            .into_pyobject(py),
        ObjectNode::Storage(number, dtype) => ("storage", *number, *dtype).into_pyobject(py),
        ObjectNode::Opaque {
            class,
            arguments,
            state,
            items,
        } => ("opaque", &**class, list(arguments)?, *state, *items).into_pyobject(py),
        ObjectNode::NumpyDtype(dtype) => ("numpy_dtype", &**dtype).into_pyobject(py),
        ObjectNode::NumpyScalar { dtype, bytes } => {
            ("numpy_scalar", &**dtype, PyByteArray::new(py, bytes)).into_pyobject(py)
        }
        // memory that the array keeps: it is writable, as arrays are
        ObjectNode::NumpyArray(array) => (
            "numpy_array",
            &*array.dtype,
            sizes(&array.shape)?,
            array.axes.as_deref().map(sizes).transpose()?,
            PyByteArray::new(py, &array.bytes),
            array.native,
        )
            .into_pyobject(py),
        ObjectNode::NumpyObjects {
            shape,
            fortran,
            items,
        } => ("numpy_objects", sizes(shape)?, *fortran, list(items)?).into_pyobject(py),
        ObjectNode::Named(name) => ("named", &**name).into_pyobject(py),
        ObjectNode::Refused(why) => ("refused", &**why).into_pyobject(py),
        // the library may have kinds that this package does not know
        _ => Err(PyTypeError::new_err("a value of an unknown type")),
    }
}

fn tensor_row<'py>(py: Python<'py>, tensor: &ObjectTensor) -> PyResult<Bound<'py, PyTuple>> {
    let quantizer = match tensor.quantizer {
        None => None,
        Some(ObjectQuantizer::PerTensor { scale, zero_point }) => {
            Some((scale, zero_point).into_bound_py_any(py)?)
        }
        Some(ObjectQuantizer::PerChannel {
            scales,
            zero_points,
            axis,
        }) => Some((scales, zero_points, axis).into_bound_py_any(py)?),
        Some(_) => return Err(PyTypeError::new_err("a quantiser of an unknown type")),
    };
    let flags = tensor.view_flags;
    (
        "tensor",
        tensor.storage,
        tensor.dtype,
        tensor.offset,
        PyTuple::new(py, &*tensor.shape)?,
        PyTuple::new(py, &*tensor.strides)?,
        tensor.requires_grad,
        (flags.conj, flags.neg),
        quantizer,
        tensor.attributes,
    )
        .into_pyobject(py)
}
