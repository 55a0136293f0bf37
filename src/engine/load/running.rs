//! A load on a thread of its own, and the handle that tensors are taken from.
//!
//! The thread hands over one tensor at a time through a channel without room: it loads one, and blocks until the handle
//! takes it or is dropped. The bytes that the loader reads meanwhile are bounded by its read-ahead. After the last tensor,
//! or an error, which is sent as the last item, the thread ends and so closes the channel. The handle joins the thread at
//! that point, or when it is dropped.

use std::fmt;
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, PoisonError};
use std::task::Poll;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::loaded::{LoadOutcome, LoadedTensor, TensorStream};
use super::{IoReport, LoaderChoice};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::progress::{Progress, RunMonitor};
use crate::base::sync::PoisonMutex;

/// Tensors that are loaded one by one on a thread of their own, while the next ones are read. Made by
/// [`Load::start`](super::Load::start).
///
/// The iterator ends after the last tensor, or after the first error. Memory is bounded by
/// [`read_ahead`](super::Load::read_ahead), one tensor that is complete, and what the caller keeps: a load whose tensors are
/// not taken stops to read. When the iterator has ended, and when this value was dropped, everything that the load started
/// has ended and no buffer is kept, except the buffers of tensors that the caller has.
///
/// Dropping it cancels the load and waits until it has noticed, within about 100 ms, or after the system call or the callback
/// in progress. A panic on the thread, of a callback or a filter of the builder, continues on the caller's, out of
/// [`next`](Iterator::next), [`next_timeout`](Self::next_timeout) or the drop (unless that thread is panicking itself).
pub struct RunningLoad {
    /// `None` after the end.
    tensors: Option<Receiver<Result<LoadedTensor<'static>>>>,
    thread: Option<JoinHandle<()>>,
    monitor: Arc<RunMonitor>,
    outcome: Arc<SharedOutcome>,
    /// A tensor arrived after the load was cancelled.
    has_dropped_one: bool,
}

/// As far as it is known.
type SharedOutcome = PoisonMutex<Option<LoadOutcome>>;

/// The end of the load's thread.
pub(super) struct TensorSender {
    tensors: SyncSender<Result<LoadedTensor<'static>>>,
    outcome: Arc<SharedOutcome>,
}

impl RunningLoad {
    /// Starts the thread, which runs `load`.
    pub(super) fn spawn(
        monitor: Arc<RunMonitor>,
        load: impl FnOnce(&TensorSender) -> Result<()> + Send + 'static,
    ) -> Result<Self> {
        // without room, so that one tensor at most is complete and not taken
        let (sender, tensors) = sync_channel(0);
        let outcome = Arc::new(SharedOutcome::default());
        let sender = TensorSender {
            tensors: sender,
            outcome: Arc::clone(&outcome),
        };
        let thread = thread::Builder::new().name("load".into()).spawn(move || {
            if let Err(error) = load(&sender) {
                // fails if the handle was dropped, which needs no error any more
                let _ = sender.tensors.send(Err(error));
            }
        })?;
        Ok(Self {
            tensors: Some(tensors),
            thread: Some(thread),
            monitor,
            outcome,
            has_dropped_one: false,
        })
    }

    /// Like [`next`](Iterator::next), but waits at most `timeout`: [`Poll::Pending`] if there is no tensor yet, so that the
    /// caller can do something else, such as looking for a signal, and call again.
    pub fn next_timeout(
        &mut self,
        timeout: Duration,
    ) -> Poll<Option<Result<LoadedTensor<'static>>>> {
        // a timeout that overflows the clock is no deadline
        self.receive(Instant::now().checked_add(timeout))
    }

    fn receive(
        &mut self,
        deadline: Option<Instant>,
    ) -> Poll<Option<Result<LoadedTensor<'static>>>> {
        loop {
            let Some(tensors) = &self.tensors else {
                return Poll::Ready(None);
            };
            let received = match deadline {
                None => tensors.recv().map_err(RecvTimeoutError::from),
                Some(at) => tensors.recv_timeout(at.saturating_duration_since(Instant::now())),
            };
            return Poll::Ready(match received {
                // complete before the load noticed that it is cancelled
                Ok(Ok(_)) if self.monitor.is_stopped() => {
                    self.has_dropped_one = true;
                    continue;
                }
                Ok(Ok(tensor)) => Some(Ok(tensor)),
                Ok(Err(error)) => {
                    self.join();
                    Some(Err(error))
                }
                Err(RecvTimeoutError::Timeout) => return Poll::Pending,
                Err(RecvTimeoutError::Disconnected) => {
                    self.join();
                    // the last tensor was dropped: not the end of a load of all of them
                    self.has_dropped_one
                        .then(|| Err(Error::new(ErrorKind::Cancelled)))
                }
            });
        }
    }

    /// How much is loaded: bytes of tensors, also of those that were not taken yet. 0 of 0 until the load has planned its
    /// reads.
    pub fn progress(&self) -> Progress {
        self.monitor.progress()
    }

    /// Cancels this load, and no other one of the same builder. Tensors that were not taken are dropped, and the next item
    /// is [`ErrorKind::Cancelled`], unless all tensors were taken before. Does not wait; the
    /// [token of the builder](super::Load::cancel) cancels from other threads.
    pub fn cancel(&self) {
        self.monitor.stop();
    }

    /// The loader, and the reason why it was chosen; `None` until the load has chosen it.
    pub fn choice(&self) -> Option<LoaderChoice> {
        let outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.as_ref().map(|outcome| outcome.choice.clone())
    }

    /// How the loader read the tensors that are loaded so far; `None` until the first one, and if it does not report it.
    pub fn report(&self) -> Option<IoReport> {
        let outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.as_ref().and_then(|outcome| outcome.report.clone())
    }

    /// Ends the load: closes the channel, waits for the thread, and continues its panic.
    fn join(&mut self) {
        // first: the thread may be blocked in handing over a tensor
        self.tensors = None;
        if let Some(thread) = self.thread.take()
            && let Err(panic) = thread.join()
            && !thread::panicking()
        {
            resume_unwind(panic);
        }
    }
}

impl Iterator for RunningLoad {
    type Item = Result<LoadedTensor<'static>>;

    /// The next tensor in the order of the load; blocks until it is loaded.
    fn next(&mut self) -> Option<Self::Item> {
        match self.receive(None) {
            Poll::Ready(item) => item,
            Poll::Pending => unreachable!("only a deadline ends the wait"),
        }
    }
}

impl std::iter::FusedIterator for RunningLoad {}

impl Drop for RunningLoad {
    fn drop(&mut self) {
        self.monitor.stop();
        self.join();
    }
}

impl fmt::Debug for RunningLoad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningLoad")
            .field("progress", &self.progress())
            .field("ended", &self.tensors.is_none())
            .finish_non_exhaustive()
    }
}

impl TensorSender {
    /// Hands over every tensor, until the handle is dropped.
    ///
    /// # Errors
    /// The first of the stream, after which nothing is handed over.
    pub(super) fn send_all(&self, tensors: &mut TensorStream<'_, 'static>) -> Result<()> {
        self.publish(tensors.choice().clone(), None);
        while let Some(tensor) = tensors.next() {
            self.publish(tensors.choice().clone(), tensors.report());
            if self.tensors.send(Ok(tensor?)).is_err() {
                break;
            }
        }
        Ok(())
    }

    fn publish(&self, choice: LoaderChoice, report: Option<IoReport>) {
        let outcome = LoadOutcome { choice, report };
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
    }
}
