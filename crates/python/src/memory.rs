#![allow(unsafe_code)] // the buffer protocol passes pointers

//! Memory that tensors of Python are made over, by the buffer protocol.

use std::ffi::c_int;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anamnesis::pool::{BufferPart, BufferPool};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;

/// One pool for all loads of the process, so that the memory of tensors that have died serves the next load.
static POOL: Mutex<Option<(u32, BufferPool)>> = Mutex::new(None);

/// Memory of tensors that have died is kept for the next load this long, and at most twice as long: a load that follows at once
/// finds it, and it is back with the system within a second.
const PERIOD: Duration = Duration::from_millis(250);

/// Bytes that are kept longer, for loads of single tensors.
const KEPT: usize = 32 << 20;

/// The pool of this process. A child of `fork` has a pool of its own: a thread that the child does not have may have held
/// a lock of its parent's.
pub(crate) fn pool() -> BufferPool {
    let own = std::process::id();
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    match &*pool {
        Some((process, pool)) if *process == own => pool.clone(),
        _ => {
            // without magazines: they are for frequent requests, and loads make few; a pool with magazines registers for
            // `membarrier`, which takes milliseconds in a process with threads (PyTorch's, for example)
            let builder = BufferPool::builder()
                .thread_cache(0)
                .release_after(PERIOD, KEPT);
            let new = builder.build().expect("these settings suit every machine");
            // the parent's buffers belong to tensors that the child still has: the pool is left to them
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
    /// The address of the first byte. The part below is not used while views exist, and stays in place when it is moved.
    start: *mut u8,
    len: usize,
    part: Arc<BufferPart>,
}

// SAFETY: the pointer belongs to `part`, which is `Send`, and whose bytes nothing else uses.
unsafe impl Send for TensorMemory {}
// SAFETY: `&TensorMemory` gives the address and the length alone. Reads and writes through the buffer protocol are
// synchronised by Python programs, as for every object with a buffer.
unsafe impl Sync for TensorMemory {}

impl TensorMemory {
    pub(crate) fn new(mut part: BufferPart) -> Self {
        Self {
            start: part.as_mut_ptr(),
            len: part.len(),
            part: Arc::new(part),
        }
    }

    /// The owner of the memory, which keeps it also without this object.
    pub(crate) fn part(&self) -> Arc<BufferPart> {
        Arc::clone(&self.part)
    }

    /// The address of the first byte.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

#[pymethods]
impl TensorMemory {
    /// # Safety
    /// Called like `PyObject_GetBuffer`: `view` is valid for writing.
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

/// Memory of the caller that a load writes to, by the name of its tensor.
pub(crate) struct OutMemory {
    outputs: Vec<(String, PyBuffer<u8>)>,
}

impl OutMemory {
    /// Takes objects with a buffer, which is contiguous, writable, and shares no byte with another of them.
    pub(crate) fn new(objects: Vec<(String, Bound<'_, PyAny>)>) -> PyResult<Self> {
        let mut outputs = Vec::with_capacity(objects.len());
        for (name, object) in objects {
            let buffer = PyBuffer::get(&object)?;
            // a copy into strided memory would need a second buffer, which loading into own memory is meant to avoid
            if buffer.readonly() || !buffer.is_c_contiguous() {
                let text = format!("out: the memory for {name:?} is not writable and contiguous");
                return Err(PyValueError::new_err(text));
            }
            outputs.push((name, buffer));
        }
        let start = |buffer: &PyBuffer<u8>| buffer.buf_ptr().addr();
        let used = outputs.iter().filter(|(_, buffer)| buffer.len_bytes() > 0);
        let mut by_address: Vec<_> = used.collect();
        // sorted, so that only neighbours can overlap and n outputs take n comparisons
        by_address.sort_by_key(|(_, buffer)| start(buffer));
        for pair in by_address.windows(2) {
            let [(first, one), (second, other)] = pair else {
                unreachable!("windows of two")
            };
            if start(other) - start(one) < one.len_bytes() {
                let text = format!("out: the memory for {first:?} and {second:?} overlaps");
                return Err(PyValueError::new_err(text));
            }
        }
        Ok(Self { outputs })
    }

    /// The memory, with its names.
    pub(crate) fn slices(&mut self) -> impl Iterator<Item = (String, &mut [u8])> {
        self.outputs.iter().map(|(name, buffer)| {
            let (start, len) = (buffer.buf_ptr().cast::<u8>(), buffer.len_bytes());
            let bytes = if len == 0 {
                // the pointer of an empty buffer may be null
                &mut [][..]
            } else {
                // SAFETY: the buffer is contiguous and writable, and shares no byte with another (`new`). It is valid and stays
                // in place while its view exists, which `self` holds, and which outlives the slice. `&mut self` makes one
                // slice of it at a time. Python programs that use it meanwhile synchronise, as for `readinto`.
                unsafe { std::slice::from_raw_parts_mut(start, len) }
            };
            (name.clone(), bytes)
        })
    }
}

/// Memory of the pool, of unspecified content.
#[pyfunction]
pub(crate) fn new_memory(nbytes: usize) -> PyResult<TensorMemory> {
    let buffer = pool().try_get(nbytes);
    let buffer = buffer.map_err(|e| PyMemoryError::new_err(e.to_string()))?;
    // one part: a length of 0 would divide into infinitely many
    let mut parts = buffer.split(nbytes.max(1));
    let part = parts.pop().expect("an empty buffer has a part too");
    Ok(TensorMemory::new(part))
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
