//! Events in a file: what [`Tee`] writes and [`Replay`](super::Replay) tells again.
//!
//! A log is text, one thing a line, fields parted by single spaces:
//!
//! ```text
//! anamnesis-events 1
//! file 266338304 131073 "qwen/model-00001-of-00004.safetensors"
//! miss 266338304 131073 0 1048576 4711 4711 81273645546372
//! lost 12
//! ```
//!
//! First the version. `file` names an inode (device as `major << 20 | minor`, inode number, path relative to the
//! directory as a JSON string), so that a log can be told again where the same files have other numbers. `miss`,
//! `touch` and `open` are events: device, inode, first byte, number of bytes, process, thread, nanoseconds of
//! `CLOCK_MONOTONIC`. `lost` counts events that were not told since the line before. Lines are at most 8 KiB; a reader
//! refuses everything else.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::event::{Event, EventSource, Inode, Kind, Sight, Waker};
use crate::namespace::Namespace;

/// The first line.
const FIRST: &str = "anamnesis-events 1";
/// Bytes of a line, at the most.
const LINE: u64 = 8 << 10;

/// A line of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    File(Inode, PathBuf),
    Event(Event),
    Lost(u64),
}

/// Writes events into a log.
#[derive(Debug)]
pub struct Log<W: Write> {
    to: W,
    named: HashSet<Inode>,
}

impl Log<BufWriter<File>> {
    /// A log in a new file.
    ///
    /// # Errors
    ///
    /// The file exists already, or cannot be written.
    pub fn create(path: &Path) -> Result<Self> {
        let file = File::create_new(path).map_err(|error| Error::from(error).in_file(path))?;
        Log::new(BufWriter::new(file)).map_err(|error| Error::from(error).in_file(path))
    }
}

impl<W: Write> Log<W> {
    /// A log in whatever bytes are written to.
    ///
    /// # Errors
    ///
    /// Its own.
    pub fn new(mut to: W) -> io::Result<Self> {
        writeln!(to, "{FIRST}")?;
        Ok(Self {
            to,
            named: HashSet::new(),
        })
    }

