//! Event logs: written by [`LoggedSource`], replayed by [`ReplaySource`](super::ReplaySource).
//!
//! A log is text, one record per line, with fields separated by single spaces:
//!
//! ```text
//! anamnesis-events 1
//! file 266338304 131073 "qwen/model-00001-of-00004.safetensors"
//! miss 266338304 131073 0 1048576 4711 4711 81273645546372
//! lost 12
//! ```
//!
//! The first line is the version. `file` names an inode: device as `major << 20 | minor`, inode number, and path relative
//! to the directory as a JSON string. It lets a log be replayed where the same files have other inodes. `miss`, `touch` and
//! `open` are events: device, inode number, offset, length, process, thread, and nanoseconds of `CLOCK_MONOTONIC`. `lost`
//! counts events lost since the previous line. Lines are at most 8 KiB long; a reader rejects everything else.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::event::{Capabilities, CaptureMode, Event, EventKind, EventSource, Inode, Waker};
use crate::namespace::Namespace;

/// The first line.
const VERSION_LINE: &str = "anamnesis-events 1";
/// Maximum length of a line in bytes.
const MAX_LINE: u64 = 8 << 10;
/// Maximum length of a quoted path, which leaves room for the other fields of its line.
const MAX_PATH: usize = 8000;

/// A line of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogLine {
    File(Inode, PathBuf),
    Event(Event),
    Lost(u64),
}

/// Writes events into a log.
#[derive(Debug)]
pub struct EventLog<W: Write> {
    to: W,
    /// The inodes whose `file` lines are written.
    named: HashSet<Inode>,
}

impl EventLog<BufWriter<File>> {
    /// Creates a log in a new file.
    ///
    /// # Errors
    ///
    /// The file exists already, or cannot be written.
    pub fn create(path: &Path) -> Result<Self> {
        // a log of an earlier run is not overwritten: it may be the only record of a rare failure
        let file = File::create_new(path).map_err(|error| Error::from(error).in_file(path))?;
        EventLog::new(BufWriter::new(file)).map_err(|error| Error::from(error).in_file(path))
    }
}

impl<W: Write> EventLog<W> {
    /// Begins a log in a writer.
    ///
    /// # Errors
    ///
    /// The writer fails.
    pub fn new(mut to: W) -> io::Result<Self> {
        writeln!(to, "{VERSION_LINE}")?;
        Ok(Self {
            to,
            named: HashSet::new(),
        })
    }

    /// Writes the names of the namespace's files, except for those that were written already. Names that are not UTF-8
    /// or too long are omitted.
    ///
    /// # Errors
    ///
    /// The writer fails.
    pub fn files(&mut self, namespace: &Namespace) -> io::Result<()> {
        for entry in namespace.entries() {
            let name = entry
                .path
                .to_str()
                .and_then(|path| serde_json::to_string(path).ok());
            if let Some(name) = name.filter(|name| name.len() < MAX_PATH)
                // once: directories are scanned again whenever files appear
                && self.named.insert(entry.inode)
            {
                writeln!(
                    self.to,
                    "file {} {} {name}",
                    entry.inode.dev, entry.inode.ino
                )?;
            }
        }
        Ok(())
    }

    /// Writes an event.
    ///
    /// # Errors
    ///
    /// The writer fails.
    pub fn event(&mut self, event: &Event) -> io::Result<()> {
        let kind = match event.kind {
            EventKind::Miss => "miss",
            EventKind::Touch => "touch",
            EventKind::Open => "open",
        };
        let Event {
            inode: Inode { dev, ino },
            start,
            len,
            pid,
            tid,
            time,
            ..
        } = event;
        writeln!(
            self.to,
            "{kind} {dev} {ino} {start} {len} {pid} {tid} {time}"
        )
    }

    /// Writes the number of events lost since the previous line.
    ///
    /// # Errors
    ///
    /// The writer fails.
    pub fn lost(&mut self, events: u64) -> io::Result<()> {
        writeln!(self.to, "lost {events}")
    }

