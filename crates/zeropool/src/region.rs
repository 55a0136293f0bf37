//! Regions of memory: anonymous mappings, or heap allocations where mappings are unavailable or not wanted.
//!
//! Guarantee of this file: a [`Region`] is `len` bytes that are mapped, readable, writable and **initialised** from its
//! creation to its drop. Anonymous mappings are zero pages, `alloc_zeroed` zeroes, and no call in this file makes a byte
//! uninitialised: after `MADV_DONTNEED`, private anonymous memory reads as zeros.
#![allow(unsafe_code)]

use std::io;
#[cfg(all(unix, not(any(miri, shuttle))))]
use std::ptr;
use std::ptr::NonNull;

use crate::class::PAGE;
#[cfg(all(target_os = "linux", not(any(miri, shuttle))))]
use crate::huge_pages::HUGE_PAGES;

/// The size of a huge page. Mappings of this size and more are aligned to it, so that the kernel can use huge pages.
#[cfg(not(any(miri, shuttle)))]
pub(crate) const HUGE: usize = 2 << 20;
/// Smaller for interpreters and model checkers, which are slow on large memory.
#[cfg(any(miri, shuttle))]
pub(crate) const HUGE: usize = 64 << 10;

/// How a region is mapped.
#[cfg_attr(any(miri, shuttle, not(target_os = "linux")), allow(dead_code))]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RegionOptions {
    /// Allocate on the heap, for buffers that are not pooled.
    pub(crate) heap: bool,
    /// Advise huge pages.
    pub(crate) huge: bool,
    pub(crate) pin: bool,
    /// Keep the memory out of core dumps.
    pub(crate) secret: bool,
    /// Prefer the memory of this NUMA node.
    pub(crate) node: Option<u32>,
}

/// Why a region could not be created.
#[derive(Debug)]
pub(crate) enum RegionError {
    Memory(io::Error),
    Pin(io::Error),
    Register(io::Error),
}

/// A range of address space, mapped and initialised while this lives.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) base: NonNull<u8>,
    pub(crate) len: usize,
    mapped: bool,
    pinned: bool,
    leaked: bool,
}

// SAFETY: a mapping belongs to the process, so any thread may use and unmap it. Access to its bytes goes through objects.
unsafe impl Send for Region {}
// SAFETY: as above; `&Region` gives only the address and the length.
unsafe impl Sync for Region {}

impl Region {
    pub(crate) fn new(len: usize, options: &RegionOptions) -> Result<Self, RegionError> {
        if options.heap || cfg!(any(miri, shuttle, not(unix))) {
            if options.pin {
                // heap memory cannot be locked, which `Pinning::Require` must report
                return Err(RegionError::Pin(io::ErrorKind::Unsupported.into()));
            }
            return Self::heap(len).map_err(RegionError::Memory);
        }
        #[cfg(all(unix, not(any(miri, shuttle))))]
        return Self::map(len, options);
        #[cfg(not(all(unix, not(any(miri, shuttle)))))]
        unreachable!("the heap was chosen above")
    }

