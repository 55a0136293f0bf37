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

/// A buffer to come; see [`BufferPool::get_async`].
///
/// It takes its place in the queue when first polled. Dropping it leaves the queue, and passes a buffer on that had
/// come already.
#[derive(Debug)]
#[must_use = "a future does nothing until it is polled"]
pub struct Get {
    pool: BufferPool,
    len: usize,
    place: Place,
}

/// Where the request stands in the queue, if it does.
struct Place(Option<Arc<Waiter<Grant>>>);

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Queued" } else { "Free" })
    }
}

impl Get {
    pub(crate) fn new(pool: BufferPool, len: usize) -> Self {
        Self {
            pool,
            len,
            place: Place(None),
        }
    }
}

impl Future for Get {
    type Output = Result<Buffer, GetError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let engine = this.pool.engine();
        let class = engine.class(this.len)?;
        if this.place.0.is_none()
            && let Some(block) = engine.hit(class, this.len)
        {
            return Poll::Ready(Ok(Buffer::new(block, this.len)));
        }
        let block = engine.poll(&mut this.place.0, class, this.len, context.waker());
        block.map_ok(|block| Buffer::new(block, this.len))
    }
}

impl Drop for Get {
    fn drop(&mut self) {
        if let Some(waiter) = self.place.0.take() {
            self.pool.engine().abandon(&waiter);
        }
    }
}
