//! Memory: mappings, the blocks carved from them, and the one-block cells of the thread caches.
//!
//! With `part.rs`, all there is of `unsafe` code. What it guarantees to the rest of the crate:
//!
//! 1. A [`Region`] is `len` bytes that are mapped, readable, writable and **initialised** from its creation to its drop.
//!    Anonymous mappings are zero pages, `alloc_zeroed` zeroes, and nothing here ever makes a byte uninitialised:
//!    `MADV_DONTNEED` on private anonymous memory brings zero pages back.
//! 2. A [`Slab`] hands out the number of a spot at most once until that spot comes back, and it comes back only from the
//!    drop of the [`Block`] that had it. So two live blocks never share a byte.
//! 3. A block holds its slab, so its bytes outlive it. It gives `&[u8]` for `&self` and `&mut [u8]` for `&mut self`.
//! 4. A [`Slot`] owns the block it holds; taking it out is one atomic exchange, so one taker gets it.
#![allow(unsafe_code)]

use std::io;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};

use crate::budget::Charge;
use crate::class::{Class, PAGE};
use crate::stats::Totals;
use crate::sync::{AtomicPtr, Mutex};

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
struct Region {
    base: NonNull<u8>,
    len: usize,
    mapped: bool,
    pinned: bool,
}

// SAFETY: a region is memory; which thread asks for its address or unmaps it does not matter to the kernel, and access
// to its bytes goes through blocks.
unsafe impl Send for Region {}
// SAFETY: as above; `&Region` gives nothing but the address and the length.
unsafe impl Sync for Region {}

impl Region {
    fn new(len: usize, wish: &Wish) -> Result<Self, Refusal> {
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
        Ok(Self { base, len, mapped: false, pinned: false })
    }

    /// `len` bytes at a multiple of [`HUGE`], or at any page if they are fewer: the kernel then joins them with others.
    #[cfg(all(unix, not(any(miri, shuttle))))]
    fn map(len: usize, wish: &Wish) -> Result<Self, Refusal> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
        // whole pages of this kernel, so that what is cut off below is whole pages too
        let page = rustix::param::page_size().max(PAGE);
        let len =
            len.checked_next_multiple_of(page).ok_or_else(|| Refusal::Memory(io::ErrorKind::OutOfMemory.into()))?;
        let align = if len < HUGE { page } else { HUGE };
        let room = len.checked_add(align - page).ok_or_else(|| Refusal::Memory(io::ErrorKind::OutOfMemory.into()))?;
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
        let mut region = Self { base, len, mapped: true, pinned: false };
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
        let word = mask.get_mut(node as usize / 64).ok_or(io::ErrorKind::InvalidInput)?;
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
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Bytes that are locked into memory.
    fn locked(&self) -> usize {
        if self.pinned { self.len } else { 0 }
    }

