//! Where events come from: one file for each source, the table of them, and the choice.
//!
//! [`best`] takes the first source of the table that this machine permits and says what it cannot see and why better
//! ones were not available; [`by_name`] takes the one that is asked for.
//!
//! ```no_run
//! use std::{path::Path, time::Duration};
//! use anamnesis_ppc::{Namespace, source::{self, Want}};
//!
//! let namespace = Namespace::scan(Path::new("/models"))?;
//! let mut choice = source::best(Want::Misses, &namespace)?;
//! eprintln!("{choice}"); // which, what it cannot see, and what others would have needed
//! let files: Vec<_> = namespace.entries().iter().map(|entry| entry.inode).collect();
//! choice.source.watch(&files)?;
//! let mut events = Vec::new();
//! while choice.source.wait(Duration::from_millis(100), &mut events)? {
//!     for event in events.drain(..) {
//!         println!("{:?}: {:?}", namespace.find(event.inode).map(|entry| &entry.path), event);
//!     }
//! }
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

mod both;
mod bytes;
mod fake;
pub mod fanotify;
pub mod log;
pub mod perf;
mod replay;
pub mod shim;

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

pub use both::Both;
pub use fake::{Fake, Hand};
pub use fanotify::Fanotify;
pub use log::{Log, Tee};
pub use perf::Perf;
pub use replay::{Replay, Speed};
pub use shim::Shim;

use crate::error::{Error, ErrorKind, Result};
use crate::event::EventSource;
use crate::namespace::Namespace;

/// What a source is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Want {
    /// To answer misses: bytes that somebody waits for.
    Misses,
    /// For a policy that wants every access.
    Accesses,
    /// To know afterwards all that was read.
    Recording,
}

/// A source of the table.
struct Row {
    name: &'static str,
    about: &'static str,
    /// What it is tried for when nobody names one.
    wants: &'static [Want],
    open: fn(&Namespace, &str) -> Result<Box<dyn EventSource>>,
}

/// Better ones first.
const TABLE: &[Row] = &[
    Row {
        name: "misses",
        about: "trace points through perf: misses of read and of mapped memory",
        wants: &[Want::Misses],
        open: |namespace, _| perf(Want::Misses, namespace),
    },
    Row {
        name: "accesses",
        about: "trace points through perf: every read, and first touches of mapped memory",
        wants: &[Want::Accesses],
        open: |namespace, _| perf(Want::Accesses, namespace),
    },
    Row {
        name: "recording",
        about: "trace points through perf: accesses, and all that comes into memory",
        wants: &[Want::Recording],
        open: |namespace, _| perf(Want::Recording, namespace),
    },
    Row {
        name: "both",
        about: "misses, and accesses beside them: what a policy needs that follows its readers",
        wants: &[],
        open: |namespace, _| Ok(for_policies(Want::Accesses, namespace)?.source),
    },
    Row {
        name: "shim",
        about: "programs that run with libanamnesis_shim.so preloaded; needs no privileges: shim:PIPE",
        wants: &[Want::Misses, Want::Accesses, Want::Recording],
        open: |_, pipe| Ok(Box::new(Shim::named(pipe)?)),
    },
    Row {
        name: "reads",
        about: "fanotify before access: every read, which it delays",
        wants: &[Want::Misses, Want::Accesses, Want::Recording],
        open: |namespace, _| Ok(Box::new(Fanotify::reads(namespace)?)),
    },
    Row {
        name: "opens",
        about: "fanotify: that a file is opened, as a sign that a service starts",
        wants: &[],
        open: |namespace, _| Ok(Box::new(Fanotify::opens(namespace)?)),
    },
    Row {
        name: "replay",
        about: "a log of events, as fast as it was written: replay:FILE",
        wants: &[],
        open: |namespace, path| {
            Ok(Box::new(Replay::open(
                Path::new(path),
                namespace,
                Speed::Times(1.0),
            )?))
        },
    },
];

fn perf(want: Want, namespace: &Namespace) -> Result<Box<dyn EventSource>> {
    let root = Some(namespace.root().to_owned());
    Ok(Box::new(Perf::new(
        want,
        perf::Options {
            root,
            ..perf::Options::of(want)
        },
    )?))
}

