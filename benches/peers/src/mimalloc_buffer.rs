//! A buffer of mimalloc's, measured without making mimalloc this program's global allocator: the other variants of the
//! same process image use glibc's.

use std::alloc::{GlobalAlloc, Layout};

pub struct MimallocBuffer(*mut u8, Layout);

// SAFETY: the memory is owned by this value alone, and mimalloc may free it on any thread
unsafe impl Send for MimallocBuffer {}

impl MimallocBuffer {
    pub fn zeroed(len: usize) -> Self {
        let layout = Self::layout(len);
        // SAFETY: `layout` never makes a layout of zero bytes
        Self(unsafe { mimalloc::MiMalloc.alloc_zeroed(layout) }, layout)
    }

    /// Its bytes may not be read before they are written.
    pub fn uninit(len: usize) -> Self {
        let layout = Self::layout(len);
        // SAFETY: `layout` never makes a layout of zero bytes
        Self(unsafe { mimalloc::MiMalloc.alloc(layout) }, layout)
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len.max(1), 8).expect("the length fits into isize")
    }

    /// Writes one byte of every page.
    pub fn write_pages(&mut self) {
        for at in (0..self.1.size()).step_by(4096) {
            // SAFETY: within the allocation, which this value owns alone
            unsafe { self.0.add(at).write_volatile(1) };
        }
    }

    /// The bytes of a buffer that was made by `zeroed`.
    pub fn as_zeroed_mut(&mut self) -> &mut [u8] {
        // SAFETY: `zeroed` allocated this many bytes and initialised them; `&mut self` makes the access exclusive
        unsafe { std::slice::from_raw_parts_mut(self.0, self.1.size()) }
    }
}

impl Drop for MimallocBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated by mimalloc with this layout
        unsafe { mimalloc::MiMalloc.dealloc(self.0, self.1) };
    }
}
