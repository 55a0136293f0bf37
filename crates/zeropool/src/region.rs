//! Memory: what is mapped, or taken from the heap where nothing can be mapped.
//!
//! What this file guarantees: a [`Region`] is `len` bytes that are mapped, readable, writable and **initialised** from
//! its creation to its drop. Anonymous mappings are zero pages, `alloc_zeroed` zeroes, and nothing here ever makes a
//! byte uninitialised: `MADV_DONTNEED` on private anonymous memory brings zero pages back.
#![allow(unsafe_code)]

use std::io;
#[cfg(all(unix, not(any(miri, shuttle))))]
use std::ptr;
use std::ptr::NonNull;

use crate::class::PAGE;

/// Alignment of mappings, and the unit of large ones: a huge page.
#[cfg(not(any(miri, shuttle)))]
pub(crate) const HUGE: usize = 2 << 20;
/// Checked byte by byte there.
#[cfg(any(miri, shuttle))]
pub(crate) const HUGE: usize = 64 << 10;

/// How a region is to be mapped.
#[cfg_attr(any(miri, shuttle, not(target_os = "linux")), allow(dead_code))]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wish {
    /// From the heap: for buffers that are not pooled.
    pub(crate) heap: bool,
    /// Advise huge pages.
    pub(crate) huge: bool,
    pub(crate) pin: bool,
    /// Keep it out of core dumps.
    pub(crate) secret: bool,
    /// Prefer this node's memory.
    pub(crate) node: Option<u32>,
}

/// Why a region could not be had.
#[derive(Debug)]
pub(crate) enum Refusal {
    Memory(io::Error),
    Pin(io::Error),
}

/// A piece of address space: always mapped, always initialised.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) base: NonNull<u8>,
    pub(crate) len: usize,
    mapped: bool,
    pinned: bool,
}

// SAFETY: a region is memory; which thread asks for its address or unmaps it does not matter to the kernel, and access
// to its bytes goes through blocks.
unsafe impl Send for Region {}
// SAFETY: as above; `&Region` gives nothing but the address and the length.
unsafe impl Sync for Region {}

impl Region {
    pub(crate) fn new(len: usize, wish: &Wish) -> Result<Self, Refusal> {
        if wish.heap || cfg!(any(miri, shuttle, not(unix))) {
            if wish.pin {
                // nothing there is locked, and who requires it has to hear of it
                return Err(Refusal::Pin(io::ErrorKind::Unsupported.into()));
            }
            return Self::heap(len).map_err(Refusal::Memory);
        }
        #[cfg(all(unix, not(any(miri, shuttle))))]
        return Self::map(len, wish);
        #[cfg(not(all(unix, not(any(miri, shuttle)))))]
        unreachable!("the heap was chosen above")
    }

    /// Not below the page size, so that the address is page-aligned even here.
    fn layout(len: usize) -> Option<std::alloc::Layout> {
        let align = if len >= PAGE { PAGE } else { 64 };
        std::alloc::Layout::from_size_align(len.max(1), align).ok()
    }

