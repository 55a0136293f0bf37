//! Feature `tokio-uring`: buffers and their parts as targets of io_uring operations.
//!
//! The kernel reads and writes the bytes while the operation is in flight, so the traits demand an address that does not
//! change when the value is moved. The bytes of a [`Buffer`] lie in its slab and stay mapped while it lives.
#![allow(unsafe_code)]

use tokio_uring::buf::{IoBuf, IoBufMut};

use crate::buffer::Buffer;
use crate::part::BufferPart;

// SAFETY: the bytes are in a mapping that neither moves nor ends while the buffer exists, and all of them are
// initialised.
unsafe impl IoBuf for Buffer {
    fn stable_ptr(&self) -> *const u8 {
        self.as_ptr()
    }

    fn bytes_init(&self) -> usize {
        self.len()
    }

    fn bytes_total(&self) -> usize {
        self.len()
    }
}

// SAFETY: as above; `&mut` is exclusive use of the bytes.
unsafe impl IoBufMut for Buffer {
    fn stable_mut_ptr(&mut self) -> *mut u8 {
        self.as_mut_ptr()
    }

    unsafe fn set_init(&mut self, _: usize) {
        // every byte of the length is initialised, and no operation writes beyond it
    }
}

// SAFETY: as for `Buffer`, which every part keeps alive.
unsafe impl IoBuf for BufferPart {
    fn stable_ptr(&self) -> *const u8 {
        self.as_ptr()
    }

    fn bytes_init(&self) -> usize {
        self.len()
    }

    fn bytes_total(&self) -> usize {
        self.len()
    }
}

// SAFETY: as above; a part has exclusive use of its bytes.
unsafe impl IoBufMut for BufferPart {
    fn stable_mut_ptr(&mut self) -> *mut u8 {
        self.as_mut_ptr()
    }

    unsafe fn set_init(&mut self, _: usize) {
        // every byte of the part is initialised, and no operation writes beyond it
    }
}
