//! Slabs, and the blocks carved from them.
//!
//! What this file guarantees, on top of what `region.rs` does:
//!
//! 1. A [`Slab`] hands out the number of a spot at most once until that spot comes back, and it comes back only from the
//!    drop of the [`Block`] that had it. So two live blocks never share a byte.
//! 2. A block holds its slab, so its bytes outlive it. It gives `&[u8]` for `&self` and `&mut [u8]` for `&mut self`.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::budget::Charge;
use crate::class::{Class, PAGE};
use crate::region::{HUGE, Refusal, Region, Wish};
use crate::stats::Totals;
use crate::sync::Mutex;

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
    pub(crate) fn new(
        class: Class,
        wish: &Wish,
        totals: &Arc<Totals>,
    ) -> Result<Arc<Self>, Refusal> {
        let block = class.capacity();
        let len = match block {
            _ if wish.heap || block >= HUGE => block,
            // all of what is locked takes memory, and counts against a limit: no more than there are blocks for
            _ if wish.pin && block >= PAGE => block,
            _ if wish.pin => (8 * block).next_multiple_of(PAGE),
            _ => (8 * block).next_multiple_of(HUGE),
        };
        let region = Region::new(len, wish)?;
        let spots = Spots {
            fresh: 0,
            count: len / block,
            free: Vec::new(),
        };
        totals.mapped.fetch_add(region.len, Relaxed);
        totals.pinned.fetch_add(region.locked(), Relaxed);
        Ok(Arc::new(Self {
            region,
            class,
            spots: Mutex::new(spots),
            totals: Arc::clone(totals),
        }))
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
        let (class, slab, home) = (
            self.class,
            Arc::clone(self),
            charge.engine().home(self.class),
        );
        Ok(Block(Box::new(Desc {
            base,
            capacity,
            class,
            dirty,
            home,
            spot,
            slab,
            charge: Some(charge),
        })))
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        self.totals.mapped.fetch_sub(self.region.len, Relaxed);
        self.totals.pinned.fetch_sub(self.region.locked(), Relaxed);
    }
}

/// What a block is. On the heap, so that a block is one pointer wide and fits into a [`Slot`](crate::slot::Slot).
// the first line has what gets and puts look at, and what one thread writes there is not to slow another's
#[repr(C, align(64))]
pub(crate) struct Desc {
    base: NonNull<u8>,
    capacity: usize,
    dirty: usize,
    /// What a put has to know of its pool.
    home: u64,
    class: Class,
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
        if self.slab.is_shared()
            && self
                .slab
                .region
                .forget_pages(self.spot * self.capacity, self.capacity)
        {
            self.dirty = 0;
        }
        self.slab.spots.lock().free.push((self.spot, self.dirty));
    }
}

/// Exclusive use of some bytes. Dropping it gives them back to the system or to their slab.
pub(crate) struct Block(pub(crate) Box<Desc>);

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
        if len > self.0.dirty {
            self.0.dirty = len;
        }
    }

    /// The pool whose cells it goes to when it is put, or [`NOT_NEAR`](crate::near::NOT_NEAR).
    #[inline]
    pub(crate) fn home(&self) -> u64 {
        self.0.home
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
