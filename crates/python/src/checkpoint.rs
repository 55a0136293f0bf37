//! Opened checkpoints: what they hold, as plain objects of Python.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use anamnesis::catalog::Packing;
use anamnesis::remote::RemoteOptions;
use anamnesis::{
    Checkpoint, Dtype, Encoding, Endian, Layout, Limits, OpenOptions, TensorInfo, Value,
};
use pyo3::exceptions::{PyKeyError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::errors::{exception, note};
use crate::json::loads;
use crate::reader::PythonSource;
use crate::run::interruptible;

/// A tensor: name, dtype, block type or type of items, whether that is a dtype, shape, bytes, file, offset, elements of a block, its
/// name in loaded rows.
pub(crate) type TensorRow<'py> = (
    String,
    String,
    bool,
    Bound<'py, PyTuple>,
    u64,
    u32,
    Option<u64>,
    u64,
    String,
);

/// A checkpoint that is open.
#[pyclass(frozen, module = "anamnesis._core")]
pub(crate) struct CoreCheckpoint {
    pub(crate) inner: Arc<Checkpoint>,
}

/// Opens a path, or the bytes of a file. With `mmap` files are mapped whose writers make new ones, and with `all_maps` all.
#[pyfunction]
#[pyo3(signature = (source, *, mmap = true, all_maps = false, single = false, opaque = false, assume = None, void_as = None,
                    limits = None, storage_options = None))]
#[allow(clippy::too_many_arguments, clippy::fn_params_excessive_bools)] // keywords of Python
pub(crate) fn open(
    py: Python<'_>,
    source: PythonSource,
    mmap: bool,
    all_maps: bool,
    single: bool,
    opaque: bool,
    assume: Option<String>,
    void_as: Option<Vec<String>>,
    limits: Option<HashMap<String, Option<u64>>>,
    storage_options: Option<Vec<(String, String)>>,
) -> PyResult<CoreCheckpoint> {
    let mut options = OpenOptions::new()
        .mmap(mmap)
        // tensors of Python are writable, and a file must not change with them
        .private(true)
        .single(single)
        .opaque(opaque)
        .assume_plain(assumes_plain(assume.as_deref())?)
        .limits(limits_of(limits)?);
    for name in void_as.unwrap_or_default() {
        options = options.void_as(dtype_named(&name)?);
    }
    if let Some(variables) = storage_options {
        options = options.remote(with_variables(variables));
    }
    let inner = source.open(py, &options)?;
    let inner = if all_maps || writers_replace(&inner) {
        inner
    } else {
        inner.unmapped()
    };
    Ok(CoreCheckpoint {
        inner: Arc::new(inner),
    })
}

/// Requests with these variables in the place of the environment's: credentials, endpoints.
pub(crate) fn with_variables(variables: Vec<(String, String)>) -> RemoteOptions {
    let mut options = RemoteOptions::default();
    options.variables = variables.into_iter().collect();
    options
}

/// Whether the usual writers of the checkpoint's format make a new file, which leaves a map of the old one whole. `torch.save`,
/// `numpy.save` and gguf-py truncate the file that is there.
fn writers_replace(checkpoint: &Checkpoint) -> bool {
    checkpoint.catalog().format() == "safetensors"
}

/// Whether a path is a URL; `ValueError` for one that is not opened.
#[pyfunction]
pub(crate) fn is_url(py: Python<'_>, path: OsString) -> PyResult<bool> {
    anamnesis::source::is_url(PathBuf::from(path).as_path()).map_err(|error| exception(py, &error))
}

/// A path as it is shown: a URL without what may be a secret.
#[pyfunction]
pub(crate) fn shown_path(path: OsString) -> OsString {
    anamnesis::source::shown_path(PathBuf::from(path).as_path())
        .into_owned()
        .into_os_string()
}

/// Whether what is not known about stored weights is ignored.
fn assumes_plain(assume: Option<&str>) -> PyResult<bool> {
    match assume {
        None => Ok(false),
        Some("plain") => Ok(true),
        Some(other) => Err(pyo3::exceptions::PyValueError::new_err(format!(
            "assume is None or \"plain\", not {other:?}"
        ))),
    }
}

