//! The return path of a buffer: into the calling thread's magazine if possible, otherwise through its pool.
//!
//! | step | file | when |
//! |---|---|---|
//! | slot of the magazine in the thread-local table | `magazine/tls.rs` | the class is cached and a slot is empty |
//! | slot of the thread's other magazines, or a shared stack | `magazine/threads.rs` | the class has no limit |
//! | shared stack, waiting request, or the system | `engine/free.rs` | otherwise |

use std::sync::Arc;

use crate::magazine::{threads, tls};
use crate::slab::Object;

/// Returns the object of a dropped buffer to its pool.
#[inline]
pub(crate) fn put(object: Object) {
    let pool = object.pool_id();
    match tls::put(object) {
        Ok(true) => {}
        Ok(false) => finish_put(pool),
        Err(object) => put_uncached(object),
    }
}

/// An object is in a magazine, but a request waits or the pool was closed.
#[cold]
#[inline(never)]
fn finish_put(pool: u64) {
    // if the pool no longer exists, neither do its objects, each of which holds it: another thread emptied the slot
    if let Some(pool) = threads::pool(pool) {
        pool.finish_put();
    }
}

/// Returns an object that magazines do not keep, or for which the thread's magazine has no empty slot.
// reads the pool through the object's own reference: a put to a stack touches no shared reference count (experiment 9)
#[inline(never)]
fn put_uncached(mut object: Object) {
    let Some(pool) = object.pool() else {
        return;
    };
    let rules = pool.put_rules(object.class());
    if rules.wipe {
        object.wipe();
    }
    if !rules.fast {
        return put_shared(object);
    }
    let put = threads::put(rules.pool, object, rules.cached).or_else(|object| {
        // the thread's first put to this pool
        if let Some(pool) = object.pool() {
            Arc::clone(pool).register_thread();
        }
        threads::put(rules.pool, object, rules.cached)
    });
    match put {
        Ok(true) => {}
        Ok(false) => finish_put(rules.pool),
        // the thread is ending and has no magazines any more
        Err(object) => put_shared(object),
    }
}

#[cold]
fn put_shared(object: Object) {
    if let Some(pool) = object.pool().map(Arc::clone) {
        pool.put_shared(object);
    }
}
