#![allow(unsafe_code)] // the buffer protocol passes pointers

//! Memory as elements with a format and a shape, by the buffer protocol: the values that numpy and `memoryview` see of a tensor.

use std::ffi::{CString, c_int};

use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::memory::TensorMemory;

/// The bytes of a tensor as its elements, in C order.
#[pyclass(frozen, name = "Elements", module = "anamnesis._core")]
pub(crate) struct TensorElements {
    memory: Py<TensorMemory>,
    format: CString,
    item: ffi::Py_ssize_t,
    /// A buffer points to it: this object stays in place while its buffers exist, and nothing changes it.
    shape: Box<[ffi::Py_ssize_t]>,
    strides: Box<[ffi::Py_ssize_t]>,
}

/// The number of bytes of an element, by its format.
fn item_bytes(format: &str) -> Option<ffi::Py_ssize_t> {
    Some(match format {
        "b" | "B" | "?" => 1,
        "h" | "H" | "e" => 2,
        "i" | "I" | "f" => 4,
        "q" | "Q" | "d" | "Zf" => 8,
        "Zd" => 16,
        _ => return None,
    })
}

/// The memory as elements of this format, which fill it.
#[pyfunction]
pub(crate) fn elements(
    memory: Bound<'_, TensorMemory>,
    format: &str,
    shape: Vec<ffi::Py_ssize_t>,
) -> PyResult<TensorElements> {
    let invalid = |what: &str| PyValueError::new_err(format!("elements of {format:?}: {what}"));
    let item = item_bytes(format).ok_or_else(|| invalid("the format is unknown"))?;
    let mut strides = vec![item; shape.len()];
    for axis in (1..shape.len()).rev() {
        // an axis without elements has strides too, of which no element is reached
        let stride = strides[axis].checked_mul(shape[axis].max(1));
        strides[axis - 1] = stride.ok_or_else(|| invalid("too many elements"))?;
    }
    let count = shape.iter().try_fold(item, |n, &size| n.checked_mul(size));
    let len = ffi::Py_ssize_t::try_from(memory.get().len()).expect("memory is addressable");
    let is_empty = shape.contains(&0) && len == 0;
    if shape.iter().any(|&size| size < 0) || !is_empty && count != Some(len) {
        return Err(invalid("they do not fill the memory"));
    }
    let text = if cfg!(target_endian = "little") {
        format.to_owned()
    } else {
        format!("<{format}")
    };
    Ok(TensorElements {
        memory: memory.unbind(),
        format: CString::new(text)?,
        item,
        shape: shape.into(),
        strides: strides.into(),
    })
}

#[pymethods]
impl TensorElements {
    /// # Safety
    /// Called like `PyObject_GetBuffer`: `view` is valid for writing.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let own = slf.get();
        let wants = |flag: c_int| flags & flag == flag;
        if wants(ffi::PyBUF_F_CONTIGUOUS) && own.shape.len() > 1 {
            return Err(PyBufferError::new_err("the elements are in C order"));
        }
        let memory = own.memory.get();
        let filled = ffi::Py_buffer {
            buf: memory.start().cast(),
            obj: std::ptr::null_mut(),
            len: ffi::Py_ssize_t::try_from(memory.len()).expect("memory is addressable"),
            itemsize: own.item,
            readonly: 0,
            ndim: c_int::try_from(own.shape.len())
                .map_err(|_| PyBufferError::new_err("too many axes"))?,
            format: if wants(ffi::PyBUF_FORMAT) {
                own.format.as_ptr().cast_mut()
            } else {
                std::ptr::null_mut()
            },
            shape: if wants(ffi::PyBUF_ND) {
                own.shape.as_ptr().cast_mut()
            } else {
                std::ptr::null_mut()
            },
            strides: if wants(ffi::PyBUF_STRIDES) {
                own.strides.as_ptr().cast_mut()
            } else {
                std::ptr::null_mut()
            },
            suboffsets: std::ptr::null_mut(),
            internal: std::ptr::null_mut(),
        };
        // SAFETY: `view` is valid for writing, by the contract. Its pointers lead into this object, to which it holds a
        // reference, and which holds the memory; consumers do not write through shape, strides and format.
        unsafe {
            view.write(filled);
            (*view).obj = slf.into_ptr();
        }
        Ok(())
    }
}
