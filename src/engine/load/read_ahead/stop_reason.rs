//! Why a read-ahead queue stopped. Cloneable, unlike the errors it is made from: every blocked consumer returns it.

use std::sync::Arc;
use std::{fmt, io};

use crate::base::error::Error;
use crate::base::limits::over;
use crate::read::checkpoint::Checkpoint;

#[derive(Clone, Debug)]
pub(super) enum StopReason {
    /// The consumer has returned.
    Finished,
    /// A read failed.
    Read {
        file: u32,
        offset: u64,
        error: Arc<io::Error>,
    },
    /// The pool gave no buffer.
    Pool {
        needed: u64,
        text: String,
        os: Option<i32>,
        budget: u64,
    },
    /// A thread that reads has panicked.
    ReaderPanicked,
}

impl StopReason {
    pub(super) fn into_error(self, checkpoint: &Checkpoint) -> Error {
        // the code restores kind and text
        let by_code = io::Error::from_raw_os_error;
        match self {
            Self::Read {
                file,
                offset,
                error,
            } => {
                let error = match error.raw_os_error() {
                    Some(code) => by_code(code),
                    None => io::Error::new(error.kind(), SharedError(error)),
                };
                checkpoint.place(Error::from(error).at(offset), file)
            }
            Self::Pool {
                needed,
                text,
                os: None,
                budget,
            } => {
                let what = format!("a buffer of the pool ({text})");
                over(needed, budget, what, "budget")
            }
            Self::Pool { os: Some(code), .. } => Error::from(by_code(code)),
            Self::ReaderPanicked => {
                Error::from(io::Error::other("a thread of the loader panicked"))
            }
            Self::Finished => Error::invalid_argument("the run of this loader has ended"),
        }
    }
}

/// An error of a read that every consumer returns. Its source is the error that a source of bytes made, such as an exception of a
/// program's own file object.
#[derive(Debug)]
struct SharedError(Arc<io::Error>);

impl fmt::Display for SharedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for SharedError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.get_ref().map(|error| error as _)
    }
}
