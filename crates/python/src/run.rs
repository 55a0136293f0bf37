//! Calls that take long: on a thread of their own, without the interpreter lock, and interruptible.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use anamnesis::{CancelToken, Progress, Result, again_if_replaced};
use pyo3::prelude::*;

use crate::errors::{exception, is_replaced};

/// How often the calling thread checks for signals and reports progress: an interrupt ends a run within about 100 ms,
/// which is also the library's own bound.
pub(crate) const POLL: Duration = Duration::from_millis(50);

/// The state that the thread of a run reports and obeys.
#[derive(Default)]
pub(crate) struct RunState {
    pub(crate) cancel: CancelToken,
    done: AtomicU64,
    total: AtomicU64,
}

impl RunState {
    /// The callback for the library's builders.
    pub(crate) fn on_progress(&self, progress: Progress) {
        self.done.store(progress.done, Ordering::Relaxed);
        self.total.store(progress.total, Ordering::Relaxed);
    }

    fn report(&self, py: Python<'_>, callback: Option<&Py<PyAny>>) -> PyResult<()> {
        let (done, total) = (
            self.done.load(Ordering::Relaxed),
            self.total.load(Ordering::Relaxed),
        );
        if let Some(callback) = callback {
            callback.call1(py, (done, total))?;
        }
        Ok(())
    }
}

/// Runs `work` on a thread of its own, without the interpreter lock. Meanwhile this thread handles signals and invokes the
/// callback; an exception of either (`KeyboardInterrupt`) cancels the work, and is raised when it has ended.
pub(crate) fn interruptible<T: Send>(
    py: Python<'_>,
    callback: Option<&Py<PyAny>>,
    work: impl FnOnce(&Arc<RunState>) -> Result<T> + Send,
) -> PyResult<T> {
    let state = Arc::new(RunState::default());
    thread::scope(|scope| {
        let (send, receive) = mpsc::channel();
        // a receiver is not `Sync`, which the closure of `detach` requires
        let receive = Mutex::new(receive);
        let state = &state;
        let worker = scope.spawn(move || {
            // the receiver lives until this thread has ended
            let _ = send.send(work(state));
        });
        let mut raised = None;
        loop {
            let received = py.detach(|| {
                let receive = receive.lock().unwrap_or_else(PoisonError::into_inner);
                receive.recv_timeout(POLL)
            });
            match received {
                Ok(outcome) => {
                    if let Some(raised) = raised {
                        return Err(raised);
                    }
                    let outcome = outcome.map_err(|error| exception(py, &error))?;
                    // once more, so that a progress bar ends at its end
                    state.report(py, callback)?;
                    return Ok(outcome);
                }
                Err(mpsc::RecvTimeoutError::Timeout) if raised.is_none() => {
                    let failed = py.check_signals();
                    if let Err(failed) = failed.and_then(|()| state.report(py, callback)) {
                        state.cancel.cancel();
                        // the run is waited for: it borrows what this frame owns, and its threads must not write to
                        // memory that Python frees
                        raised = Some(failed);
                    }
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    // a panic of the library is a bug of it, and PyO3 raises it as PanicException
                    match worker.join() {
                        Err(panic) => std::panic::resume_unwind(panic),
                        Ok(()) => unreachable!("the worker sends before it ends"),
                    }
                }
            }
        }
    })
}

/// Calls what opens a checkpoint, and has no effect if it fails, again while another process replaces the checkpoint.
#[pyfunction]
pub(crate) fn again(py: Python<'_>, call: Py<PyAny>) -> PyResult<Py<PyAny>> {
    let is_replaced = |error: &PyErr| Python::attach(|py| is_replaced(py, error));
    // other threads run in the pauses
    py.detach(|| again_if_replaced(is_replaced, || Python::attach(|py| call.call0(py))))
}
