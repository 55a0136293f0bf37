//! Interrupts: by SIGINT, SIGTERM and SIGHUP where the command is a program, by a token where it is called as a library.
//! `ctrlc` runs its handler on a thread of its own, so that it may lock and allocate.

use std::ops::ControlFlow;

use anamnesis::{CancelToken, Error, ErrorKind, Result};

/// How a run of the command is interrupted. A run that is interrupted stops in order, leaves no unfinished output and has
/// the status 130.
#[derive(Clone, Debug)]
pub struct Interrupt {
    token: CancelToken,
    by_signals: bool,
}

impl Interrupt {
    /// By cancelling a token. The process's signals stay as they are.
    pub fn by_token(token: &CancelToken) -> Self {
        Self {
            token: token.clone(),
            by_signals: false,
        }
    }

    /// By SIGINT, SIGTERM or SIGHUP. They are handled from the moment on at which a verb has something to clean up, for as
    /// long as the process lives; before, they end the process, as in every program that does not handle them.
    pub fn by_signals() -> Self {
        Self {
            token: CancelToken::new(),
            by_signals: true,
        }
    }

    /// Called before the work starts that has to stop in order: from here on, signals cancel it.
    pub(crate) fn handle(&self) {
        if self.by_signals {
            let token = self.token.clone();
            // a handler can be set once per process; a verb that repeats its work keeps the first
            let _ = ctrlc::set_handler(move || token.cancel());
        }
    }

    /// Whether the run was interrupted.
    pub(crate) fn requested(&self) -> bool {
        self.token.is_cancelled()
    }

    /// The token that an interrupt cancels, for the runs of the library.
    pub(crate) fn token(&self) -> &CancelToken {
        &self.token
    }

    /// [`requested`](Self::requested) as the answer of a loader's callback: `Break` after an interrupt.
    pub(crate) fn control_flow(&self) -> ControlFlow<()> {
        if self.requested() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    /// # Errors
    ///
    /// `Cancelled` after an interrupt.
    pub(crate) fn check(&self) -> Result<()> {
        if self.requested() {
            Err(Error::new(ErrorKind::Cancelled))
        } else {
            Ok(())
        }
    }
}
