//! Progress, cancellation and the first error of a run: what the workers of a load or a conversion share.
//!
//! Builders keep a [`RunControl`], their progress callback and cancel token. One [`RunProgress`] lives as long as the run.
//! Each worker opens a [`TaskProgress`] for the tensor or part that it works on, advances it, and stops at the next check
//! once the run is cancelled or another worker has failed. Counters are relaxed atomics: they are reported, never used to
//! publish data.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::sync::{AtomicBool, AtomicU64, PoisonMutex};

/// How much of a run is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of output that are complete.
    pub done: u64,
    /// Bytes of output in all.
    pub total: u64,
}

/// Cancels runs from another thread, a signal handler or a progress callback. Clones share one state; a cancelled token
/// stays cancelled.
///
/// ```
/// use anamnesis::{CancelToken, Checkpoint, ErrorKind, load};
///
/// let token = CancelToken::new();
/// let checkpoint = Checkpoint::open("fixtures/safetensors/sharded")?;
/// token.cancel();
/// let error = load(&checkpoint).cancel(&token).run().unwrap_err();
/// assert!(matches!(error.kind(), ErrorKind::Cancelled));
/// # Ok::<(), anamnesis::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// A token that is not cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancels every run that was given this token or a clone of it. A run notices within about 100 ms, or after the
    /// system call in progress, and returns [`ErrorKind::Cancelled`].
    pub fn cancel(&self) {
        // relaxed: the token publishes no other data
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether [`cancel`](Self::cancel) was called.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The progress callback and cancel token of a builder. Clones share the callback.
#[derive(Clone, Default)]
pub(crate) struct RunControl<'c> {
    callback: Option<Callback<'c>>,
    token: Option<CancelToken>,
    monitor: Option<Arc<RunMonitor>>,
}

/// The state that a run shares with a caller's handle of it.
#[derive(Debug, Default)]
pub(crate) struct RunMonitor {
    total: AtomicU64,
    done: AtomicU64,
    stop: CancelToken,
}

impl RunMonitor {
    /// How much of the run is complete; 0 of 0 until the total is known.
    pub(crate) fn progress(&self) -> Progress {
        Progress {
            done: self.done.load(Ordering::Relaxed),
            total: self.total.load(Ordering::Relaxed),
        }
    }

    /// Cancels the run, and no other run of the same token.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.is_cancelled()
    }
}

/// Shared because builders are cloned. A trait object over the mutex, instead of a mutex over a trait object, keeps the
/// builders covariant in `'c`.
type Callback<'c> = Arc<dyn LockedCallback + 'c>;

/// A progress callback behind a mutex: any worker may invoke it, one at a time.
trait LockedCallback: Send + Sync {
    /// Invokes the callback with what `progress` returns, unless that is `None` or another thread holds the lock.
    fn try_call(&self, progress: &mut dyn FnMut() -> Option<Progress>);

    /// Invokes the callback.
    fn call(&self, progress: Progress);
}

impl<F: FnMut(Progress) + Send> LockedCallback for PoisonMutex<F> {
    fn try_call(&self, progress: &mut dyn FnMut() -> Option<Progress>) {
        // a worker that finds the callback in use does not wait: another worker is reporting, and a slow callback
        // must not stop the load
        if let Ok(mut callback) = self.try_lock()
            && let Some(progress) = progress()
        {
            callback(progress);
        }
    }

    fn call(&self, progress: Progress) {
        // a callback that has panicked is not invoked again
        if let Ok(mut callback) = self.lock() {
            callback(progress);
        }
    }
}

impl<'c> RunControl<'c> {
    pub(crate) fn set_progress(&mut self, callback: impl FnMut(Progress) + Send + 'c) {
        self.callback = Some(Arc::new(PoisonMutex::new(callback)));
    }

    pub(crate) fn set_cancel(&mut self, token: &CancelToken) {
        self.token = Some(token.clone());
    }

    /// The caller's token, for runs that are part of this one.
    pub(crate) fn token(&self) -> Option<&CancelToken> {
        self.token.as_ref()
    }

    /// A new monitor of the next run.
    pub(crate) fn monitor(&mut self) -> Arc<RunMonitor> {
        Arc::clone(self.monitor.insert(Arc::default()))
    }

