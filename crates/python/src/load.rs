//! Loading stored tensors into memory of Python.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use anamnesis::load::{LoadedTensor, MmapLoader, PreadLoader, RunningLoad};
use anamnesis::pool::BufferPart;
use anamnesis::{Encoding, Load, Result};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::checkpoint::{CoreCheckpoint, loaded_dtype};
use crate::errors::exception;
use crate::memory::{OutMemory, TensorMemory, pool};
use crate::parts::{Boxes, Parts};
use crate::run::{POLL, interruptible};

/// A loaded tensor: name, dtype, block type or numpy's descriptor, whether that is a dtype, shape, memory.
type LoadedRow<'py> = (String, String, bool, Bound<'py, PyTuple>, Py<TensorMemory>);

/// A loaded tensor before it is an object of Python.
struct OwnedTensor {
    name: String,
    dtype: String,
    is_dtype: bool,
    shape: Vec<u64>,
    memory: OwnedMemory,
}

enum OwnedMemory {
    Part(BufferPart),
    /// The bytes of an earlier tensor of the load, with this index: the two are tied.
    SameAs(usize),
}

impl OwnedTensor {
    fn row<'py>(self, py: Python<'py>, earlier: &[LoadedRow<'py>]) -> PyResult<LoadedRow<'py>> {
        let memory = match self.memory {
            OwnedMemory::Part(part) => Py::new(py, TensorMemory::new(part))?,
            OwnedMemory::SameAs(index) => earlier[index].4.clone_ref(py),
        };
        let shape = PyTuple::new(py, self.shape)?;
        Ok((self.name, self.dtype, self.is_dtype, shape, memory))
    }
}

/// The tensor with memory for writing. Bytes that other values have too, which the load shares where slices overlap, are
/// copied.
fn owned(tensor: LoadedTensor<'static>) -> OwnedTensor {
    let with_memory = described(&tensor);
    // bytes that are borrowed from the file or shared are copied: Python may write to its memory
    let part = tensor.into_part().unwrap_or_else(|tensor| {
        let mut copy = pool().get(tensor.bytes().len());
        copy.copy_from_slice(tensor.bytes());
        let len = copy.len();
        copy.divide().part(0..len).expect("the first part")
    });
    with_memory(OwnedMemory::Part(part))
}

/// The description of a tensor, which lacks its memory.
fn described(tensor: &LoadedTensor<'static>) -> impl FnOnce(OwnedMemory) -> OwnedTensor + use<> {
    let info = tensor.info();
    let (name, dtype) = (info.name.to_string(), loaded_dtype(info));
    let is_dtype = matches!(info.encoding, Encoding::Plain(_));
    let shape = tensor.shape().to_vec();
    move |memory| OwnedTensor {
        name,
        dtype,
        is_dtype,
        shape,
        memory,
    }
}

/// Like [`owned`], for the tensors of one load; tensors with the same bytes keep one memory.
fn all_owned(tensors: impl IntoIterator<Item = LoadedTensor<'static>>) -> Vec<OwnedTensor> {
    let mut first = HashMap::new();
    // all duplicates are dropped before the first tensor becomes writable, which needs its memory for itself
    let kept: Vec<_> = tensors
        .into_iter()
        .enumerate()
        .map(|(index, tensor)| {
            let bytes = tensor.bytes();
            let key = (bytes.as_ptr().addr(), bytes.len());
            match first.get(&key) {
                // empty slices may have equal addresses without sharing anything
                Some(&same) if !bytes.is_empty() => {
                    Err(described(&tensor)(OwnedMemory::SameAs(same)))
                }
                _ => {
                    first.insert(key, index);
                    Ok(tensor)
                }
            }
        })
        .collect();
    let owned = |kept: std::result::Result<_, _>| kept.map_or_else(|tied| tied, owned);
    kept.into_iter().map(owned).collect()
}

/// Which tensors are loaded, and how.
pub(crate) struct LoadOptions {
    names: Option<HashSet<String>>,
    borrow: bool,
    loader: Option<String>,
    align: usize,
    parts: Parts,
}

impl LoadOptions {
    fn builder(self, checkpoint: &CoreCheckpoint) -> PyResult<Load<'static>> {
        let mut load = anamnesis::load(Arc::clone(&checkpoint.inner)).pool(&pool());
        load = self.parts.of_load(load);
        if let Some(names) = self.names {
            load = load.names(names);
        }
        if self.borrow {
            load = load.borrow_mapped();
        } else {
            // borrowed bytes lie where they are in the file: an alignment cannot be promised for them
            load = load.align(self.align);
        }
        Ok(match self.loader.as_deref() {
            None => load,
            Some("mmap") => load.loader(MmapLoader::new()),
            Some("pread") => load.loader(PreadLoader::new()),
            Some("pread_direct") => load.loader(PreadLoader::new().direct(true)),
            #[cfg(target_os = "linux")]
            Some("io_uring") => load.loader(anamnesis::load::UringLoader::new()),
            #[cfg(target_os = "linux")]
            Some("io_uring_direct") => {
                load.loader(anamnesis::load::UringLoader::new().direct(true))
            }
            Some(other) => {
                return Err(PyValueError::new_err(format!(
                    "there is no loader {other:?} here"
                )));
            }
        })
    }
}