/// Names of the sources, and a line about each.
pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    TABLE.iter().map(|row| (row.name, row.about))
}

/// The source of a name; `name:argument` where it takes one.
///
/// # Errors
///
/// [`ErrorKind::Invalid`] if there is none of that name; what keeps the source from being opened.
pub fn by_name(name: &str, namespace: &Namespace) -> Result<Box<dyn EventSource>> {
    let (name, argument) = name.split_once(':').unwrap_or((name, ""));
    let row = TABLE.iter().find(|row| row.name == name).ok_or_else(|| {
        let known: Vec<_> = names().map(|(name, _)| name).collect();
        Error::invalid(format!(
            "no event source {name:?}; there are {}",
            known.join(", ")
        ))
    })?;
    (row.open)(namespace, argument)
}

/// The best source that this machine permits.
///
/// # Errors
///
/// [`ErrorKind::Unavailable`] if there is none, with what each needs.
pub fn best(want: Want, namespace: &Namespace) -> Result<Choice> {
    first(
        TABLE.iter().filter(|row| row.wants.contains(&want)),
        namespace,
    )
}

/// The best source for policies: of misses, and of what they want to be told beside them.
///
/// # Errors
///
/// As [`best`].
pub fn for_policies(want: Want, namespace: &Namespace) -> Result<Choice> {
    let misses = best(Want::Misses, namespace)?;
    if want == Want::Misses {
        return Ok(misses);
    }
    let accesses = best(want, namespace)?;
    if accesses.source.name() == misses.source.name() {
        return Ok(misses); // it tells both
    }
    let better = misses.better.into_iter().chain(accesses.better).collect();
    Ok(Choice {
        source: Box::new(Both::new(
            "misses and accesses",
            misses.source,
            accesses.source,
        )),
        better,
    })
}

fn first<'a>(rows: impl Iterator<Item = &'a Row>, namespace: &Namespace) -> Result<Choice> {
    let mut better = Vec::new();
    for row in rows {
        match (row.open)(namespace, "") {
            Ok(source) => return Ok(Choice { source, better }),
            Err(error) => better.push((row.name, error)),
        }
    }
    let why: Vec<_> = better
        .iter()
        .map(|(name, error)| format!("{name}: {error}"))
        .collect();
    Err(Error::new(ErrorKind::Unavailable(format!(
        "no event source; {}",
        why.join("; ")
    ))))
}

/// A source, and why it was none of the better ones.
#[derive(Debug)]
pub struct Choice {
    /// The source.
    pub source: Box<dyn EventSource>,
    /// Names of better ones, and what kept them.
    pub better: Vec<(&'static str, Error)>,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "events from {}, which does not see {}",
            self.source.name(),
            self.source.sight().blind
        )?;
        self.better
            .iter()
            .try_for_each(|(name, error)| write!(f, "\n{name}: {error}"))
    }
}

/// Now, in nanoseconds of `CLOCK_MONOTONIC`.
pub(crate) fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

/// Waits until one of the descriptors is readable.
pub(crate) fn readable(fds: &[&OwnedFd], timeout: Duration) -> io::Result<()> {
    let mut fds: Vec<_> = fds
        .iter()
        .map(|&fd| PollFd::new(fd, PollFlags::IN))
        .collect();
    match poll(&mut fds, Some(&timespec(timeout))) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// Whether a waker was used since this was asked last.
pub(crate) fn drained(wake: &OwnedFd) -> bool {
    rustix::io::read(wake, &mut [0; 8]).is_ok()
}

/// Whole pages around bytes.
fn pages(start: u64, len: u64) -> (u64, u64) {
    let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
    let first = start / page * page;
    let end = start
        .saturating_add(len)
        .checked_next_multiple_of(page)
        .unwrap_or(u64::MAX / page * page);
    (first, end.saturating_sub(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_whole_pages() {
        let page = u64::try_from(rustix::param::page_size()).unwrap();
        assert_eq!(pages(100, 1), (0, page));
        assert_eq!(pages(page, page + 1), (page, 2 * page));
        assert_eq!(pages(page, 0), (page, 0));
        let (start, len) = pages(u64::MAX - 1, u64::MAX);
        assert!(start.checked_add(len).is_some());
    }
}
