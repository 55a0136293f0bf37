//! The runtime of all requests.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::error::{Error, ErrorKind, Result};

/// A value that each process makes for itself. The child of a `fork` has none of its parent's threads, so that requests on its
/// parent's runtime and connections would never end.
pub(crate) struct PerProcess<T: 'static>(Mutex<Option<(u32, &'static T)>>);

impl<T> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(None))
    }

    pub(crate) fn get(&self, make: impl FnOnce() -> T) -> &'static T {
        match self.try_get(|| Ok::<_, std::convert::Infallible>(make())) {
            Ok(made) => made,
            Err(never) => match never {},
        }
    }

    /// The value, which is made by the next call if it cannot be made by this one.
    pub(crate) fn try_get<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&'static T, E> {
        let own = std::process::id();
        let mut value = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match *value {
            Some((process, made)) if process == own => Ok(made),
            _ => {
                // for the rest of the process, as a static is
                let made: &'static T = Box::leak(Box::new(make()?));
                *value = Some((own, made));
                Ok(made)
            }
        }
    }
}

/// One runtime per process, started by the first request. Its threads only wait and copy. Callers block on a condition
/// variable or a channel of `std` and never on a future, which panics in a thread of another runtime.
///
/// # Errors
/// The process or the system has no descriptor or thread left.
pub(crate) fn runtime() -> Result<&'static Runtime> {
    static RUNTIME: PerProcess<Runtime> = PerProcess::new();
    let made = RUNTIME.try_get(|| {
        Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("anamnesis-remote")
            .enable_all()
            .build()
    });
    made.map_err(|e| {
        let what = format!(
            "requests need threads and descriptors, and there are none left: {e}; raise the limit (`ulimit -n`)"
        );
        Error::new(ErrorKind::Network, what)
    })
}

/// How often a waiting thread looks whether it is to wait on.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// Runs a request on the runtime, while this thread waits.
pub(crate) fn wait<T: Send + 'static>(
    request: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    wait_while(request, &mut || true)
}

/// Like [`wait`], but ends the request with an error once `wanted` returns false.
pub(crate) fn wait_while<T: Send + 'static>(
    request: impl Future<Output = Result<T>> + Send + 'static,
    wanted: &mut dyn FnMut() -> bool,
) -> Result<T> {
    let (send, receive) = mpsc::sync_channel(1);
    let task = runtime()?.spawn(async move {
        // without a receiver the request is not wanted any more
        let _ = send.send(request.await);
    });
    loop {
        match receive.recv_timeout(LOOK) {
            Ok(outcome) => return outcome,
            Err(RecvTimeoutError::Timeout) if wanted() => {}
            Err(RecvTimeoutError::Timeout) => {
                task.abort();
                return Err(Error::cancelled());
            }
            Err(RecvTimeoutError::Disconnected) => {
                let what = "a request ended without an answer";
                return Err(Error::new(ErrorKind::Network, what));
            }
        }
    }
}
