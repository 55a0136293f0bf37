//! Ctrl-C, and requests to end: what is shown is cleared, what was begun is removed.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use indicatif::ProgressBar;

static ASKED: AtomicBool = AtomicBool::new(false);

/// From now on an interrupt clears the bar and ends the program at once.
pub(crate) fn ends(bar: &ProgressBar) {
    shown().replace(bar.clone());
    // fails for the second bar of a run: the handler is there already
    let _ = ctrlc::set_handler(|| {
        shown()
            .take()
            .iter()
            .for_each(ProgressBar::finish_and_clear);
        std::process::exit(130);
    });
}

/// From now on an interrupt is only noted: see [`asked`].
pub(crate) fn is_noted() {
    let _ = ctrlc::set_handler(|| ASKED.store(true, Ordering::Relaxed));
}

/// Whether there was an interrupt.
pub(crate) fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// The same, for who watches something that may be stopped.
pub(crate) fn flow() -> ControlFlow<()> {
    if asked() {
        ControlFlow::Break(())
    } else {
        ControlFlow::Continue(())
    }
}

/// The bar that an interrupt clears.
fn shown() -> MutexGuard<'static, Option<ProgressBar>> {
    static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
}
