//! Messages and progress of a run: on standard error, or kept for a caller that wants the answer of a verb.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use anamnesis::Progress;

/// Receives the progress of a run, from its threads.
pub(crate) type Listener = Arc<dyn Fn(Progress) + Send + Sync>;

/// The messages of a run that are kept. Verbs report from the thread that runs them.
#[derive(Default)]
struct KeptMessages {
    lines: Vec<String>,
    listener: Option<Listener>,
}

thread_local! {
    static KEPT: RefCell<Option<KeptMessages>> = const { RefCell::new(None) };
}

/// Runs a verb, and keeps the messages of this thread: returns its lines.
pub(crate) fn keep<T>(listener: Option<Listener>, run: impl FnOnce() -> T) -> (T, Vec<String>) {
    /// Ends it also after a panic, since the thread may go on.
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            KEPT.take();
        }
    }

    KEPT.set(Some(KeptMessages {
        listener,
        ..KeptMessages::default()
    }));
    let end = End;
    let value = run();
    let kept = KEPT.take().unwrap_or_default();
    drop(end);
    (value, kept.lines)
}

/// Whether messages of this thread are kept, so that nothing is for a terminal.
pub(crate) fn are_kept() -> bool {
    KEPT.with_borrow(Option::is_some)
}

/// The listener for the progress of this run.
pub(crate) fn listener() -> Option<Listener> {
    KEPT.with_borrow(|kept| kept.as_ref()?.listener.clone())
}

/// Shows a line on standard error, or keeps it.
pub(crate) fn show(line: fmt::Arguments<'_>) {
    let is_kept = KEPT.with_borrow_mut(|kept| match kept {
        Some(kept) => {
            kept.lines.push(line.to_string());
            true
        }
        None => false,
    });
    if !is_kept {
        // in one write: standard error is unbuffered, and other processes may write to it too. A failed write cannot be reported
        let _ = io::stderr()
            .lock()
            .write_all(format!("{line}\n").as_bytes());
    }
}

/// Shows a line, as `eprintln!`.
macro_rules! message {
    ($($text:tt)*) => {
        $crate::messages::show(format_args!($($text)*))
    };
}
pub(crate) use message;
