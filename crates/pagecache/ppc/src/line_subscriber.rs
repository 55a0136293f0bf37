//! A `tracing` subscriber that writes events as lines of text.

use std::fmt::{Debug, Write};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// A subscriber that passes each event, formatted as one line, to a callback together with its level. Spans are ignored.
/// For programs without a logging framework.
///
/// ```
/// use anamnesis_ppc::LineSubscriber;
/// use tracing::Level;
///
/// let (sender, lines) = std::sync::mpsc::channel();
/// let subscriber = LineSubscriber::new(Level::WARN, move |level, text| {
///     sender.send(format!("{level}: {text}")).unwrap();
/// });
/// tracing::subscriber::with_default(subscriber, || {
///     tracing::warn!(files = 3, "skipped");
///     tracing::info!("below the level");
/// });
/// assert_eq!(lines.iter().collect::<Vec<_>>(), ["WARN: skipped files=3"]);
/// ```
#[derive(Debug)]
pub struct LineSubscriber<T> {
    max_level: Level,
    write: T,
}

impl<T: Fn(Level, &str) + 'static> LineSubscriber<T> {
    /// Calls `write` for each event of `max_level` or a more severe level.
    pub fn new(max_level: Level, write: T) -> Self {
        Self { max_level, write }
    }
}

impl<T: Fn(Level, &str) + 'static> Subscriber for LineSubscriber<T> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.max_level
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1) // ids must not be 0; spans are ignored, so one id serves them all
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = LineVisitor(String::new());
        event.record(&mut line);
        (self.write)(*event.metadata().level(), &line.0);
    }
}

/// Collects the fields of an event: the message as it is, the others as `name=value`.
struct LineVisitor(String);

impl Visit for LineVisitor {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let space = if self.0.is_empty() { "" } else { " " };
        // writing to a String cannot fail
        let _ = match field.name() {
            "message" => write!(self.0, "{space}{value:?}"),
            name => write!(self.0, "{space}{name}={value:?}"),
        };
    }
}