    fn heap(len: usize) -> io::Result<Self> {
        let layout = Self::layout(len).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the layout's size is at least one.
        let base = unsafe { std::alloc::alloc_zeroed(layout) };
        let base = NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self {
            base,
            len,
            mapped: false,
            pinned: false,
        })
    }

    /// `len` bytes at a multiple of [`HUGE`], or at any page if they are fewer: the kernel then joins them with others.
    #[cfg(all(unix, not(any(miri, shuttle))))]
    fn map(len: usize, wish: &Wish) -> Result<Self, Refusal> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
        // whole pages of this kernel, so that what is cut off below is whole pages too
        let page = rustix::param::page_size().max(PAGE);
        let len = len
            .checked_next_multiple_of(page)
            .ok_or_else(|| Refusal::Memory(io::ErrorKind::OutOfMemory.into()))?;
        let align = if len < HUGE { page } else { HUGE };
        let room = len
            .checked_add(align - page)
            .ok_or_else(|| Refusal::Memory(io::ErrorKind::OutOfMemory.into()))?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: no address is asked for, so no existing mapping is touched.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), room, access, MapFlags::PRIVATE) };
        let start = start.map_err(|e| Refusal::Memory(e.into()))?.cast::<u8>();
        let head = start.align_offset(align);
        let base = start.wrapping_add(head);
        let tail = room - len - head;
        if head > 0 {
            // SAFETY: the first `head` bytes of the mapping just made, which nobody has seen. `head` is whole pages,
            // as mappings start at pages. Should it fail, address space is lost and nothing else.
            let _ = unsafe { munmap(start.cast(), head) };
        }
        if tail > 0 {
            // SAFETY: the bytes behind `base + len` up to the end of that mapping; as above.
            let _ = unsafe { munmap(base.wrapping_add(len).cast(), tail) };
        }
        let base = NonNull::new(base).expect("a mapping is not at zero");
        let mut region = Self {
            base,
            len,
            mapped: true,
            pinned: false,
        };
        region.advise(wish);
        if wish.pin {
            // SAFETY: the region is ours; locking brings pages in and changes no byte.
            let locked = unsafe { rustix::mm::mlock(region.base.as_ptr().cast(), region.len) };
            locked.map_err(|e| Refusal::Pin(e.into()))?;
            region.pinned = true;
        }
        Ok(region)
    }

    /// What the kernel may be told and may refuse without harm.
    #[cfg(all(target_os = "linux", not(any(miri, shuttle))))]
    fn advise(&self, wish: &Wish) {
        use rustix::mm::{Advice, madvise};
        let start = self.base.as_ptr();
        if wish.huge {
            // SAFETY: the region is ours; the advice changes the size of its pages, not their bytes.
            let _ = unsafe { madvise(start.cast(), self.len, Advice::LinuxHugepage) };
        }
        if wish.secret {
            // SAFETY: the region is ours; the advice concerns core dumps only.
            let _ = unsafe { madvise(start.cast(), self.len, Advice::LinuxDontDump) };
        }
        if let Some(node) = wish.node {
            let _ = self.bind(node);
        }
    }

    #[cfg(all(unix, not(target_os = "linux"), not(any(miri, shuttle))))]
    fn advise(&self, _: &Wish) {}

    /// Prefers a node's memory for pages that are yet to come. Not strict: a full node must not kill the process.
    #[cfg(all(target_os = "linux", not(any(miri, shuttle))))]
    fn bind(&self, node: u32) -> io::Result<()> {
        let mut mask = [0u64; 16];
        let word = mask
            .get_mut(node as usize / 64)
            .ok_or(io::ErrorKind::InvalidInput)?;
        *word |= 1 << (node % 64);
        let bits = mask.len() * 64 + 1;
        // SAFETY: the region is ours and untouched; the mask outlives the call and has as many bits as are named (the
        // kernel wants one more than it reads).
        let done = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.base.as_ptr(),
                self.len,
                libc::MPOL_PREFERRED,
                mask.as_ptr(),
                bits,
                0u32,
            )
        };
        if done == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Bytes that are locked into memory.
    pub(crate) fn locked(&self) -> usize {
        if self.pinned { self.len } else { 0 }
    }

    /// Gives the pages of this range back; they are zeros afterwards. False if nothing happened.
    pub(crate) fn forget_pages(&self, from: usize, len: usize) -> bool {
        #[cfg(all(target_os = "linux", not(any(miri, shuttle))))]
        if self.mapped
            && !self.pinned
            && are_whole_pages(from, len, rustix::param::page_size())
            && from + len <= self.len
        {
            let start = self.base.as_ptr().wrapping_add(from);
            // SAFETY: the range lies in the region and is whole pages of this kernel, so that nothing is rounded up to
            // a neighbour's bytes, and the caller owns it: `Desc::drop`, the only one, has exclusive use of its spot.
            // Private anonymous pages come back as zeros, so they stay initialised.
            return unsafe {
                rustix::mm::madvise(start.cast(), len, rustix::mm::Advice::LinuxDontNeed)
            }
            .is_ok();
        }
        let _ = (from, len);
        false
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.mapped {
            #[cfg(all(unix, not(any(miri, shuttle))))]
            // SAFETY: the mapping is ours, and no block is left: each holds the slab that holds this. Should the kernel
            // refuse (too many mappings), it leaks.
            let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
        } else {
            let layout = Self::layout(self.len).expect("it was allocated with this layout");
            // SAFETY: allocated in `heap` with the same layout, and no block is left.
            unsafe { std::alloc::dealloc(self.base.as_ptr(), layout) };
        }
    }
}

/// Whether a range is whole pages and nothing else, where pages have `page` bytes: 4, 16 or 64 KiB.
#[cfg(any(test, all(target_os = "linux", not(any(miri, shuttle)))))]
fn are_whole_pages(from: usize, len: usize, page: usize) -> bool {
    len > 0 && from.is_multiple_of(page) && len.is_multiple_of(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heap_does_not_pretend_to_be_locked() {
        let wish = Wish {
            heap: true,
            pin: true,
            ..Wish::default()
        };
        let refused = Region::new(PAGE, &wish);
        assert!(
            matches!(refused, Err(Refusal::Pin(why)) if why.kind() == io::ErrorKind::Unsupported)
        );
    }

    #[test]
    fn only_whole_pages_are_given_back() {
        for (page, pages) in [(4 << 10, true), (16 << 10, false), (64 << 10, false)] {
            assert_eq!(are_whole_pages(3 * PAGE, 5 * PAGE, page), pages, "{page}");
            assert!(are_whole_pages(64 << 10, 128 << 10, page));
            assert!(!are_whole_pages(0, 256, page) && !are_whole_pages(256, page, page));
            assert!(!are_whole_pages(page, 0, page));
        }
    }
}
