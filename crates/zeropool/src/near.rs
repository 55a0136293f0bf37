//! A thread's short way to its cells, for most gets and puts.
//!
//! What this file guarantees: a pointer in [`NEAR`] is to the [`Cells`] of a living [`Owner`] of this thread.
//! [`come`] alone writes one, for an owner, which holds its cells and cannot leave its thread, and the owner's drop calls
//! [`go`] before it lets go of the cells.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ptr;

use crate::cells::{Cells, Owner};
use crate::class::Class;
use crate::slab::Block;
use crate::sync::thread_local;

/// Where this thread's cells for a pool are.
#[derive(Clone, Copy)]
struct Near {
    pool: u64,
    cells: *const Cells,
}

const NOBODY: Near = Near {
    pool: u64::MAX,
    cells: ptr::null(),
};
/// The pool of blocks that are not put the short way. No pool has this number, nor [`NOBODY`]'s.
pub(crate) const NOT_NEAR: u64 = u64::MAX - 1;

/// So many pools that were made one after the other have places of their own.
const WAYS: usize = 4;

#[inline]
fn way(pool: u64) -> usize {
    #[allow(clippy::cast_possible_truncation)] // only the last bits count
    let low = pool as usize;
    low % WAYS
}

thread_local! {
    /// Has no destructor, so that using it asks for none.
    static NEAR: [Cell<Near>; WAYS] = const { [const { Cell::new(NOBODY) }; WAYS] };
}

/// From now on [`get`] and [`put`] find this owner's cells, until those of another pool take the place.
pub(crate) fn come(owner: &Owner) {
    let pool = owner.pool();
    let _ = NEAR.try_with(|near| {
        near[way(pool)].set(Near {
            pool,
            cells: ptr::from_ref(owner.cells()),
        })
    });
}

/// An owner ends.
pub(crate) fn go(owner: &Owner) {
    // `Err`: the thread is ending, and the place is gone already
    let _ = NEAR.try_with(|near| {
        let near = &near[way(owner.pool())];
        if near.get().pool == owner.pool() {
            near.set(NOBODY);
        }
    });
}

/// Runs `with` on this thread's cells for the pool, if they are near, or gives `what` back.
///
/// # Safety
///
/// `with` lets go of no owner.
#[inline]
unsafe fn near<W, R>(pool: u64, what: W, with: impl FnOnce(&Cells, W) -> R) -> Result<R, W> {
    let Ok(near) = NEAR.try_with(|near| near[way(pool)].get()) else {
        return Err(what);
    };
    if near.pool != pool {
        return Err(what);
    }
    // SAFETY: by this file's guarantee an owner of this thread holds the cells; no pool has the number of `NOBODY`. The
    // owner lives for as long as this borrow: it is this thread's, which is in `with`.
    let cells = unsafe { &*near.cells };
    Ok(with(cells, what))
}

/// A free block for `len` bytes out of this thread's cells, counted.
#[inline]
pub(crate) fn get(pool: u64, len: usize) -> Option<Block> {
    let class = Class::index_of(len);
    // SAFETY: the thread owns the cells that are near, see above.
    let get = |cells: &Cells, ()| unsafe { cells.get(class, len) };
    // SAFETY: taking from a cell ends no owner.
    unsafe { near(pool, (), get) }.ok().flatten()
}

/// Puts a block into this thread's cells, or gives it back. `Ok(false)`: somebody waits, or the pool is closed.
#[inline]
pub(crate) fn put(block: Block) -> Result<bool, Block> {
    // SAFETY: putting into a cell ends no owner.
    unsafe { near(block.home(), block, |cells, block| cells.put(block)) }.unwrap_or_else(Err)
}