    /// Flushes the writer.
    ///
    /// # Errors
    ///
    /// The writer fails.
    pub fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Reads the next line of a log; `None` at the end. [`read_version`] must be called first.
pub(crate) fn read_line(from: &mut impl BufRead) -> io::Result<Option<LogLine>> {
    let mut text = Vec::new();
    // limited before it is read: a log without line ends would otherwise be read into memory whole
    if io::Read::take(&mut *from, MAX_LINE).read_until(b'\n', &mut text)? == 0 {
        return Ok(None);
    }
    let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    if text.pop() != Some(b'\n') {
        return Err(invalid(
            "the line is longer than 8 KiB, or the log is truncated",
        ));
    }
    let text = std::str::from_utf8(&text).map_err(|_| invalid("the line is not UTF-8"))?;
    let line = parse(text)
        .ok_or_else(|| invalid("the line is no valid file, miss, touch, open or lost record"))?;
    Ok(Some(line))
}

/// Reads the first line of a log.
pub(crate) fn read_version(from: &mut impl BufRead) -> io::Result<()> {
    let mut text = Vec::new();
    io::Read::take(from, MAX_LINE).read_until(b'\n', &mut text)?;
    if text != format!("{VERSION_LINE}\n").as_bytes() {
        let what = format!("not an event log: the first line is not {VERSION_LINE:?}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(())
}

fn parse(line: &str) -> Option<LogLine> {
    let (word, rest) = line.split_once(' ')?;
    let kind = match word {
        "miss" => EventKind::Miss,
        "touch" => EventKind::Touch,
        "open" => EventKind::Open,
        "lost" => return rest.parse().ok().map(LogLine::Lost),
        "file" => {
            let mut fields = rest.splitn(3, ' ');
            let inode = Inode {
                dev: fields.next()?.parse().ok()?,
                ino: fields.next()?.parse().ok()?,
            };
            let path: String = serde_json::from_str(fields.next()?).ok()?;
            return Some(LogLine::File(inode, path.into()));
        }
        _ => return None,
    };
    let mut fields = rest.split(' ');
    let mut number = || fields.next()?.parse::<u64>().ok();
    let inode = Inode {
        dev: number()?,
        ino: number()?,
    };
    let (start, len) = (number()?, number()?);
    // as every source guarantees, the end of an event fits into 64 bits
    start.checked_add(len)?;
    let (pid, tid) = (
        u32::try_from(number()?).ok()?,
        u32::try_from(number()?).ok()?,
    );
    let event = Event {
        kind,
        inode,
        start,
        len,
        pid,
        tid,
        time: number()?,
    };
    // a record with further fields is of a later version, and would be misread
    fields.next().is_none().then_some(LogLine::Event(event))
}

/// A source whose events are also written into a log. If writing fails, logging stops and the source continues;
/// [`failure`](Self::failure) says so.
#[derive(Debug)]
pub struct LoggedSource<W: Write> {
    source: Box<dyn EventSource>,
    log: Option<EventLog<W>>,
    failure: LogFailure,
    /// Lost events that are in the log.
    logged_lost: u64,
}

/// The error that ended a log, if one did.
#[derive(Clone, Debug, Default)]
pub struct LogFailure(Arc<OnceLock<io::Error>>);

impl LogFailure {
    /// The error. Without one the log is whole, once its source is dropped.
    pub fn error(&self) -> Option<&io::Error> {
        self.0.get()
    }

    fn set(&self, error: io::Error) {
        tracing::warn!(%error, "cannot write the event log, logging stops here");
        // the first one ended the log
        let _ = self.0.set(error);
    }
}

impl<W: Write> LoggedSource<W> {
    /// Writes the events of `source` into `log`.
    pub fn new(source: Box<dyn EventSource>, log: EventLog<W>) -> Self {
        // losses before the log began are not of its events
        let logged_lost = source.lost();
        Self {
            source,
            log: Some(log),
            failure: LogFailure::default(),
            logged_lost,
        }
    }

    /// The error that ends the log, which the source outlives.
    pub fn failure(&self) -> LogFailure {
        self.failure.clone()
    }

    fn write(&mut self, events: &[Event]) -> io::Result<()> {
        let Some(log) = &mut self.log else {
            return Ok(());
        };
        // before the events: they were lost before these were read
        let lost = self.source.lost();
        if lost > self.logged_lost {
            log.lost(lost - self.logged_lost)?;
            self.logged_lost = lost;
        }
        events.iter().try_for_each(|event| log.event(event))
    }
}

impl<W: Write + Send + std::fmt::Debug> EventSource for LoggedSource<W> {
    fn name(&self) -> &'static str {
        self.source.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.source.capabilities()
    }

    fn watch(&mut self, files: &[Inode]) -> Result<()> {
        self.source.watch(files)
    }

    fn set_mode(&mut self, mode: CaptureMode) -> Result<()> {
        self.source.set_mode(mode)
    }

    fn wait(&mut self, timeout: Duration, into: &mut Vec<Event>) -> io::Result<bool> {
        let before = into.len();
        let more = self.source.wait(timeout, into)?;
        if let Err(error) = self.write(&into[before..]) {
            self.failure.set(error);
            self.log = None;
        }
        Ok(more)
    }

    fn lost(&self) -> u64 {
        self.source.lost()
    }

    fn waker(&self) -> Waker {
        self.source.waker()
    }
}

impl<W: Write> Drop for LoggedSource<W> {
    fn drop(&mut self) {
        // the last lines are in the writer's buffer
        let flushed = self.log.as_mut().map_or(Ok(()), EventLog::flush);
        flushed.unwrap_or_else(|error| self.failure.set(error));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT: Event = Event {
        kind: EventKind::Touch,
        inode: Inode { dev: 1, ino: 2 },
        start: 3,
        len: 4,
        pid: 5,
        tid: 6,
        time: 7,
    };

    fn lines(mut text: &[u8]) -> io::Result<Vec<LogLine>> {
        read_version(&mut text)?;
        std::iter::from_fn(|| read_line(&mut text).transpose()).collect()
    }

    #[test]
    fn written_logs_are_read_back() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a \"b\"\n"), b"").unwrap();
        let namespace = Namespace::scan(dir.path()).unwrap();
        let mut text = Vec::new();
        let mut log = EventLog::new(&mut text).unwrap();
        let kinds = [EventKind::Miss, EventKind::Touch, EventKind::Open]
            .map(|kind| Event { kind, ..EVENT });
        log.files(&namespace).unwrap();
        log.files(&namespace).unwrap();
        kinds.iter().for_each(|event| log.event(event).unwrap());
        log.lost(9).unwrap();
        let mut expected = vec![LogLine::File(
            namespace.entries()[0].inode,
            "a \"b\"\n".into(),
        )];
        expected.extend(kinds.map(LogLine::Event));
        expected.push(LogLine::Lost(9));
        assert_eq!(lines(&text).unwrap(), expected);
    }