    /// Gives the pages of this range back; they are zeros afterwards. False if nothing happened.
    fn forget_pages(&self, from: usize, len: usize) -> bool {
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
            return unsafe { rustix::mm::madvise(start.cast(), len, rustix::mm::Advice::LinuxDontNeed) }.is_ok();
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

/// A region cut into blocks of one class.
#[derive(Debug)]
pub(crate) struct Slab {
    region: Region,
    class: Class,
    spots: Mutex<Spots>,
    /// Where its address space is counted.
    totals: Arc<Totals>,
}

#[derive(Debug)]
struct Spots {
    /// Never handed out: `fresh..count`.
    fresh: usize,
    count: usize,
    /// Come back, and how many of their bytes may not be zero.
    free: Vec<(usize, usize)>,
}

impl Slab {
    /// Maps room for as many blocks as fill it well, or for one where they are large.
    pub(crate) fn new(class: Class, wish: &Wish, totals: &Arc<Totals>) -> Result<Arc<Self>, Refusal> {
        let block = class.capacity();
        let len = match block {
            _ if wish.heap || block >= HUGE => block,
            // all of what is locked takes memory, and counts against a limit: no more than there are blocks for
            _ if wish.pin && block >= PAGE => block,
            _ if wish.pin => (8 * block).next_multiple_of(PAGE),
            _ => (8 * block).next_multiple_of(HUGE),
        };
        let region = Region::new(len, wish)?;
        let spots = Spots { fresh: 0, count: len / block, free: Vec::new() };
        totals.mapped.fetch_add(region.len, Relaxed);
        totals.pinned.fetch_add(region.locked(), Relaxed);
        Ok(Arc::new(Self { region, class, spots: Mutex::new(spots), totals: Arc::clone(totals) }))
    }

    /// Whether it has room for more than one block, and so is worth looking at again.
    pub(crate) fn is_shared(&self) -> bool {
        self.region.len >= 2 * self.class.capacity()
    }

    /// A block at a spot that nobody has, or the charge back where there is none.
    pub(crate) fn carve(self: &Arc<Self>, charge: Charge) -> Result<Block, Charge> {
        let mut spots = self.spots.lock();
        let (spot, dirty) = match spots.free.pop() {
            Some(spot) => spot,
            None if spots.fresh < spots.count => {
                spots.fresh += 1;
                (spots.fresh - 1, 0)
            }
            None => return Err(charge),
        };
        drop(spots);
        let capacity = self.class.capacity();
        // SAFETY: `spot < count` and `count * capacity <= region.len`, so the start lies in the region.
        let base = unsafe { self.region.base.add(spot * capacity) };
        let desc =
            Desc { base, capacity, class: self.class, dirty, spot, slab: Arc::clone(self), charge: Some(charge) };
        Ok(Block(Box::new(desc)))
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        self.totals.mapped.fetch_sub(self.region.len, Relaxed);
        self.totals.pinned.fetch_sub(self.region.locked(), Relaxed);
    }
}

/// What a block is. On the heap, so that a block is one pointer wide and fits into a [`Slot`].
struct Desc {
    base: NonNull<u8>,
    capacity: usize,
    class: Class,
    dirty: usize,
    spot: usize,
    // dropped before the charge: memory is given back before the budget hears of it
    slab: Arc<Slab>,
    charge: Option<Charge>,
}

// SAFETY: the pointer is to bytes that this block alone has (see the file's head); the rest is Send by itself.
unsafe impl Send for Desc {}
// SAFETY: `&Desc` gives shared access to those bytes only.
unsafe impl Sync for Desc {}

// bytes are bytes, whatever was half written
impl std::panic::UnwindSafe for Desc {}
impl std::panic::RefUnwindSafe for Desc {}

impl Drop for Desc {
    fn drop(&mut self) {
        // in a region that stays, whole pages go back to the system now
        if self.slab.is_shared() && self.slab.region.forget_pages(self.spot * self.capacity, self.capacity) {
            self.dirty = 0;
        }
        self.slab.spots.lock().free.push((self.spot, self.dirty));
    }
}

/// Exclusive use of some bytes. Dropping it gives them back to the system or to their slab.
pub(crate) struct Block(Box<Desc>);

impl Block {
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity
    }

    #[inline]
    pub(crate) fn class(&self) -> Class {
        self.0.class
    }

    /// The bytes from here on are known to be zero.
    #[inline]
    pub(crate) fn dirty(&self) -> usize {
        self.0.dirty
    }

    /// The first `len` bytes may be written by whoever has the block.
    #[inline]
    pub(crate) fn expose(&mut self, len: usize) {
        self.0.dirty = self.0.dirty.max(len);
    }

    #[inline]
    pub(crate) fn charge(&self) -> Option<&Charge> {
        self.0.charge.as_ref()
    }

    /// Takes the block off the budget: it is about to be dropped.
    pub(crate) fn discharge(&mut self) {
        self.0.charge = None;
    }

    #[inline]
    pub(crate) fn bytes(&self, len: usize) -> &[u8] {
        assert!(len <= self.0.capacity);
        // SAFETY: `base` is followed by `capacity` initialised bytes that live as long as the slab, which this holds;
        // nobody else has them, and `&self` keeps `bytes_mut` away. A capacity is at most `isize::MAX`.
        unsafe { slice::from_raw_parts(self.0.base.as_ptr(), len) }
    }

    #[inline]
    pub(crate) fn bytes_mut(&mut self, len: usize) -> &mut [u8] {
        assert!(len <= self.0.capacity);
        // SAFETY: as in `bytes`, and `&mut self` keeps everybody else away.
        unsafe { slice::from_raw_parts_mut(self.0.base.as_ptr(), len) }
    }

    /// Overwrites whatever may have been written, in a way that is not optimised away.
    pub(crate) fn wipe(&mut self) {
        let dirty = self.0.dirty;
        self.bytes_mut(dirty).fill(0);
        #[cfg(not(miri))]
        // SAFETY: no instruction. Not being `nomem` it counts as a reader of everything reachable, so the stores above
        // have to have happened.
        unsafe {
            std::arch::asm!("/* {0} */", in(reg) self.0.base.as_ptr(), options(nostack, preserves_flags))
        };
        self.0.dirty = 0;
    }
}

/// A cell for one block. One thread puts, any thread takes.
pub(crate) struct Slot(AtomicPtr<Desc>);

impl Slot {
    pub(crate) fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Whether there is a block now.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        !self.0.load(SeqCst).is_null()
    }

    #[inline]
    pub(crate) fn take(&self) -> Option<Block> {
        if self.0.load(SeqCst).is_null() {
            return None;
        }
        let desc = self.0.swap(ptr::null_mut(), SeqCst);
        if desc.is_null() {
            return None;
        }
        // SAFETY: pointers get in by `Box::into_raw` in `put` only, and the exchange gave this one to nobody else.
        Some(Block(unsafe { Box::from_raw(desc) }))
    }

    /// Puts the block in if the cell is empty. For the owner of the cell: with two threads putting at once, one of the
    /// blocks could be lost (a leak).
    ///
    /// With `fence` this is ordered before whatever the thread reads next, by everybody's clock. Without, whoever
    /// depends on that order calls `membarrier`.
    #[inline]
    pub(crate) fn put(&self, block: Block, fence: bool) -> Result<(), Block> {
        if !self.0.load(Relaxed).is_null() {
            return Err(block);
        }
        let desc = Box::into_raw(block.0);
        if fence {
            self.0.swap(desc, SeqCst);
        } else {
            self.0.store(desc, Release);
        }
        Ok(())
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.take();
    }
}

#[cfg(all(target_os = "linux", feature = "tokio-uring"))]
// SAFETY: the bytes are in a mapping that neither moves nor ends while the buffer exists, wherever the buffer itself is
// moved; all of them are initialised.
unsafe impl tokio_uring::buf::IoBuf for crate::Buffer {
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

#[cfg(all(target_os = "linux", feature = "tokio-uring"))]
// SAFETY: as above; `&mut` is exclusive use of the bytes.
unsafe impl tokio_uring::buf::IoBufMut for crate::Buffer {
    fn stable_mut_ptr(&mut self) -> *mut u8 {
        self.as_mut_ptr()
    }

    unsafe fn set_init(&mut self, _: usize) {
        // every byte of the length is initialised, and no operation goes beyond it
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heap_does_not_pretend_to_be_locked() {
        let wish = Wish { heap: true, pin: true, ..Wish::default() };
        let refused = Region::new(PAGE, &wish);
        assert!(matches!(refused, Err(Refusal::Pin(why)) if why.kind() == io::ErrorKind::Unsupported));
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