    /// The error of a cancelled run.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_cancelled() {
            return Err(Error::new(ErrorKind::Cancelled));
        }
        Ok(())
    }

    fn is_cancelled(&self) -> bool {
        let stopped = |monitor: &Arc<RunMonitor>| monitor.is_stopped();
        self.token.as_ref().is_some_and(CancelToken::is_cancelled)
            || self.monitor.as_ref().is_some_and(stopped)
    }
}

/// Bytes of one read or copy between two checks for cancellation: a few milliseconds from a warm page cache, so that a
/// cancelled run ends promptly, and rarely enough that the check costs nothing.
pub(crate) const CHECK_INTERVAL: usize = 16 << 20;

/// Bytes of output between two calls of the progress callback.
const REPORT_INTERVAL: u64 = 4 << 20;

/// `Err(Cancelled)` for `Break`.
pub(crate) fn check_cancelled(flow: ControlFlow<()>) -> Result<()> {
    if flow.is_break() {
        Err(Error::new(ErrorKind::Cancelled))
    } else {
        Ok(())
    }
}

/// Progress of a whole run, shared by its workers.
pub(crate) struct RunProgress<'c> {
    total: u64,
    /// Bytes of output that are complete, if no monitor counts them.
    done: AtomicU64,
    /// Value of `done` from which on the callback is invoked again.
    next_report: AtomicU64,
    control: RunControl<'c>,
    pub(crate) failure: FirstError,
}

impl<'c> RunProgress<'c> {
    /// Progress of a run that makes `total` bytes.
    pub(crate) fn new(total: u64, control: &RunControl<'c>) -> Self {
        if let Some(monitor) = &control.monitor {
            monitor.total.store(total, Ordering::Relaxed);
        }
        Self {
            total,
            done: AtomicU64::new(0),
            next_report: AtomicU64::new(0),
            control: control.clone(),
            failure: FirstError::default(),
        }
    }

    /// Starts a task that makes `nbytes` bytes.
    pub(crate) fn task(&self, nbytes: u64) -> TaskProgress<'_, 'c> {
        TaskProgress {
            run: self,
            nbytes,
            done: 0,
            unchecked: 0,
        }
    }

    /// Adds `nbytes` complete bytes, and reports them if the reporting interval has passed.
    ///
    /// # Errors
    /// `Cancelled` if the run is cancelled.
    pub(crate) fn add(&self, nbytes: u64) -> Result<()> {
        // relaxed: tasks own disjoint bytes, so the sum is exact, and no thread reads memory because of its value
        let done = self.done().fetch_add(nbytes, Ordering::Relaxed) + nbytes;
        let flow = if done < self.next_report.load(Ordering::Relaxed) {
            self.cancelled()
        } else {
            self.report(done, false)
        };
        check_cancelled(flow)
    }

    /// Whether the run continues: `Break` once a worker has failed or the run is cancelled. Called by workers that wait
    /// for bytes or work on one tensor for long. It invokes the callback even if nothing was completed since the last
    /// call, so that a stalled run can be cancelled.
    pub(crate) fn flow(&self) -> ControlFlow<()> {
        if self.failure.is_set() {
            ControlFlow::Break(())
        } else {
            self.report(self.done().load(Ordering::Relaxed), true)
        }
    }

    /// Whether every byte is complete.
    pub(crate) fn is_complete(&self) -> bool {
        self.done().load(Ordering::Relaxed) >= self.total
    }

    /// Reports the end of the run.
    pub(crate) fn finish(&self) {
        if let Some(callback) = &self.control.callback {
            callback.call(Progress {
                done: self.total,
                total: self.total,
            });
        }
    }

    fn done(&self) -> &AtomicU64 {
        let monitor = self.control.monitor.as_ref();
        monitor.map_or(&self.done, |monitor| &monitor.done)
    }

