//! Why bringing bytes stopped, told to everybody who waits for them.

use std::io;

use crate::checkpoint::Checkpoint;
use crate::error::Error;
use crate::limits::over;

/// Why a belt stopped.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// Nobody takes any more.
    Over,
    Read {
        file: u32,
        offset: u64,
        kind: io::ErrorKind,
        os: Option<i32>,
        text: String,
    },
    Pool {
        needed: u64,
        text: String,
        os: Option<i32>,
        budget: u64,
    },
    Died,
}

impl Fault {
    pub(super) fn error(self, checkpoint: &Checkpoint) -> Error {
        let io = |os: Option<i32>, kind, text| match os {
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
            Self::Died => Error::from(io::Error::other("a thread of the loader died")),
            Self::Over => Error::misuse("the run is over"),
        }
    }
}
