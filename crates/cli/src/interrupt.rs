//! SIGINT and SIGTERM. `ctrlc` runs the handler on a thread of its own, so that it may lock and allocate.

use std::ops::ControlFlow;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use anamnesis::CancelToken;
use indicatif::ProgressBar;

static TOKEN: LazyLock<CancelToken> = LazyLock::new(CancelToken::new);

/// Installs a handler that clears `bar` and exits with status 130 at once: for work that leaves nothing to clean up.
pub(crate) fn exit_and_clear(bar: &ProgressBar) {
    bar_on_screen().replace(bar.clone());
    // fails if an earlier call installed this handler, which reads the bar when it runs
    let _ = ctrlc::set_handler(|| {
        bar_on_screen()
            .take()
            .iter()
            .for_each(ProgressBar::finish_and_clear);
        std::process::exit(130);
    });
}

/// Installs a handler that cancels [`token`], which [`requested`] reads: for work that has to stop in order.
pub(crate) fn set_flag() {
    // a handler can be set once per process; a verb that repeats its work keeps the first
    let _ = ctrlc::set_handler(|| TOKEN.cancel());
}

/// Whether an interrupt was received since [`set_flag`].
pub(crate) fn requested() -> bool {
    TOKEN.is_cancelled()
}

/// The token that an interrupt cancels, for the runs of the library.
pub(crate) fn token() -> &'static CancelToken {
    &TOKEN
}

/// [`requested`] as the answer of a loader's callback: `Break` after an interrupt.
pub(crate) fn control_flow() -> ControlFlow<()> {
    if requested() {
        ControlFlow::Break(())
    } else {
        ControlFlow::Continue(())
    }
}

/// The progress bar that the handler of [`exit_and_clear`] clears.
fn bar_on_screen() -> MutexGuard<'static, Option<ProgressBar>> {
    static BAR: Mutex<Option<ProgressBar>> = Mutex::new(None);
    BAR.lock().unwrap_or_else(PoisonError::into_inner)
}
