//! What is written with `tracing`, as lines of text.

use std::fmt::{Debug, Write};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// A subscriber that gives each event as a line, with its level, and shows no spans. For programs that have no log of
/// their own.
///
/// ```
/// use anamnesis_ppc::Lines;
/// use tracing::Level;
///
/// let (tell, told) = std::sync::mpsc::channel();
/// let lines = Lines::new(Level::WARN, move |level, text| tell.send(format!("{level}: {text}")).unwrap());
/// tracing::subscriber::with_default(lines, || {
///     tracing::warn!(files = 3, "left out");
///     tracing::info!("not worth a line");
/// });
/// assert_eq!(told.iter().collect::<Vec<_>>(), ["WARN: left out files=3"]);
/// ```
#[derive(Debug)]
pub struct Lines<T> {
    most: Level,
    tell: T,
}

impl<T: Fn(Level, &str) + 'static> Lines<T> {
    /// Of this level and those that matter more.
    pub fn new(most: Level, tell: T) -> Self {
        Self { most, tell }
    }
}

impl<T: Fn(Level, &str) + 'static> Subscriber for Lines<T> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.most
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1) // spans are not told
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        (self.tell)(*event.metadata().level(), &text.0);
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
