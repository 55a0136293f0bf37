//! The runtime of all requests.

use std::sync::OnceLock;

use tokio::runtime::{Builder, Runtime};

/// One runtime per process, started by the first request. Its threads only wait and copy. Callers block on a condition
/// variable or a channel of `std` and never on a future, which panics in a thread of another runtime.
pub(crate) fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("anamnesis-remote")
            .enable_all()
            .build()
            .expect("threads and an event queue can be made")
    })
}
