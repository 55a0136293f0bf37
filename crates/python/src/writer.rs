//! Files of tensors that a program makes itself.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use anamnesis::catalog::Shape;
use anamnesis::plan::TensorSpec;
use anamnesis::sink::{
    Container, FileSink, GGUF, HeaderValue, SAFETENSORS, Sharding, TensorWriter,
    safetensors_header as safetensors_bytes,
};
use anamnesis::{BlockFormat, Dtype};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::convert::container_named;
use crate::errors::exception;

/// A [`TensorWriter`], until it is finished or closed.
#[pyclass(frozen, module = "anamnesis._core")]
pub(crate) struct CoreWriter {
    writer: Mutex<Option<TensorWriter>>,
}

#[pymethods]
impl CoreWriter {
    /// Begins files of these tensors: name, dtype or block type, shape.
    #[new]
    #[pyo3(signature = (out, tensors, *, container = None, metadata = None, shard_size = None, overwrite = false, void = false))]
    #[allow(clippy::too_many_arguments)] // keywords of Python
    fn new(
        py: Python<'_>,
        out: PathBuf,
        tensors: Vec<(String, String, Vec<u64>)>,
        container: Option<&str>,
        metadata: Option<Vec<(String, String)>>,
        shard_size: Option<u64>,
        overwrite: bool,
        void: bool,
    ) -> PyResult<Self> {
        let sharding = match shard_size {
            None => Sharding::SingleFile,
            Some(0) => return Err(PyValueError::new_err("shard_size: 0 bytes hold no tensor")),
            Some(bytes) => Sharding::Shards(bytes),
        };
        let extension = out.extension().and_then(|extension| extension.to_str());
        let of_path = || Container::for_extension(extension?);
        let container = container_named(container)?.or_else(of_path);
        let specs = tensors.into_iter().map(spec).collect::<PyResult<_>>()?;
        let mut values = Vec::new();
        for (key, text) in metadata.iter().flatten() {
            let (key, value) = HeaderValue::of_key(key, text).map_err(|e| exception(py, &e))?;
            if container == Some(&GGUF) {
                value.check_new_key(key).map_err(|e| exception(py, &e))?;
            }
            values.push((key.to_owned(), value));
        }
        let sink = FileSink::new(out, sharding)
            .container(container.unwrap_or(&SAFETENSORS))
            .metadata(values)
            .empty_metadata(metadata.is_some())
            .void(void)
            .overwrite(overwrite);
        let writer = py.detach(|| TensorWriter::begin(sink, specs));
        let writer = writer.map_err(|error| exception(py, &error))?;
        Ok(Self {
            writer: Mutex::new(Some(writer)),
        })
    }

    /// Names in the order of their bytes in the files.
    fn order(&self) -> PyResult<Vec<String>> {
        self.with(|writer| Ok(writer.order().map(str::to_owned).collect()))
    }

    /// Writes the next bytes of a tensor, which are copied.
    fn write(&self, py: Python<'_>, name: &str, bytes: PyBuffer<u8>) -> PyResult<()> {
        let bytes = bytes.to_vec(py)?;
        self.with(|writer| {
            let written = py.detach(|| writer.write(name, &bytes));
            written.map_err(|error| exception(py, &error))
        })
    }

    /// Gives the files their names, and returns them.
    fn finish(&self, py: Python<'_>) -> PyResult<Vec<PathBuf>> {
        let writer = self.lock().take().ok_or_else(closed)?;
        let files = py.detach(|| writer.finish());
        files.map_err(|error| exception(py, &error))
    }

    /// Leaves nothing, unless the files are finished.
    fn close(&self) {
        drop(self.lock().take());
    }
}

impl CoreWriter {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<TensorWriter>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, call: impl FnOnce(&mut TensorWriter) -> PyResult<T>) -> PyResult<T> {
        call(self.lock().as_mut().ok_or_else(closed)?)
    }
}

/// Names and bytes of tensors.
type NamedSizes = Vec<(String, u64)>;

/// The header of a safetensors file with these tensors (name, dtype, shape), and their names and bytes in its order.
#[pyfunction]
pub(crate) fn safetensors_header(
    py: Python<'_>,
    tensors: Vec<(String, String, Vec<u64>)>,
    metadata: Option<Vec<(String, String)>>,
) -> PyResult<(Bound<'_, PyBytes>, NamedSizes)> {
    let specs = tensors
        .into_iter()
        .map(spec)
        .collect::<PyResult<Vec<_>>>()?;
    let header = safetensors_bytes(&specs, metadata.as_deref());
    let (header, order) = header.map_err(|error| exception(py, &error))?;
    let order = order.into_iter().map(|number| {
        let nbytes = specs[number].nbytes().expect("counted for the header");
        (specs[number].name.to_string(), nbytes)
    });
    Ok((PyBytes::new(py, &header), order.collect()))
}

fn closed() -> PyErr {
    PyValueError::new_err("the writer is closed")
}

fn spec((name, encoding, shape): (String, String, Vec<u64>)) -> PyResult<TensorSpec> {
    let block = BlockFormat::from_name(&encoding);
    let dtype = match block {
        // a block is bytes
        Some(_) => Some(Dtype::U8),
        None => Dtype::from_name(&encoding),
    };
    let Some(dtype) = dtype else {
        let text = format!("tensor {name:?}: there is no dtype {encoding:?}");
        return Err(PyValueError::new_err(text));
    };
    let spec = TensorSpec::new(name, Shape::from_slice(&shape), dtype);
    Ok(TensorSpec { block, ..spec })
}