    #[test]
    fn malformed_logs_are_rejected_without_panics() {
        let good = b"anamnesis-events 1\nfile 1 2 \"x\"\ntouch 1 2 3 4 5 6 7\nlost 8\n";
        assert_eq!(lines(good).unwrap().len(), 3);
        for end in 0..good.len() {
            let at_line_end = end >= 19 && good[end - 1] == b'\n';
            assert_eq!(lines(&good[..end]).is_ok(), at_line_end, "cut at {end}");
        }
        for at in 0..good.len() {
            for value in 0..=255 {
                let mut corrupt = *good;
                corrupt[at] = value;
                let _ = lines(&corrupt);
            }
        }
        let long = [
            b"anamnesis-events 1\nfile 1 2 \"".to_vec(),
            vec![b'x'; 1 << 20],
        ]
        .concat();
        assert!(lines(&long).unwrap_err().to_string().contains("8 KiB"));
        for invalid in [
            "touch 1 2 3 4 5 6",
            "touch 1 2 3 4 5 6 7 8",
            "touch 1 2 18446744073709551615 1 5 6 7",
            "touch 1 2 3 4 4294967296 6 7",
            "touch 1 2 -3 4 5 6 7",
            "touch  1 2 3 4 5 6 7",
            "lost",
            "file 1 2 x",
            "",
        ] {
            assert!(
                lines(format!("{VERSION_LINE}\n{invalid}\n").as_bytes()).is_err(),
                "{invalid}"
            );
        }
    }
}
