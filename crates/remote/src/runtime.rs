//! The runtime of all requests.

use std::sync::{Mutex, PoisonError};

use tokio::runtime::{Builder, Runtime};

/// A value that each process makes for itself. The child of a `fork` has none of its parent's threads, so that requests on its
/// parent's runtime and connections would never end.
pub(crate) struct PerProcess<T: 'static>(Mutex<Option<(u32, &'static T)>>);

impl<T> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(None))
    }

    pub(crate) fn get(&self, make: impl FnOnce() -> T) -> &'static T {
        let own = std::process::id();
        let mut value = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match *value {
            Some((process, made)) if process == own => made,
            _ => {
                // for the rest of the process, as a static is
                let made: &'static T = Box::leak(Box::new(make()));
                *value = Some((own, made));
                made
            }
        }
    }
}

/// One runtime per process, started by the first request. Its threads only wait and copy. Callers block on a condition
/// variable or a channel of `std` and never on a future, which panics in a thread of another runtime.
pub(crate) fn runtime() -> &'static Runtime {
    static RUNTIME: PerProcess<Runtime> = PerProcess::new();
    RUNTIME.get(|| {
        Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("anamnesis-remote")
            .enable_all()
            .build()
            .expect("threads and an event queue can be made")
    })
}
