//! Memory of another allocator than this program's.

use std::alloc::{GlobalAlloc, Layout};

/// A buffer of another allocator than this program's.
pub struct Mi(*mut u8, Layout);

impl Mi {
    pub fn new(len: usize) -> Self {
        let layout = Layout::from_size_align(len.max(1), 8).expect("small enough");
        // SAFETY: the layout is not of zero bytes.
        Self(unsafe { mimalloc::MiMalloc.alloc_zeroed(layout) }, layout)
    }
}

impl AsMut<[u8]> for Mi {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: so many bytes were allocated, zeroed, and are this value's alone.
        unsafe { std::slice::from_raw_parts_mut(self.0, self.1.size()) }
    }
}

impl Drop for Mi {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and dropped once.
        unsafe { mimalloc::MiMalloc.dealloc(self.0, self.1) };
    }
}
