//! Forwards the `tracing` events of an exported policy to the daemon's log.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int};

use tracing::Level;

use crate::LineSubscriber;

/// `ppc_context.log`.
type LogCallback = unsafe extern "C" fn(c_int, *const c_char);

/// Installs the subscriber, unless the policy has installed one of its own.
pub(super) fn install(callback: LogCallback) {
    let write = move |level, text: &str| {
        let level = match level {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            _ => 7,
        };
        let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
        // SAFETY: a function of the host process with the type that ppc.h declares; the text is zero-terminated.
        unsafe { callback(level, text.as_ptr()) };
    };
    let _ = tracing::subscriber::set_global_default(LineSubscriber::new(Level::DEBUG, write)); // fails if there is one
}
