//! The callbacks of [`PoolBuilder::on_slab`](crate::PoolBuilder::on_slab): a device registers the pool's memory.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind};
use std::ptr::NonNull;

type Register = dyn Fn(NonNull<[u8]>) -> io::Result<()> + Send + Sync;
type Unregister = dyn Fn(NonNull<[u8]>) + Send + Sync;

pub(crate) struct SlabCallbacks {
    register: Box<Register>,
    unregister: Box<Unregister>,
}

// the pool depends on no state of the callbacks, and catches their panics
impl UnwindSafe for SlabCallbacks {}
impl RefUnwindSafe for SlabCallbacks {}

impl SlabCallbacks {
    pub(crate) fn new(
        register: impl Fn(NonNull<[u8]>) -> io::Result<()> + Send + Sync + 'static,
        unregister: impl Fn(NonNull<[u8]>) + Send + Sync + 'static,
    ) -> Self {
        Self {
            register: Box::new(register),
            unregister: Box::new(unregister),
        }
    }

    /// A panic is an error: the request that needs the memory ends in order, and requests that wait are served.
    pub(crate) fn register(&self, memory: NonNull<[u8]>) -> io::Result<()> {
        catch_unwind(AssertUnwindSafe(|| (self.register)(memory)))
            .unwrap_or_else(|_| Err(io::Error::other("the callback panicked")))
    }

    /// Returns false if the callback panicked, after which the memory may still be registered.
    #[must_use]
    pub(crate) fn unregister(&self, memory: NonNull<[u8]>) -> bool {
        catch_unwind(AssertUnwindSafe(|| (self.unregister)(memory))).is_ok()
    }
}

impl fmt::Debug for SlabCallbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlabCallbacks").finish_non_exhaustive()
    }
}
