#![allow(unsafe_code)] // the buffer protocol passes pointers

//! Memory that tensors of Python are made over, by the buffer protocol.

use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

use anamnesis::pool::{BufferPart, BufferPool};
use pyo3::ffi;
use pyo3::prelude::*;

/// One pool for all loads of the process, so that the memory of tensors that have died serves the next load.
static POOL: Mutex<Option<(u32, BufferPool)>> = Mutex::new(None);

/// The pool of this process. A child of `fork` has a pool of its own: a thread that the child does not have may have held
/// a lock of its parent's.
pub(crate) fn pool() -> BufferPool {
    let own = std::process::id();
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    match &*pool {
        Some((process, pool)) if *process == own => pool.clone(),
        _ => {
            let new = BufferPool::new();
            // the parent's buffers are those of tensors that the child still has: the pool is left to them
            if let Some(parents) = pool.replace((own, new.clone())) {
                std::mem::forget(parents);
            }
            new
        }
    }
}

/// Bytes that belong to the tensors made over them, and to nothing else. They are writable, as tensors are.
#[pyclass(frozen, name = "Memory", module = "anamnesis._core")]
pub(crate) struct TensorMemory {
    /// Of the first byte. The part below is not used while views exist, and stays in place when it is moved.
    start: *mut u8,
    len: usize,
    #[expect(dead_code, reason = "holds the memory")]
    part: BufferPart,
}

// SAFETY: the pointer is that of `part`, which is `Send`, and which nothing else uses.
unsafe impl Send for TensorMemory {}
// SAFETY: `&TensorMemory` gives the address and the length alone. Reads and writes through the buffer protocol are
// synchronised by Python programs, as for every object with a buffer.
unsafe impl Sync for TensorMemory {}

impl TensorMemory {
    pub(crate) fn new(mut part: BufferPart) -> Self {
        Self {
            start: part.as_mut_ptr(),
            len: part.len(),
            part,
        }
    }
}

#[pymethods]
impl TensorMemory {
    /// # Safety
    /// As `PyObject_GetBuffer`: `view` is valid for writing.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let memory = slf.get();
        let len = ffi::Py_ssize_t::try_from(memory.len).expect("memory is addressable");
        // SAFETY: the view holds a reference to this object, which holds the memory.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), memory.start.cast(), len, 0, flags)
        };
        if filled == 0 {
            Ok(())
        } else {
            Err(PyErr::fetch(slf.py()))
        }
    }

    fn __len__(&self) -> usize {
        self.len
    }

    /// The address of the first byte.
    #[getter]
    fn address(&self) -> usize {
        self.start as usize
    }
}

/// Bytes of the pool that tensors use, and those that are kept for the next load.
#[pyfunction]
pub(crate) fn pool_bytes() -> (usize, usize) {
    let stats = pool().stats();
    (stats.in_use, stats.free)
}

/// Releases the memory that is kept for the next load; the number of bytes.
#[pyfunction]
pub(crate) fn trim(py: Python<'_>) -> usize {
    py.detach(|| pool().trim())
}
