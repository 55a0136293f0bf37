//! Sources that Python has: file objects, and objects with a buffer.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use anamnesis::source::Source;
use anamnesis::{Checkpoint, OpenOptions};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::sync::MutexExt;
use pyo3::types::{PyBytes, PyMemoryView, PySlice, PyString};

use crate::run::{RunState, interruptible};

/// Something that is opened: a path or a URL, the bytes of a file, or a file object.
pub(crate) enum PythonSource {
    Path(PathBuf),
    Bytes(PyBackedBytes),
    Buffer(BufferSource),
    File(FileObject),
}

impl<'a, 'py> FromPyObject<'a, 'py> for PythonSource {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if object.is_instance_of::<PyString>() {
            return Ok(Self::Path(object.extract::<OsString>()?.into()));
        }
        if object.is_instance_of::<PyBytes>() {
            return Ok(Self::Bytes(object.extract()?));
        }
        if PyMemoryView::from(&object).is_ok() {
            return Ok(Self::Buffer(BufferSource::new(&object)?));
        }
        Ok(Self::File(FileObject::new(&object)?))
    }
}

impl PythonSource {
    /// Opens it.
    pub(crate) fn open(self, py: Python<'_>, options: &OpenOptions) -> PyResult<Checkpoint> {
        let open = |state: &std::sync::Arc<RunState>| match self {
            Self::Path(path) => options.clone().cancel(&state.cancel).open(path),
            Self::Bytes(bytes) => options.from_bytes(bytes),
            Self::Buffer(buffer) => options.from_source(buffer),
            Self::File(file) => options.from_source(file),
        };
        interruptible(py, None, open)
    }
}

/// The memory of an object, which programs may change while it is read: sizes are checked when they are used.
pub(crate) struct BufferSource {
    /// A `memoryview` of bytes, which also keeps a `bytearray` from being resized.
    view: Py<PyMemoryView>,
    len: usize,
}

impl BufferSource {
    fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        // refuses memory that is not contiguous
        let view = PyMemoryView::from(object)?.call_method1("cast", ("B",))?;
        Ok(Self {
            len: view.len()?,
            view: view.cast_into()?.unbind(),
        })
    }
}

impl Source for BufferSource {
    fn len(&self) -> Option<u64> {
        Some(self.len as u64)
    }

    fn read_at(&self, start: u64, buf: &mut [u8]) -> io::Result<usize> {
        let start = usize::try_from(start).unwrap_or(self.len).min(self.len);
        let len = buf.len().min(self.len - start);
        Python::attach(|py| {
            let range = PySlice::new(py, start.cast_signed(), (start + len).cast_signed(), 1);
            let bytes = self.view.bind(py).get_item(range)?;
            PyBuffer::<u8>::get(&bytes)?.copy_to_slice(py, &mut buf[..len])
        })
        .map_err(|error: PyErr| io::Error::other(error))?;
        Ok(len)
    }
}

/// An object with `seek` and `read`: an open file, `io.BytesIO`, a file of fsspec or obstore.
pub(crate) struct FileObject {
    // one position: reads wait for one another, and never with the interpreter's lock, which the one that reads needs
    object: Mutex<Py<PyAny>>,
    len: u64,
}

impl FileObject {
    fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        for method in ["seek", "read"] {
            if !object.hasattr(method)? {
                let kind = object.get_type().name()?;
                let text = format!(
                    "a path, a URL, bytes, or a file object that has seek() and read(), not {kind}"
                );
                return Err(PyTypeError::new_err(text));
            }
        }
        let len = object
            .call_method1("seek", (0, 2))?
            .extract::<Option<u64>>()?;
        let len = match len {
            Some(len) => len,
            // files of some packages return nothing
            None => object.call_method0("tell")?.extract()?,
        };
        Ok(Self {
            object: Mutex::new(object.clone().unbind()),
            len,
        })
    }
}

impl Source for FileObject {
    fn len(&self) -> Option<u64> {
        Some(self.len)
    }

    fn read_at(&self, start: u64, buf: &mut [u8]) -> io::Result<usize> {
        Python::try_attach(|py| {
            let object = self.object.lock_py_attached(py);
            let object = object.unwrap_or_else(PoisonError::into_inner);
            let object = object.bind(py);
            let mut read = || -> PyResult<usize> {
                object.call_method1("seek", (start,))?;
                let mut filled = 0;
                while filled < buf.len() {
                    let piece = object.call_method1("read", (buf.len() - filled,))?;
                    let Ok(piece) = PyBuffer::<u8>::get(&piece) else {
                        let text = "the file object is not opened for bytes: its read() returns other things";
                        return Err(PyTypeError::new_err(text));
                    };
                    let len = piece.len_bytes();
                    if len == 0 {
                        break;
                    }
                    let Some(into) = buf.get_mut(filled..filled + len) else {
                        let text =
                            "the file object's read() returns more bytes than were asked for";
                        return Err(PyTypeError::new_err(text));
                    };
                    piece.copy_to_slice(py, into)?;
                    filled += len;
                }
                Ok(filled)
            };
            // the exception itself: see `errors::exception`
            read().map_err(io::Error::other)
        })
        .unwrap_or_else(|| Err(io::Error::other("the interpreter has ended")))
    }
}