    fn cancelled(&self) -> ControlFlow<()> {
        if self.control.is_cancelled() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    /// Invokes the callback, unless the run is cancelled or another thread is just invoking it, and checks for
    /// cancellation before and after. `forced`: also if the interval has not passed.
    fn report(&self, done: u64, forced: bool) -> ControlFlow<()> {
        self.cancelled()?;
        let Some(callback) = &self.control.callback else {
            return ControlFlow::Continue(());
        };
        callback.try_call(&mut || {
            let next = self.next_report.load(Ordering::Relaxed);
            // the thread that held the lock before may have cancelled the run
            // checked again under the lock, because `add` compared without it
            if self.control.is_cancelled() || done < next && !forced {
                return None;
            }
            // another thread may have reported more since `done` was counted: reported values never decrease
            let done = done.max(next.saturating_sub(REPORT_INTERVAL));
            self.next_report
                .store(done.saturating_add(REPORT_INTERVAL), Ordering::Relaxed);
            let total = self.total;
            Some(Progress { done, total })
        });
        self.cancelled()
    }
}

/// Progress of one tensor or part within a run.
pub(crate) struct TaskProgress<'p, 'c> {
    run: &'p RunProgress<'c>,
    nbytes: u64,
    /// Bytes of `nbytes` that are complete and counted in the run.
    done: u64,
    /// Bytes worked on since the last check for cancellation.
    unchecked: usize,
}

impl TaskProgress<'_, '_> {
    /// Records that `bytes` of the task's bytes are complete. Not reported until the next check or the task's end.
    pub(crate) fn advance_to(&mut self, bytes: u64) {
        let added = self.record(bytes);
        self.run.done().fetch_add(added, Ordering::Relaxed);
    }

    /// Records that `bytes` are complete and returns the increment. Anything beyond `nbytes` is ignored: a loader may
    /// read more than the task needs.
    fn record(&mut self, bytes: u64) -> u64 {
        // never negative: a loader that repeats a read must not make progress run backwards
        let added = bytes.min(self.nbytes).saturating_sub(self.done);
        self.done += added;
        added
    }

    /// Whether the run continues.
    pub(crate) fn flow(&mut self) -> ControlFlow<()> {
        self.unchecked = 0;
        self.run.flow()
    }

    /// Counts `bytes` of work (reading, checking, copying), and checks for cancellation every [`CHECK_INTERVAL`].
    ///
    /// # Errors
    /// `Cancelled`.
    pub(crate) fn worked(&mut self, bytes: usize) -> Result<()> {
        self.unchecked = self.unchecked.saturating_add(bytes);
        if self.unchecked < CHECK_INTERVAL {
            Ok(())
        } else {
            check_cancelled(self.flow())
        }
    }

    /// Copies bytes of the task that begin at `start` in its output, with checks for cancellation in between.
    ///
    /// # Errors
    /// `Cancelled`.
    pub(crate) fn copy(&mut self, start: u64, from: &[u8], out: &mut [u8]) -> Result<()> {
        // in pieces, so that copying a tensor of gigabytes can be cancelled and reports progress
        let mut copied = 0;
        for (from, out) in from
            .chunks(CHECK_INTERVAL)
            .zip(out.chunks_mut(CHECK_INTERVAL))
        {
            out.copy_from_slice(from);
            copied += from.len() as u64;
            self.advance_to(start.saturating_add(copied));
            self.worked(from.len())?;
        }
        Ok(())
    }

    /// Completes the task.
    ///
    /// # Errors
    /// `Cancelled` if the run is cancelled.
    pub(crate) fn finish(mut self) -> Result<()> {
        let added = self.record(self.nbytes);
        self.run.add(added)
    }
}

/// The first error of a run with several workers. The errors of other workers follow from being stopped by it, so only
/// the first is kept.
#[derive(Default)]
pub(crate) struct FirstError {
    is_set: AtomicBool,
    error: PoisonMutex<Option<Error>>,
}

impl FirstError {
    /// Whether a worker has failed, so that the others stop.
    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
    }

    /// Keeps `error` if it is the first.
    pub(crate) fn set(&self, error: Error) {
        // the flag only makes other workers stop sooner; the error itself is published by the mutex, and `outcome` is
        // called after the workers have been joined
        self.is_set.store(true, Ordering::Relaxed);
        self.error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(error);
    }

    /// The outcome of the run: the first error, if there was one.
    pub(crate) fn outcome(&self) -> Result<()> {
        self.error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
            .map_or(Ok(()), Err)
    }
}
