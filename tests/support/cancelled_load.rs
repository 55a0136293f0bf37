//! A load that is cancelled while its bytes arrive.

use std::thread;
use std::time::{Duration, Instant};

use anamnesis::load::RemoteLoader;
use anamnesis::{CancelToken, Checkpoint, ErrorKind, load};
use zeropool::BufferPool;

/// Loads the checkpoint, and cancels the load after this time: it ends soon, with the error of a cancelled call and without
/// memory.
pub fn assert_cancelled_soon(checkpoint: &Checkpoint, loader: RemoteLoader, after: Duration) {
    let (pool, token) = (BufferPool::new(), CancelToken::new());
    let canceller = token.clone();
    let cancelled = thread::spawn(move || {
        thread::sleep(after);
        canceller.cancel();
        Instant::now()
    });
    let load = load(checkpoint).loader(loader).pool(&pool).cancel(&token);
    let error = load.run().unwrap_err();
    let since = cancelled.join().unwrap().elapsed();
    assert!(matches!(error.kind(), ErrorKind::Cancelled), "{error}");
    assert!(since < Duration::from_millis(500), "{since:?}");
    assert_eq!(pool.stats().in_use, 0);
}
