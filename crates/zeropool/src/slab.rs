//! Slabs, and the objects they are divided into. A slab is a region of memory for objects of one size class; an object is
//! the memory of one buffer.
//!
//! Guarantees of this file, on top of the guarantee of `region.rs`:
//!
//! 1. A [`Slab`] hands out each index at most once until the index is returned, and only the drop of the [`Object`] that
//!    had it returns it. So two live objects never share a byte.
//! 2. An object holds a reference to its slab, so its bytes stay mapped while it lives. It gives `&[u8]` for `&self` and
//!    `&mut [u8]` for `&mut self`.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::budget::Ledger;
use crate::callbacks::SlabCallbacks;
use crate::class::{Class, PAGE};
use crate::region::{HUGE, Region, RegionError, RegionOptions};
use crate::stats::SlabBytes;
use crate::sync::Mutex;

/// The services that an object needs of the pool that it belongs to. A trait, so that this file does not depend on the pool.
pub(crate) trait OwningPool: Send + Sync {
    fn ledger(&self) -> &Ledger;

    /// The pool's number if thread-local magazines take objects of this class without further checks, or
    /// [`NOT_CACHED`](crate::magazine::tls::NOT_CACHED).
    fn cached_id(&self, class: Class) -> u64;

    fn put_rules(&self, class: Class) -> PutRules;

    /// Creates the calling thread's magazine for this pool.
    fn register_thread(self: Arc<Self>);

    /// Stores a free object outside the magazines, or releases it.
    fn put_shared(self: Arc<Self>, object: Object);

    /// Completes a put during which a request waited or the pool was closed.
    fn finish_put(self: Arc<Self>);
}

/// How an object of some class is put.
pub(crate) struct PutRules {
    pub(crate) pool: u64,
    pub(crate) wipe: bool,
    /// No request waits, the pool is open, and the class has no limit.
    pub(crate) fast: bool,
    /// Magazines keep objects of the class.
    pub(crate) cached: bool,
}

/// The budget's charge for one object, released when dropped. Each object carries one, and through it a reference to its
/// pool.
///
/// Dropping a charge makes room but wakes no request: code that drops one outside the queue's lock must serve the queue
/// afterwards.
pub(crate) struct Charge {
    pool: Arc<dyn OwningPool>,
    class: Class,
}

impl Charge {
    /// `None` if the budget has no room for an object of this class.
    pub(crate) fn reserve<P: OwningPool + 'static>(pool: &Arc<P>, class: Class) -> Option<Self> {
        pool.ledger().reserve(class).then(|| Self {
            pool: Arc::<P>::clone(pool),
            class,
        })
    }

    #[inline]
    pub(crate) fn pool(&self) -> &Arc<dyn OwningPool> {
        &self.pool
    }

    pub(crate) fn class(&self) -> Class {
        self.class
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.pool.ledger().release(self.class);
    }
}

/// A region divided into objects of one class.
#[derive(Debug)]
pub(crate) struct Slab {
    region: Region,
    class: Class,
    objects: Mutex<FreeObjects>,
    /// Counts the region's address space.
    slab_bytes: Arc<SlabBytes>,
    /// With which the region is registered.
    callbacks: Option<Arc<SlabCallbacks>>,
}

#[derive(Debug)]
struct FreeObjects {
    /// `fresh..count` were never handed out.
    fresh: usize,
    count: usize,
    /// Returned indices, and for each how many of the object's first bytes may be nonzero.
    free: Vec<(usize, usize)>,
}

impl Slab {
    /// Maps a slab: of 2 MiB or more for small objects, at least 8 of them, or of one object for large ones.
    pub(crate) fn new(
        class: Class,
        options: &RegionOptions,
        slab_bytes: &Arc<SlabBytes>,
        callbacks: Option<&Arc<SlabCallbacks>>,
    ) -> Result<Arc<Self>, RegionError> {
        let object = class.capacity();
        let resident = options.pin || callbacks.is_some();
        let len = match object {
            _ if options.heap || object >= HUGE => object,
            // locked and registered memory is resident as a whole and counts against limits, so no more is mapped than is
            // used
            _ if resident && object >= PAGE => object,
            _ if resident => (8 * object).next_multiple_of(PAGE),
            _ => (8 * object).next_multiple_of(HUGE),
        };
        let region = Region::new(len, options)?;
        if let Some(callbacks) = callbacks {
            let registered = callbacks.register(region.memory());
            registered.map_err(RegionError::Register)?;
        }
        let objects = FreeObjects {
            fresh: 0,
            count: len / object,
            free: Vec::new(),
        };
        slab_bytes.mapped.fetch_add(region.len, Relaxed);
        slab_bytes.pinned.fetch_add(region.locked(), Relaxed);
        Ok(Arc::new(Self {
            region,
            class,
            objects: Mutex::new(objects),
            slab_bytes: Arc::clone(slab_bytes),
            callbacks: callbacks.cloned(),
        }))
    }

    /// Whether the slab has room for more than one object, so that later requests can use it too.
    pub(crate) fn is_shared(&self) -> bool {
        self.region.len >= 2 * self.class.capacity()
    }

