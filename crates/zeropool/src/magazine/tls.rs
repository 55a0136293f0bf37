//! Thread-local fast path: a pointer to the calling thread's magazine, for most gets and puts (experiment 14 in
//! EXPERIMENTS.md: 321 to 121 instructions for a get and a put).
//!
//! Guarantee: every pointer in [`ATTACHED`] leads to the [`Magazine`] of a live [`MagazineOwner`] of the same thread.
//! Only [`attach`] writes one, from an owner, which holds the magazine and cannot leave its thread; the owner's drop calls
//! [`detach`] before it releases the magazine.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ptr;

use crate::class::Class;
use crate::magazine::{Magazine, MagazineOwner};
use crate::slab::Object;
use crate::sync::thread_local;

/// The calling thread's magazine of one pool.
#[derive(Clone, Copy)]
struct TlsEntry {
    pool: u64,
    magazine: *const Magazine,
}

const EMPTY: TlsEntry = TlsEntry {
    pool: u64::MAX,
    magazine: ptr::null(),
};
/// Stands for the pool number in objects that never enter a magazine. No pool has this number or the number [`EMPTY`].
pub(crate) const NOT_CACHED: u64 = u64::MAX - 1;

/// A direct-mapped table: this many pools made one after the other do not displace each other.
const TLS_SLOTS: usize = 4;

#[inline]
fn tls_slot(pool: u64) -> usize {
    #[allow(clippy::cast_possible_truncation)] // the table index is the low bits
    let low = pool as usize;
    low % TLS_SLOTS
}

thread_local! {
    /// Has no destructor, so an access needs no registration of one.
    static ATTACHED: [Cell<TlsEntry>; TLS_SLOTS] = const { [const { Cell::new(EMPTY) }; TLS_SLOTS] };
}

/// Makes [`get`] and [`put`] find this owner's magazine, until another pool's displaces it.
pub(crate) fn attach(owner: &MagazineOwner) {
    let pool = owner.pool();
    let _ = ATTACHED.try_with(|slots| {
        slots[tls_slot(pool)].set(TlsEntry {
            pool,
            magazine: ptr::from_ref(owner.magazine()),
        })
    });
}

/// Removes the owner's magazine from the table.
pub(crate) fn detach(owner: &MagazineOwner) {
    // `Err`: the thread is ending, and its table no longer exists
    let _ = ATTACHED.try_with(|slots| {
        let entry = &slots[tls_slot(owner.pool())];
        // another pool's magazine may have displaced it
        if entry.get().pool == owner.pool() {
            entry.set(EMPTY);
        }
    });
}

/// Runs `with` on the thread's magazine for the pool, or returns `what` if the table has none.
///
/// # Safety
///
/// `with` drops no [`MagazineOwner`].
#[inline]
unsafe fn with_attached<W, R>(
    pool: u64,
    what: W,
    with: impl FnOnce(&Magazine, W) -> R,
) -> Result<R, W> {
    let Ok(entry) = ATTACHED.try_with(|slots| slots[tls_slot(pool)].get()) else {
        return Err(what);
    };
    if entry.pool != pool {
        return Err(what);
    }
    // SAFETY: by this file's guarantee an owner of this thread holds the magazine; no pool has the number of `EMPTY`. The
    // owner outlives this borrow: it belongs to this thread, which runs `with`.
    let magazine = unsafe { &*entry.magazine };
    Ok(with(magazine, what))
}

/// A free object for `len` bytes out of this thread's magazine, counted.
#[inline]
pub(crate) fn get(pool: u64, len: usize) -> Option<Object> {
    let class = Class::index_of(len);
    // SAFETY: the thread owns the magazine in its table, by this file's guarantee.
    let get = |magazine: &Magazine, ()| unsafe { magazine.get(class, len) };
    // SAFETY: taking from a slot drops no owner.
    unsafe { with_attached(pool, (), get) }.ok().flatten()
}

/// Puts an object into this thread's magazine, or returns it. `Ok(false)`: a thread waits for a
/// buffer, or the pool is closed.
#[inline]
pub(crate) fn put(object: Object) -> Result<bool, Object> {
    // SAFETY: putting into a slot drops no owner.
    unsafe {
        with_attached(object.pool_id(), object, |magazine, object| {
            magazine.put(object)
        })
    }
    .unwrap_or_else(Err)
}
