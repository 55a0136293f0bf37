//! Why a read-ahead queue stopped. Cloneable, unlike the errors it is made from: every blocked consumer returns it.

use std::io;

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
        kind: io::ErrorKind,
        os: Option<i32>,
        text: String,
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
        let io = |os: Option<i32>, kind, text| match os {
            // the code restores kind and text
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(kind, text),
        };
        match self {
            Self::Read {
                file,
                offset,
                kind,
                os,
                text,
            } => checkpoint.place(Error::from(io(os, kind, text)).at(offset), file),
            Self::Pool {
                needed,
                text,
                os: None,
                budget,
            } => {
                let what = format!("a buffer of the pool ({text})");
                over(needed, budget, what, "budget")
            }
            Self::Pool { text, os, .. } => Error::from(io(os, io::ErrorKind::OutOfMemory, text)),
            Self::ReaderPanicked => {
                Error::from(io::Error::other("a thread of the loader panicked"))
            }
            Self::Finished => Error::invalid_argument("the run of this loader has ended"),
        }
    }
}