/// The default limits, changed by name; `None` means unlimited.
pub(crate) fn limits_of(changed: Option<HashMap<String, Option<u64>>>) -> PyResult<Limits> {
    let mut limits = Limits::default();
    for (name, value) in changed.into_iter().flatten() {
        let field = match &*name {
            "memory" => &mut limits.memory,
            "tensors" => &mut limits.tensors,
            "depth" => &mut limits.depth,
            "steps" => &mut limits.steps,
            "tensor_bytes" => &mut limits.tensor_bytes,
            "tile_bytes" => &mut limits.tile_bytes,
            "expansion" => &mut limits.expansion,
            _ => return Err(PyValueError::new_err(format!("there is no limit {name:?}"))),
        };
        *field = value.unwrap_or(u64::MAX);
    }
    Ok(limits)
}

fn dtype_named(name: &str) -> PyResult<Dtype> {
    Dtype::from_name(name)
        .ok_or_else(|| PyValueError::new_err(format!("there is no dtype {name:?}")))
}

fn row<'py>(py: Python<'py>, info: &TensorInfo) -> PyResult<TensorRow<'py>> {
    let is_dtype = matches!(info.encoding, Encoding::Plain(_));
    // a tensor without bytes is nowhere in the file
    let offset = (info.bytes.len > 0).then_some(info.bytes.start);
    Ok((
        info.name.to_string(),
        info.encoding.name().to_owned(),
        is_dtype,
        PyTuple::new(py, &*info.shape)?,
        info.nbytes(),
        info.bytes.file,
        offset,
        info.encoding.unit().0,
        loaded_dtype(info),
    ))
}

/// The dtype or block type of loaded bytes, which are little endian; numpy's descriptor of items that only numpy has a type for.
pub(crate) fn loaded_dtype(info: &TensorInfo) -> String {
    match &info.encoding {
        Encoding::Opaque(item) => item.descriptor(Endian::Little).into_owned(),
        encoding => encoding.name().to_owned(),
    }
}

/// A metadata value as Python has it. Arrays that are still in the file are read.
fn object(py: Python<'_>, value: &Value) -> PyResult<Py<PyAny>> {
    Ok(match value {
        Value::Null => py.None(),
        Value::Bool(b) => b.into_pyobject(py)?.to_owned().into_any().unbind(),
        Value::U64(n) => n.into_pyobject(py)?.into_any().unbind(),
        Value::I64(n) => n.into_pyobject(py)?.into_any().unbind(),
        // exact: Python has one kind of float
        Value::F32(n) => f64::from(*n).into_pyobject(py)?.into_any().unbind(),
        Value::F64(n) => n.into_pyobject(py)?.into_any().unbind(),
        Value::Text(text) => text.into_pyobject(py)?.into_any().unbind(),
        Value::List(items) => {
            let items = items.iter().map(|item| object(py, item));
            let items = items.collect::<PyResult<Vec<_>>>()?;
            PyList::new(py, items)?.into_any().unbind()
        }
        // the type is open for values of later versions
        _ => return Err(PyTypeError::new_err("a value of an unknown type")),
    })
}

