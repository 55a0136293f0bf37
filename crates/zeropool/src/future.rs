//! A request as a future, for any runtime.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::buffer::Buffer;
use crate::engine::Grant;
use crate::error::GetError;
use crate::pool::BufferPool;
use crate::wait::Waiter;

/// The future of [`BufferPool::get_async`].
///
/// It is queued when it is first polled. Dropping it cancels the request; a buffer that was granted meanwhile goes to the
/// next request.
#[derive(Debug)]
#[must_use = "a future does nothing until it is polled"]
pub struct Get {
    pool: BufferPool,
    len: usize,
    queued: QueuedRequest,
}

/// The request in the pool's queue, once it is there.
struct QueuedRequest(Option<Arc<Waiter<Grant>>>);

impl std::fmt::Debug for QueuedRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("QueuedRequest")
            .field(&self.0.is_some())
            .finish()
    }
}

impl BufferPool {
    /// Gets a buffer of `len` bytes of unspecified content, on any runtime. Futures and blocked threads wait in one
    /// queue, first in, first out. The future holds a handle of the pool.
    ///
    /// It resolves to a [`GetError`] where [`get`](Self::get) panics.
    ///
    /// New memory is mapped by the polling thread, in a few system calls.
    pub fn get_async(&self, len: usize) -> Get {
        Get {
            pool: self.clone(),
            len,
            queued: QueuedRequest(None),
        }
    }
}

impl Future for Get {
    type Output = Result<Buffer, GetError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let engine = this.pool.engine();
        let class = engine.class(this.len)?;
        // the first time only: a request that is queued keeps its place
        if this.queued.0.is_none()
            && let Some(object) = engine.hit(class, this.len)
        {
            return Poll::Ready(Ok(Buffer::new(object, this.len)));
        }
        let object = engine.poll(&mut this.queued.0, class, this.len, context.waker());
        object.map_ok(|object| Buffer::new(object, this.len))
    }
}

impl Drop for Get {
    fn drop(&mut self) {
        if let Some(waiter) = self.queued.0.take() {
            self.pool.engine().abandon(&waiter);
        }
    }
}