    /// Aligned to pages from the page size up, as buffers of a page and more promise.
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
            leaked: false,
        })
    }

    /// Maps `len` bytes, aligned to [`HUGE`] if there are that many. `mmap` aligns to pages only, so a larger range is mapped and
    /// both ends are cut off. Smaller mappings are aligned to pages, so that the kernel can merge adjacent ones.
    #[cfg(all(unix, not(any(miri, shuttle))))]
    fn map(len: usize, options: &RegionOptions) -> Result<Self, RegionError> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
        // whole pages of this kernel (up to 64 KiB), so that the ends that are cut off are whole pages too
        let page = rustix::param::page_size().max(PAGE);
        let len = len
            .checked_next_multiple_of(page)
            .ok_or_else(|| RegionError::Memory(io::ErrorKind::OutOfMemory.into()))?;
        let align = if len < HUGE { page } else { HUGE };
        // `mmap` returns whole pages, so at most `align - page` bytes precede the first aligned address
        let room = len
            .checked_add(align - page)
            .ok_or_else(|| RegionError::Memory(io::ErrorKind::OutOfMemory.into()))?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: no address is requested, so no existing mapping is replaced.
        // not populated: a slab's pages are taken from the system when a buffer first touches them
        let start = unsafe { mmap_anonymous(ptr::null_mut(), room, access, MapFlags::PRIVATE) };
        let start = start
            .map_err(|e| RegionError::Memory(e.into()))?
            .cast::<u8>();
        let head = start.align_offset(align);
        let base = start.wrapping_add(head);
        let tail = room - len - head;
        if head > 0 {
            // SAFETY: the first `head` bytes of the new mapping, to which no other pointer exists. `head` is whole
            // pages, as mappings start at pages. If the call fails, only address space is lost.
            let _ = unsafe { munmap(start.cast(), head) };
        }
        if tail > 0 {
            // SAFETY: the bytes from `base + len` to the end of the new mapping; as above.
            let _ = unsafe { munmap(base.wrapping_add(len).cast(), tail) };
        }
        let base = NonNull::new(base).expect("a mapping is not at address zero");
        let mut region = Self {
            base,
            len,
            mapped: true,
            pinned: false,
            leaked: false,
        };
        // before anything touches the pages: their size and node are decided by the page fault, and `mlock` faults all
        // of them
        region.advise(options);
        if options.pin {
            // SAFETY: the region belongs to this value; locking populates pages and changes no byte.
            let locked = unsafe { rustix::mm::mlock(region.base.as_ptr().cast(), region.len) };
            locked.map_err(|e| RegionError::Pin(e.into()))?;
            region.pinned = true;
        }
        Ok(region)
    }

    /// Gives the kernel advice. Errors are ignored, as the memory works without it.
    #[cfg(all(target_os = "linux", not(any(miri, shuttle))))]
    fn advise(&self, options: &RegionOptions) {
        use rustix::mm::{Advice, madvise};
        let start = self.base.as_ptr();
        if options.secret {
            // SAFETY: the region belongs to this value; the advice concerns core dumps only.
            let _ = unsafe { madvise(start.cast(), self.len, Advice::LinuxDontDump) };
        }
        if let Some(node) = options.node {
            // a preference, so that allocation falls back to other nodes when this one is full
            let memory = ptr::slice_from_raw_parts(start, self.len);
            let _ = anamnesis_os::numa::prefer_node_for_memory(memory, node);
        }
        let advise_huge = |huge| {
            let advice = if huge {
                Advice::LinuxHugepage
            } else {
                // also where the system gives huge pages without advice
                Advice::LinuxNoHugepage
            };
            // SAFETY: the region belongs to this value; the advice changes the size of its pages, not their bytes.
            let _ = unsafe { madvise(start.cast(), self.len, advice) };
        };
        if options.huge && self.len < HUGE {
            advise_huge(true);
        } else if options.huge {
            let attempt = HUGE_PAGES.attempt();
            advise_huge(attempt);
            // after the preference for a node, as the page is taken now
            if attempt && !HUGE_PAGES.record(self.touch()) {
                advise_huge(false);
            }
        }
    }

    /// Takes the first page from the system; how long that took.
    #[cfg(all(target_os = "linux", not(any(miri, shuttle))))]
    fn touch(&self) -> std::time::Duration {
        let began = std::time::Instant::now();
        // SAFETY: the first byte of a region that is new, writable and used by nothing else, and it is zero already.
        unsafe { self.base.as_ptr().write_volatile(0) };
        began.elapsed()
    }

    #[cfg(all(unix, not(target_os = "linux"), not(any(miri, shuttle))))]
    fn advise(&self, _: &RegionOptions) {}

    /// Its address and length.
    pub(crate) fn memory(&self) -> NonNull<[u8]> {
        NonNull::slice_from_raw_parts(self.base, self.len)
    }

    /// Leaves the memory mapped for the rest of the process.
    pub(crate) fn leak(&mut self) {
        self.leaked = true;
    }

    /// Bytes that are locked into memory.
    pub(crate) fn locked(&self) -> usize {
        if self.pinned { self.len } else { 0 }
    }

    /// Releases the pages of this range, which reads as zeros afterwards. Returns false if the pages were not released and the
    /// bytes are unchanged.
    pub(crate) fn release_pages(&self, from: usize, len: usize) -> bool {
        #[cfg(all(target_os = "linux", not(any(miri, shuttle))))]
        if self.mapped
            // `MADV_DONTNEED` is refused on locked pages
            && !self.pinned
            && are_whole_pages(from, len, rustix::param::page_size())
            && from + len <= self.len
        {
            let start = self.base.as_ptr().wrapping_add(from);
            // SAFETY: the range lies in the region and is whole pages of this kernel, so the kernel does not round it up
            // to a neighbour's bytes. The only caller, `ObjectHeader::drop`, has exclusive use of the range. Released
            // private anonymous pages read as zeros, so the bytes stay initialised.
            // not `MADV_FREE`, after which pages keep their bytes until the system needs them: the caller counts them
            // as zero
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
        if self.leaked {
        } else if self.mapped {
            #[cfg(all(unix, not(any(miri, shuttle))))]
            // SAFETY: the mapping belongs to this value, and no object uses it: each holds the slab, which holds the
            // region. If the kernel refuses (too many mappings), the memory leaks.
            let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
        } else {
            let layout = Self::layout(self.len).expect("the region was allocated with this layout");
            // SAFETY: allocated in `heap` with the same layout, and no object uses it, as above.
            unsafe { std::alloc::dealloc(self.base.as_ptr(), layout) };
        }
    }
}

/// Whether a range is a positive number of whole pages of `page` bytes: 4, 16 or 64 KiB.
#[cfg(any(test, all(target_os = "linux", not(any(miri, shuttle)))))]
fn are_whole_pages(from: usize, len: usize, page: usize) -> bool {
    len > 0 && from.is_multiple_of(page) && len.is_multiple_of(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinning_heap_memory_is_unsupported() {
        let options = RegionOptions {
            heap: true,
            pin: true,
            ..RegionOptions::default()
        };
        let refused = Region::new(PAGE, &options);
        assert!(
            matches!(refused, Err(RegionError::Pin(why)) if why.kind() == io::ErrorKind::Unsupported)
        );
    }

    #[test]
    fn only_ranges_of_whole_pages_can_be_released() {
        for (page, pages) in [(4 << 10, true), (16 << 10, false), (64 << 10, false)] {
            assert_eq!(are_whole_pages(3 * PAGE, 5 * PAGE, page), pages, "{page}");
            assert!(are_whole_pages(64 << 10, 128 << 10, page));
            assert!(!are_whole_pages(0, 256, page) && !are_whole_pages(256, page, page));
            assert!(!are_whole_pages(page, 0, page));
        }
    }
}