    /// Writes which files the inodes are, those that were not written yet. A name that is no UTF-8 is left out.
    ///
    /// # Errors
    ///
    /// The writer's.
    pub fn files(&mut self, namespace: &Namespace) -> io::Result<()> {
        for entry in namespace.entries() {
            let name = entry
                .path
                .to_str()
                .and_then(|path| serde_json::to_string(path).ok());
            if let Some(name) = name.filter(|name| name.len() < 8000)
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
    /// The writer's.
    pub fn event(&mut self, event: &Event) -> io::Result<()> {
        let kind = match event.kind {
            Kind::Miss => "miss",
            Kind::Touch => "touch",
            Kind::Open => "open",
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

    /// Writes that so many events were not told.
    ///
    /// # Errors
    ///
    /// The writer's.
    pub fn lost(&mut self, events: u64) -> io::Result<()> {
        writeln!(self.to, "lost {events}")
    }

    /// Writes out what is buffered.
    ///
    /// # Errors
    ///
    /// The writer's.
    pub fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Reads a log's lines; the first must be read by [`begin`].
pub(crate) fn next(from: &mut impl BufRead) -> io::Result<Option<Line>> {
    let mut text = Vec::new();
    if io::Read::take(&mut *from, LINE).read_until(b'\n', &mut text)? == 0 {
        return Ok(None);
    }
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    if text.pop() != Some(b'\n') {
        return Err(wrong(
            "the line does not end within 8 KiB, or the log was cut",
        ));
    }
    let text = std::str::from_utf8(&text).map_err(|_| wrong("the line is no UTF-8"))?;
    let line =
        parse(text).ok_or_else(|| wrong("the line is none of: file, miss, touch, open, lost"))?;
    Ok(Some(line))
}

/// Reads a log's first line.
pub(crate) fn begin(from: &mut impl BufRead) -> io::Result<()> {
    let mut text = Vec::new();
    io::Read::take(from, LINE).read_until(b'\n', &mut text)?;
    if text != format!("{FIRST}\n").as_bytes() {
        let what = format!("this is no log of events: those begin with {FIRST:?}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(())
}

fn parse(line: &str) -> Option<Line> {
    let (word, rest) = line.split_once(' ')?;
    let kind = match word {
        "miss" => Kind::Miss,
        "touch" => Kind::Touch,
        "open" => Kind::Open,
        "lost" => return rest.parse().ok().map(Line::Lost),
        "file" => {
            let mut fields = rest.splitn(3, ' ');
            let inode = Inode {
                dev: fields.next()?.parse().ok()?,
                ino: fields.next()?.parse().ok()?,
            };
            let path: String = serde_json::from_str(fields.next()?).ok()?;
            return Some(Line::File(inode, path.into()));
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
    fields.next().is_none().then_some(Line::Event(event))
}

/// A source whose events go into a log as well. A log that cannot be written any more ends; the source does not.
#[derive(Debug)]
pub struct Tee<W: Write> {
    source: Box<dyn EventSource>,
    log: Option<Log<W>>,
    lost: u64,
}

impl<W: Write> Tee<W> {
    /// Of a source and a log.
    pub fn new(source: Box<dyn EventSource>, log: Log<W>) -> Self {
        let lost = source.lost();
        Self {
            source,
            log: Some(log),
            lost,
        }
    }

    fn write(&mut self, events: &[Event]) -> io::Result<()> {
        let Some(log) = &mut self.log else {
            return Ok(());
        };
        let lost = self.source.lost();
        if lost > self.lost {
            log.lost(lost - self.lost)?;
            self.lost = lost;
        }
        events.iter().try_for_each(|event| log.event(event))
    }
}

impl<W: Write + Send + std::fmt::Debug> EventSource for Tee<W> {
    fn name(&self) -> &'static str {
        self.source.name()
    }

    fn sight(&self) -> Sight {
        self.source.sight()
    }

    fn watch(&mut self, files: &[Inode]) -> Result<()> {
        self.source.watch(files)
    }

    fn wait(&mut self, timeout: Duration, into: &mut Vec<Event>) -> io::Result<bool> {
        let before = into.len();
        let more = self.source.wait(timeout, into)?;
        if let Err(error) = self.write(&into[before..]) {
            tracing::warn!(%error, "the log of events ends here");
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

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT: Event = Event {
        kind: Kind::Touch,
        inode: Inode { dev: 1, ino: 2 },
        start: 3,
        len: 4,
        pid: 5,
        tid: 6,
        time: 7,
    };

    fn lines(mut text: &[u8]) -> io::Result<Vec<Line>> {
        begin(&mut text)?;
        std::iter::from_fn(|| next(&mut text).transpose()).collect()
    }

    #[test]
    fn what_is_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a \"b\"\n"), b"").unwrap();
        let namespace = Namespace::scan(dir.path()).unwrap();
        let mut text = Vec::new();
        let mut log = Log::new(&mut text).unwrap();
        let kinds = [Kind::Miss, Kind::Touch, Kind::Open].map(|kind| Event { kind, ..EVENT });
        log.files(&namespace).unwrap();
        log.files(&namespace).unwrap();
        kinds.iter().for_each(|event| log.event(event).unwrap());
        log.lost(9).unwrap();
        let mut expected = vec![Line::File(namespace.entries()[0].inode, "a \"b\"\n".into())];
        expected.extend(kinds.map(Line::Event));
        expected.push(Line::Lost(9));
        assert_eq!(lines(&text).unwrap(), expected);
    }

    #[test]
    fn whatever_the_bytes_are_nothing_panics_and_nothing_wrong_passes() {
        let good = b"anamnesis-events 1\nfile 1 2 \"x\"\ntouch 1 2 3 4 5 6 7\nlost 8\n";
        assert_eq!(lines(good).unwrap().len(), 3);
        for end in 0..good.len() {
            let whole = end >= 19 && good[end - 1] == b'\n';
            assert_eq!(lines(&good[..end]).is_ok(), whole, "cut at {end}");
        }
        for at in 0..good.len() {
            for value in 0..=255 {
                let mut bent = *good;
                bent[at] = value;
                let _ = lines(&bent);
            }
        }
        let long = [
            b"anamnesis-events 1\nfile 1 2 \"".to_vec(),
            vec![b'x'; 1 << 20],
        ]
        .concat();
        assert!(lines(&long).unwrap_err().to_string().contains("8 KiB"));
        for wrong in [
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
                lines(format!("{FIRST}\n{wrong}\n").as_bytes()).is_err(),
                "{wrong}"
            );
        }
    }
}
