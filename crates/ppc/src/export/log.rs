//! What an exported policy writes with `tracing` goes to the daemon's log.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int};

use tracing::Level;

use crate::Lines;

type Log = unsafe extern "C" fn(c_int, *const c_char);

/// From now on, unless the policy has a log of its own.
pub(super) fn begin(to: Log) {
    let tell = move |level, text: &str| {
        let level = match level {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            _ => 7,
        };
        let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
        // SAFETY: the daemon's function, of the type that ppc.h gives it, and a string that ends.
        unsafe { to(level, text.as_ptr()) };
    };
    let _ = tracing::subscriber::set_global_default(Lines::new(Level::DEBUG, tell)); // then it has one
}