#[pymethods]
impl CoreCheckpoint {
    #[getter]
    fn format(&self) -> &'static str {
        self.inner.catalog().format()
    }

    /// Whether tensors lie in a map of the file by default.
    #[getter]
    fn is_mapped(&self) -> bool {
        writers_replace(&self.inner)
    }

    #[getter]
    fn nbytes(&self) -> u64 {
        self.inner.catalog().nbytes()
    }

    /// The files: path, if it has one, and length.
    #[getter]
    fn files(&self) -> Vec<(Option<OsString>, u64)> {
        let files = self.inner.catalog().files().iter();
        // not a `PathBuf`, for which Python would import `pathlib`
        let path = |path: &PathBuf| path.clone().into_os_string();
        files
            .map(|file| (file.path.as_ref().map(path), file.nbytes))
            .collect()
    }

    /// Entries that are listed and cannot be read: name and reason.
    #[getter]
    fn refused(&self) -> Vec<(String, String)> {
        let refused = self.inner.catalog().refused().iter();
        refused
            .map(|one| (one.name.to_string(), one.reason.to_string()))
            .collect()
    }

    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.inner.catalog().warnings().iter().map(note).collect()
    }

    fn __len__(&self) -> usize {
        self.inner.catalog().tensors().len()
    }

    fn __contains__(&self, name: &str) -> bool {
        self.inner.catalog().get(name).is_some()
    }

    fn names(&self) -> Vec<&str> {
        let tensors = self.inner.catalog().tensors().iter();
        tensors.map(|info| &*info.name).collect()
    }

    fn row<'py>(&self, py: Python<'py>, name: &str) -> PyResult<TensorRow<'py>> {
        let info = self.inner.catalog().get(name);
        row(
            py,
            info.ok_or_else(|| PyKeyError::new_err(name.to_owned()))?,
        )
    }

    /// How an array is stored: whether its numbers are big endian, whether it is in Fortran order, whether its bytes are compressed.
    fn stored_form(&self, name: &str) -> PyResult<(bool, bool, bool)> {
        let info = self.inner.catalog().get(name);
        let info = info.ok_or_else(|| PyKeyError::new_err(name.to_owned()))?;
        Ok((
            info.endian == Endian::Big,
            info.layout == Layout::ColumnMajor,
            info.packing != Packing::Raw,
        ))
    }

    fn rows<'py>(&self, py: Python<'py>) -> PyResult<Vec<TensorRow<'py>>> {
        let tensors = self.inner.catalog().tensors().iter();
        tensors.map(|info| row(py, info)).collect()
    }

    /// Tensors that are tied, each with the first one that has the same bytes, dtype and shape. Compressed, strided and
    /// big-endian tensors are not named.
    fn tied(&self) -> HashMap<&str, &str> {
        let mut first = HashMap::new();
        let mut tied = HashMap::new();
        for info in self.inner.catalog().tensors() {
            let plain = info.layout == Layout::RowMajor
                && info.packing == Packing::Raw
                && info.endian == Endian::Little
                // attributes of PyTorch (a quantiser, say) may give equal bytes other values
                && info.pytorch.is_none();
            if !plain || info.bytes.len == 0 {
                continue;
            }
            let (range, dtype) = (info.bytes, info.encoding.name());
            let key = (range.file, range.start, range.len, dtype, &*info.shape);
            let name = &*info.name;
            match first.entry(key) {
                Entry::Vacant(entry) => _ = entry.insert(name),
                Entry::Occupied(entry) => _ = tied.insert(name, *entry.get()),
            }
        }
        tied
    }

    /// Whether a safetensors file has a place for metadata, although there are no keys.
    #[getter]
    fn has_empty_metadata(&self) -> bool {
        self.inner.catalog().has_empty_metadata()
    }

    fn metadata_keys(&self) -> Vec<&str> {
        let metadata = self.inner.catalog().metadata();
        metadata.iter().map(|(key, _)| key).collect()
    }

    /// The value of a key, read from the file if it is a long array.
    fn metadata(&self, py: Python<'_>, key: &str) -> PyResult<Py<PyAny>> {
        // without the interpreter's lock, since an array may be read from the file
        let value = py.detach(|| self.inner.metadata(key));
        match value.map_err(|error| exception(py, &error))? {
            Some(value) => object(py, &value),
            None => Err(PyKeyError::new_err(key.to_owned())),
        }
    }

    /// The summary, as `anamnesis inspect --json` prints each checkpoint.
    fn summary<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        // on a thread of its own: a summary reads long arrays of metadata
        let text = interruptible(py, None, |_| {
            Ok(serde_json::to_string(&self.inner.inspect()?))
        })?;
        let object = text.and_then(|text| loads(py, &text));
        object.map_err(|e| PyValueError::new_err(e.to_string()))
    }
}