#[pymethods]
impl CoreCheckpoint {
    /// Loads tensors; rows, the loader, and the reason why it was chosen.
    #[pyo3(signature = (names = None, *, borrow = true, loader = None, align = 1, slices = None, tp = None,
                        rules = None, progress = None))]
    #[allow(clippy::too_many_arguments)] // keywords of Python
    fn load<'py>(
        &self,
        py: Python<'py>,
        names: Option<HashSet<String>>,
        borrow: bool,
        loader: Option<String>,
        align: usize,
        slices: Option<Boxes>,
        tp: Option<(u32, u32)>,
        rules: Option<Vec<(String, String)>>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<(Vec<LoadedRow<'py>>, String, String)> {
        let options = LoadOptions {
            names,
            borrow,
            loader,
            align,
            parts: Parts::new(slices, tp, rules)?,
        };
        let load = options.builder(self)?;
        let (tensors, name, reason) = interruptible(py, progress.as_ref(), |state| {
            let (load, state) = (load.cancel(&state.cancel), Arc::clone(state));
            let all = load
                .progress(move |progress| state.on_progress(progress))
                .run()?;
            let choice = all.choice().clone();
            Ok((all_owned(all), choice.loader.name(), choice.reason))
        })?;
        // in order, since a tied tensor refers to the row of an earlier one
        let mut rows: Vec<LoadedRow<'py>> = Vec::with_capacity(tensors.len());
        for tensor in tensors {
            let row = tensor.row(py, &rows)?;
            rows.push(row);
        }
        Ok((rows, name.to_owned(), reason))
    }

    /// Loads tensors into memory of the caller; the loader, and the reason why it was chosen.
    #[pyo3(signature = (out, *, loader = None, slices = None, tp = None, rules = None, progress = None))]
    #[allow(clippy::too_many_arguments)] // keywords of Python
    fn load_into(
        &self,
        py: Python<'_>,
        out: Vec<(String, Bound<'_, PyAny>)>,
        loader: Option<String>,
        slices: Option<Boxes>,
        tp: Option<(u32, u32)>,
        rules: Option<Vec<(String, String)>>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<(&'static str, String)> {
        let options = LoadOptions {
            // `out` names the tensors, and its memory has its own alignment
            names: None,
            borrow: false,
            loader,
            align: 1,
            parts: Parts::new(slices, tp, rules)?,
        };
        let load = options.builder(self)?;
        let mut out = OutMemory::new(out)?;
        interruptible(py, progress.as_ref(), |state| {
            let (load, state) = (load.cancel(&state.cancel), Arc::clone(state));
            let load = load.progress(move |progress| state.on_progress(progress));
            let choice = load.run_into(out.slices())?.choice;
            Ok((choice.loader.name(), choice.reason))
        })
    }

    /// Starts to load tensors one by one.
    #[pyo3(signature = (names = None, *, loader = None, align = 1, read_ahead = 256 << 20, slices = None, tp = None,
                        rules = None))]
    #[allow(clippy::too_many_arguments)] // keywords of Python
    fn stream(
        &self,
        py: Python<'_>,
        names: Option<HashSet<String>>,
        loader: Option<String>,
        align: usize,
        read_ahead: u64,
        slices: Option<Boxes>,
        tp: Option<(u32, u32)>,
        rules: Option<Vec<(String, String)>>,
    ) -> PyResult<CoreStream> {
        let options = LoadOptions {
            names,
            borrow: false,
            loader,
            align,
            parts: Parts::new(slices, tp, rules)?,
        };
        let running = options.builder(self)?.read_ahead(read_ahead).start();
        let running = running.map_err(|error| exception(py, &error))?;
        Ok(CoreStream {
            running: Mutex::new(Some(running)),
        })
    }
}

/// Tensors that are loaded one by one, while the next ones are read.
#[pyclass(frozen, module = "anamnesis._core")]
pub(crate) struct CoreStream {
    /// `None` once it was closed.
    running: Mutex<Option<RunningLoad>>,
}

impl CoreStream {
    /// Waits for the next tensor, for a bounded time.
    fn wait(&self) -> Poll<Option<Result<OwnedTensor>>> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(load) = &mut *running else {
            return Poll::Ready(None);
        };
        let next = load.next_timeout(POLL);
        next.map(|next| next.map(|tensor| tensor.map(owned)))
    }
}

impl Drop for CoreStream {
    /// Ends the load, with the interpreter's lock released: threads of the load may wait for it, to read a file object.
    fn drop(&mut self) {
        let running = self.running.get_mut();
        let running = running.unwrap_or_else(PoisonError::into_inner).take();
        if let Some(running) = running {
            Python::attach(|py| py.detach(|| drop(running)));
        }
    }
}

#[pymethods]
impl CoreStream {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<LoadedRow<'py>>> {
        loop {
            match py.detach(|| self.wait()) {
                // waits are bounded, so that Ctrl-C ends an iteration whose next tensor does not come
                Poll::Pending => py.check_signals()?,
                Poll::Ready(None) => return Ok(None),
                Poll::Ready(Some(Ok(tensor))) => return tensor.row(py, &[]).map(Some),
                Poll::Ready(Some(Err(error))) => return Err(exception(py, &error)),
            }
        }
    }

    /// Ends the load. Tensors that were read and not returned are released.
    fn close(&self, py: Python<'_>) {
        py.detach(|| {
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            // with the lock released for Python: the load's threads may be waiting for the interpreter
            drop(running.take());
        });
    }
}
