//! A pool's magazines by thread, and a thread's magazines by pool.
//!
//! The pool's side is [`ThreadCaches`]: every thread that used the pool has a magazine in it, and the magazine of a thread
//! that has ended is reused. The thread's side is the thread-local table `CACHES`, which finds the thread's magazine of
//! a pool by the pool's number. So the free buffers of a thread that sleeps, or has ended, remain available to others.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use crate::class::Class;
use crate::magazine::registry::Magazines;
use crate::magazine::tls;
use crate::magazine::{MagazineOwner, MagazineSettings};
use crate::slab::{Object, OwningPool};
use crate::stack::Stacks;
use crate::sync::{Mutex, thread_local};

/// All magazines of a pool.
pub(crate) struct ThreadCaches {
    pool: u64,
    magazines: Mutex<Magazines>,
    stacks: Arc<Stacks>,
}

impl ThreadCaches {
    pub(crate) fn new(pool: u64, settings: MagazineSettings, stacks: Arc<Stacks>) -> Self {
        Self {
            pool,
            magazines: Mutex::new(Magazines::new(settings)),
            stacks,
        }
    }

    /// A free object for `len` bytes, counted: from the calling thread's magazine, the stacks or another magazine. `None`
    /// as well while the thread is ending.
    pub(crate) fn get<P: OwningPool + 'static>(
        &self,
        pool: &Arc<P>,
        class: Class,
        len: usize,
    ) -> Option<Object> {
        let get = |cache: &ThreadCache, ()| cache.get(self, class, len);
        match with_cache(self.pool, (), get) {
            Ok(object) => object,
            Err(()) => {
                self.register(pool);
                with_cache(self.pool, (), get).ok().flatten()
            }
        }
    }

    /// Creates the calling thread's magazine.
    #[cold]
    pub(crate) fn register<P: OwningPool + 'static>(&self, pool: &Arc<P>) {
        // `Err`: the thread is ending and gets no magazine
        let _ = CACHES.try_with(|caches| {
            let (owner, thread) = self.magazines.lock().attach(self.pool);
            let mut caches = caches.borrow_mut();
            // entries of closed pools are removed here, the only place where the table grows; each holds a magazine and
            // the stacks
            caches.retain(|cache| !cache.owner.magazine().flags().is_closed());
            let pool: Weak<P> = Arc::downgrade(pool);
            caches.push(ThreadCache {
                owner,
                thread,
                stacks: Arc::clone(&self.stacks),
                pool,
            });
        });
    }

    /// An object of this class from any thread's magazine.
    pub(crate) fn take_remote(&self, class: Class) -> Option<Object> {
        let mut magazines = self.magazines.lock();
        let object = magazines.take_remote(class);
        if object.is_some() || !magazines.was_refused() {
            return object;
        }
        // `membarrier` was refused, but the calling thread's own magazine needs none
        let _ = with_cache(self.pool, (), |cache, ()| cache.owner.complete_revocation());
        magazines.take_remote(class)
    }

    /// See [`Magazines::revoke_all`]. Called after a flag of the pool was set.
    pub(crate) fn revoke_all(&self) {
        self.magazines.lock().revoke_all();
    }

    /// Number of objects of this class in magazines.
    pub(crate) fn objects(&self, class: Class) -> usize {
        self.magazines.lock().objects(class)
    }

    /// Hits, and the pages of them that were touched before.
    pub(crate) fn counted(&self) -> (u64, u64) {
        self.magazines.lock().counted()
    }
}

thread_local! {
    /// The calling thread's caches, one per pool that it used. Numbers of pools are never reused.
    static CACHES: RefCell<Vec<ThreadCache>> = const { RefCell::new(Vec::new()) };
}

/// A thread's cache of one pool.
struct ThreadCache {
    owner: MagazineOwner,
    /// The thread's number in the pool, which selects its shard of the stacks.
    thread: usize,
    /// Takes what does not fit into the magazine. Held here so that a put touches no reference count (experiment 9).
    stacks: Arc<Stacks>,
    pool: Weak<dyn OwningPool>,
}

impl ThreadCache {
    fn get(&self, caches: &ThreadCaches, class: Class, len: usize) -> Option<Object> {
        // setting the bias needs the registry's lock, which the fast path avoids: it returns no object and the bias is
        // set here
        if self.owner.may_rebias() {
            caches.magazines.lock().bias(&self.owner);
        }
        self.owner.get(class, len).or_else(|| {
            let object = self
                .stacks
                // the thread's own shard first, then magazines of other threads, which may cost a `membarrier`
                .pop(self.thread, class)
                .or_else(|| caches.take_remote(class))?;
            self.owner.count(&object, len);
            Some(object)
        })
    }

    /// Returns false if a request waits or the pool is closed.
    fn put(&self, object: Object, cached: bool) -> bool {
        let put = if cached {
            self.owner.magazine().put(object)
        } else {
            Err(object)
        };
        put.unwrap_or_else(|object| {
            self.stacks.push(self.thread, object);
            self.owner.magazine().flags().allows_fast_path()
        })
    }
}

/// Runs `with` on the calling thread's cache of the pool, and enters its magazine into the fast table of [`tls`]. Returns
/// `what` if the thread has no such cache.
fn with_cache<W, R>(pool: u64, what: W, with: impl FnOnce(&ThreadCache, W) -> R) -> Result<R, W> {
    let mut what = Some(what);
    let result = CACHES.try_with(|caches| {
        let caches = caches.borrow();
        let cache = caches.iter().find(|cache| cache.owner.pool() == pool)?;
        tls::attach(&cache.owner);
        what.take().map(|what| with(cache, what))
    });
    match (result.ok().flatten(), what) {
        (Some(result), _) => Ok(result),
        (None, Some(what)) => Err(what),
        (None, None) => unreachable!("`what` is taken only to run `with`, which returns a result"),
    }
}

/// Puts an object into the calling thread's magazine of the pool, if `cached`, or onto a stack. `Ok(false)`: a request
/// waits, or the pool is closed. Returns the object if the thread has no magazine of the pool.
pub(crate) fn put(pool: u64, object: Object, cached: bool) -> Result<bool, Object> {
    with_cache(pool, object, |cache, object| cache.put(object, cached))
}

/// The pool with this number, if the calling thread has a magazine of it and the pool still exists.
pub(crate) fn pool(pool: u64) -> Option<Arc<dyn OwningPool>> {
    with_cache(pool, (), |cache, ()| cache.pool.upgrade())
        .ok()
        .flatten()
}
