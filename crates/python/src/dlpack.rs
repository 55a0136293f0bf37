#![allow(unsafe_code)] // the DLPack protocol passes pointers

//! Loaded memory as tensors of the `DLPack` protocol, in the layout of `dlpack.h` 1.1 (<https://github.com/dmlc/dlpack>).
//!
//! A capsule holds a tensor structure until a framework takes it by renaming the capsule; then the framework calls the
//! structure's `deleter`. Either way the structure is freed once, and with it the reference to the memory.

use std::ffi::{CStr, c_void};
use std::sync::Arc;

use anamnesis::pool::BufferPart;
use pyo3::exceptions::PyValueError;
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::memory::TensorMemory;

/// `kDLCPU`.
const CPU: i32 = 1;

#[repr(C)]
#[derive(Clone, Copy)]
struct DlpackDtype {
    code: u8,
    bits: u8,
    lanes: u16,
}

/// `DLTensor`.
#[repr(C)]
struct DlpackTensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    dtype: DlpackDtype,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// `DLManagedTensor`, of consumers that state no version.
#[repr(C)]
struct UnversionedTensor {
    tensor: DlpackTensor,
    manager: *mut c_void,
    deleter: unsafe extern "C" fn(*mut Self),
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
struct VersionedTensor {
    major: u32,
    minor: u32,
    manager: *mut c_void,
    deleter: unsafe extern "C" fn(*mut Self),
    /// None is set: the memory is writable, and whether it was copied is the caller's business.
    flags: u64,
    tensor: DlpackTensor,
}

/// The structure that a consumer sees, and behind it what it points to. `repr(C)` puts the structure at the address of the whole.
#[repr(C)]
struct Exported<T> {
    structure: T,
    shape: Vec<i64>,
    strides: Vec<i64>,
    /// Holds what the structure points to. No object of the interpreter, whose lock a `deleter` need not have.
    memory: Arc<BufferPart>,
}

/// One of the two structures.
trait Managed: Sized {
    /// The name of a capsule that no consumer has taken.
    const NAME: &CStr;

    fn new(tensor: DlpackTensor) -> Self;
    fn tensor(&mut self) -> &mut DlpackTensor;
}

impl Managed for UnversionedTensor {
    const NAME: &CStr = c"dltensor";

    fn new(tensor: DlpackTensor) -> Self {
        Self {
            tensor,
            manager: std::ptr::null_mut(),
            deleter: delete::<Self>,
        }
    }

    fn tensor(&mut self) -> &mut DlpackTensor {
        &mut self.tensor
    }
}

impl Managed for VersionedTensor {
    const NAME: &CStr = c"dltensor_versioned";

    fn new(tensor: DlpackTensor) -> Self {
        Self {
            major: 1,
            minor: 1,
            manager: std::ptr::null_mut(),
            deleter: delete::<Self>,
            flags: 0,
            tensor,
        }
    }

    fn tensor(&mut self) -> &mut DlpackTensor {
        &mut self.tensor
    }
}

/// # Safety
/// `structure` belongs to an [`Exported`] in a box that nothing uses any more.
unsafe extern "C" fn delete<T: Managed>(structure: *mut T) {
    // SAFETY: by the contract, the pointer comes from `export`, and `Exported` begins with the structure.
    drop(unsafe { Box::from_raw(structure.cast::<Exported<T>>()) });
}

/// Frees the structure of a capsule that no consumer has taken.
///
/// # Safety
/// The destructor of a capsule of `export`.
unsafe extern "C" fn destroy<T: Managed>(capsule: *mut PyObject) {
    // SAFETY: an object of the interpreter, which calls with its lock held. A consumer has given a taken capsule another name.
    if unsafe { ffi::PyCapsule_IsValid(capsule, T::NAME.as_ptr()) } == 0 {
        // the consumer that has taken the structure frees it
        return;
    }
    // SAFETY: as above; the capsule is valid and has this name.
    let structure = unsafe { ffi::PyCapsule_GetPointer(capsule, T::NAME.as_ptr()) };
    // SAFETY: no consumer has taken the structure, and its capsule is about to be freed.
    unsafe { delete::<T>(structure.cast()) };
}

/// The capsule of a new structure.
fn export<'py, T: Managed>(
    memory: &Bound<'py, TensorMemory>,
    dtype: DlpackDtype,
    shape: Vec<i64>,
) -> PyResult<Bound<'py, PyAny>> {
    let too_many = || PyValueError::new_err("DLPack: too many elements or axes");
    // written out: consumers before version 1.2 differ in how they take a null pointer
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        let below: i64 = strides[axis];
        // an axis without elements has strides too, of which no element is reached
        strides[axis - 1] = below.checked_mul(shape[axis].max(1)).ok_or_else(too_many)?;
    }
    let tensor = DlpackTensor {
        data: memory.get().start().cast(),
        device_type: CPU,
        device_id: 0,
        ndim: i32::try_from(shape.len()).map_err(|_| too_many())?,
        dtype,
        shape: std::ptr::null_mut(),
        strides: std::ptr::null_mut(),
        byte_offset: 0,
    };
    let mut exported = Box::new(Exported {
        structure: T::new(tensor),
        shape,
        strides,
        memory: memory.get().part(),
    });
    // the vectors' elements stay where they are when the box is
    let (shape, strides) = (exported.shape.as_mut_ptr(), exported.strides.as_mut_ptr());
    let tensor = exported.structure.tensor();
    (tensor.shape, tensor.strides) = (shape, strides);
    let pointer = Box::into_raw(exported);
    // SAFETY: the pointer is not null, the name is static, and the destructor frees what was made here.
    let capsule =
        unsafe { ffi::PyCapsule_New(pointer.cast(), T::NAME.as_ptr(), Some(destroy::<T>)) };
    if capsule.is_null() {
        // SAFETY: no capsule holds the structure.
        unsafe { delete::<T>(pointer.cast()) };
        return Err(PyErr::fetch(memory.py()));
    }
    // SAFETY: a new reference to an object, which is not null.
    Ok(unsafe { Bound::from_owned_ptr(memory.py(), capsule) })
}

/// The capsule that `__dlpack__` returns, of contiguous elements that fill the memory.
///
/// # Errors
/// `ValueError` for a shape whose bytes are not the memory's.
#[pyfunction]
#[pyo3(signature = (memory, code, bits, lanes, shape, *, versioned))]
pub(crate) fn dlpack<'py>(
    memory: &Bound<'py, TensorMemory>,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: Vec<i64>,
    versioned: bool,
) -> PyResult<Bound<'py, PyCapsule>> {
    let item = (usize::from(bits) * usize::from(lanes)).div_ceil(8);
    let nbytes = shape
        .iter()
        .try_fold(item, |n, &size| n.checked_mul(usize::try_from(size).ok()?));
    // an axis of length 0 makes the product 0 wherever it stands
    let empty = shape.contains(&0);
    if !(empty && memory.get().len() == 0 || nbytes == Some(memory.get().len())) {
        return Err(PyValueError::new_err(format!(
            "DLPack: elements of {bits}×{lanes} bits of the shape {shape:?} are not {} bytes",
            memory.get().len()
        )));
    }
    let dtype = DlpackDtype { code, bits, lanes };
    let capsule = if versioned {
        export::<VersionedTensor>(memory, dtype, shape)?
    } else {
        export::<UnversionedTensor>(memory, dtype, shape)?
    };
    Ok(capsule.cast_into()?)
}
