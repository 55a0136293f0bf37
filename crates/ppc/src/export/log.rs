//! What an exported policy writes with `tracing` goes to the daemon's log.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int};
use std::fmt::{Debug, Write};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

type Log = unsafe extern "C" fn(c_int, *const c_char);

/// From now on, unless the policy has a log of its own.
pub(super) fn begin(to: Log) {
    let _ = tracing::subscriber::set_global_default(ToDaemon(to)); // then it has one
}

struct ToDaemon(Log);

impl Subscriber for ToDaemon {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::DEBUG
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1) // spans are not told
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let level = match *event.metadata().level() {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            _ => 7,
        };
        let mut text = Text(String::new());
        event.record(&mut text);
        let text = CString::new(text.0.replace('\0', " ")).unwrap_or_default();
        // SAFETY: the daemon's function, of the type that ppc.h gives it, and a string that ends.
        unsafe { (self.0)(level, text.as_ptr()) };
    }
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let space = if self.0.is_empty() { "" } else { " " };
        let _ = match field.name() {
            "message" => write!(self.0, "{space}{value:?}"),
            name => write!(self.0, "{space}{name}={value:?}"),
        }; // a string takes everything
    }
}