    /// An object at an unused index, or the charge if the slab is full.
    pub(crate) fn allocate(self: &Arc<Self>, charge: Charge) -> Result<Object, Charge> {
        let mut objects = self.objects.lock();
        let (index, dirty) = match objects.free.pop() {
            Some(index) => index,
            None if objects.fresh < objects.count => {
                objects.fresh += 1;
                (objects.fresh - 1, 0)
            }
            None => return Err(charge),
        };
        // the header is allocated outside the lock
        drop(objects);
        let capacity = self.class.capacity();
        // SAFETY: `index < count` and `count * capacity <= region.len`, so the start lies in the region.
        let base = unsafe { self.region.base.add(index * capacity) };
        Ok(Object(Box::new(ObjectHeader {
            base,
            capacity,
            class: self.class,
            dirty,
            pool_id: charge.pool().cached_id(self.class),
            index,
            slab: Arc::clone(self),
            charge: Some(charge),
        })))
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        self.slab_bytes.mapped.fetch_sub(self.region.len, Relaxed);
        self.slab_bytes
            .pinned
            .fetch_sub(self.region.locked(), Relaxed);
        // before the region, a field, is unmapped
        if let Some(callbacks) = &self.callbacks
            && !callbacks.unregister(self.region.memory())
        {
            self.region.leak();
        }
    }
}

/// The description of an object. Boxed, so that an object is one pointer wide and fits into an atomic slot of a magazine.
// `repr(C)` keeps the fields that gets and puts read in the first cache line; the alignment keeps headers of different
// threads off each other's lines
#[repr(C, align(64))]
pub(crate) struct ObjectHeader {
    base: NonNull<u8>,
    capacity: usize,
    dirty: usize,
    pool_id: u64,
    class: Class,
    index: usize,
    // declared before the charge, so dropped first: memory is released before the budget counts it as released
    slab: Arc<Slab>,
    charge: Option<Charge>,
}

// SAFETY: the pointer leads to bytes that only this object uses (guarantee 1); the other fields are `Send`.
unsafe impl Send for ObjectHeader {}
// SAFETY: `&ObjectHeader` gives only shared access to those bytes; the other fields are `Sync`.
unsafe impl Sync for ObjectHeader {}

// a panic can leave bytes half written, which no invariant depends on
impl std::panic::UnwindSafe for ObjectHeader {}
impl std::panic::RefUnwindSafe for ObjectHeader {}

impl Drop for ObjectHeader {
    fn drop(&mut self) {
        // a shared slab stays mapped while other objects live, so the object's whole pages are released separately; not if
        // a device has them, which would go on to use the released ones
        if self.slab.is_shared()
            && self.slab.callbacks.is_none()
            && self
                .slab
                .region
                .release_pages(self.index * self.capacity, self.capacity)
        {
            self.dirty = 0;
        }
        self.slab.objects.lock().free.push((self.index, self.dirty));
    }
}

/// Exclusive use of one buffer's memory. Dropping it releases the memory to the system or to its slab.
pub(crate) struct Object(pub(crate) Box<ObjectHeader>);

impl Object {
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity
    }

    #[inline]
    pub(crate) fn class(&self) -> Class {
        self.0.class
    }

    /// The bytes from this offset on are known to be zero.
    #[inline]
    pub(crate) fn dirty(&self) -> usize {
        self.0.dirty
    }

    /// Notes that the first `len` bytes may be written.
    #[inline]
    pub(crate) fn expose(&mut self, len: usize) {
        if len > self.0.dirty {
            self.0.dirty = len;
        }
    }

    /// See [`OwningPool::cached_id`].
    #[inline]
    pub(crate) fn pool_id(&self) -> u64 {
        self.0.pool_id
    }

    /// The pool, unless the object was [discharged](Self::discharge).
    #[inline]
    pub(crate) fn pool(&self) -> Option<&Arc<dyn OwningPool>> {
        self.0.charge.as_ref().map(Charge::pool)
    }

    /// Takes the object off the budget before it is dropped.
    pub(crate) fn discharge(&mut self) {
        self.0.charge = None;
    }

    #[inline]
    pub(crate) fn bytes(&self, len: usize) -> &[u8] {
        assert!(len <= self.0.capacity, "length exceeds the capacity");
        // SAFETY: `base` is followed by `capacity` initialised bytes that stay mapped while the slab lives, which this
        // object holds. No other object has them, and `&self` excludes `bytes_mut`. A capacity is at most `isize::MAX`.
        unsafe { slice::from_raw_parts(self.0.base.as_ptr(), len) }
    }

    #[inline]
    pub(crate) fn bytes_mut(&mut self, len: usize) -> &mut [u8] {
        assert!(len <= self.0.capacity, "length exceeds the capacity");
        // SAFETY: as in `bytes`, and `&mut self` is exclusive.
        unsafe { slice::from_raw_parts_mut(self.0.base.as_ptr(), len) }
    }

    /// Overwrites the bytes that may be nonzero with zeros, in a way that the compiler does not remove.
    pub(crate) fn wipe(&mut self) {
        let dirty = self.0.dirty;
        self.bytes_mut(dirty).fill(0);
        #[cfg(not(miri))]
        // SAFETY: no instruction. As the block is not `nomem`, the compiler must assume that it reads all reachable
        // memory, so the stores above are kept.
        unsafe {
            std::arch::asm!("/* {0} */", in(reg) self.0.base.as_ptr(), options(nostack, preserves_flags))
        };
        self.0.dirty = 0;
    }
}
