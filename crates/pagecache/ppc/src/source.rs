//! Event sources: one file for each, the table of them, and the choice of the best one that is available.
//!
//! [`best`] opens the first source of the table that the kernel and the privileges of this process permit, and reports
//! what it does not capture and why better ones were rejected. [`by_name`] opens a given one.
//!
//! ```no_run
//! use std::{path::Path, time::Duration};
//! use anamnesis_ppc::{Namespace, source::{self, CaptureMode}};
//!
//! let namespace = Namespace::scan(Path::new("/models"))?;
//! let mut selected = source::best(CaptureMode::Misses, &namespace)?;
//! eprintln!("{selected}"); // its name and limitations, and why better sources were rejected
//! let files: Vec<_> = namespace.entries().iter().map(|entry| entry.inode).collect();
//! selected.source.watch(&files)?;
//! let mut events = Vec::new();
//! while selected.source.wait(Duration::from_millis(100), &mut events)? {
//!     for event in events.drain(..) {
//!         println!("{:?}: {:?}", namespace.find(event.inode).map(|entry| &entry.path), event);
//!     }
//! }
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

mod combined;
mod fake;
pub mod fanotify;
pub mod log;
mod native_endian;
pub mod perf;
pub(crate) mod poll;
mod replay;
pub mod shim;

use std::fmt;
use std::path::Path;

pub use combined::CombinedSource;
pub use fake::{FakeSource, FakeSourceHandle};
pub use fanotify::FanotifySource;
pub use log::{EventLog, LogFailure, LoggedSource};
pub use perf::PerfSource;
pub use replay::{ReplaySource, ReplaySpeed};
pub use shim::ShimSource;

use crate::error::{Error, ErrorKind, Result};
pub use crate::event::CaptureMode;
use crate::event::EventSource;
use crate::namespace::Namespace;

/// A row of the table of sources.
struct SourceRow {
    name: &'static str,
    about: &'static str,
    /// The modes for which [`best`] tries it.
    modes: &'static [CaptureMode],
    /// Opens it. The second argument is what follows the colon of `name:argument`.
    open: fn(&Namespace, &str) -> Result<Box<dyn EventSource>>,
}

/// All sources, better ones first.
const SOURCES: &[SourceRow] = &[
    SourceRow {
        name: "misses",
        about: "perf trace points: misses of read and of mapped memory",
        modes: &[CaptureMode::Misses],
        open: |namespace, _| perf(CaptureMode::Misses, namespace),
    },
    SourceRow {
        name: "accesses",
        about: "perf trace points: every read, and first accesses to mapped pages",
        modes: &[CaptureMode::Accesses],
        open: |namespace, _| perf(CaptureMode::Accesses, namespace),
    },
    SourceRow {
        name: "recording",
        about: "perf trace points: accesses, and all insertions into the page cache",
        modes: &[CaptureMode::Recording],
        open: |namespace, _| perf(CaptureMode::Recording, namespace),
    },
    SourceRow {
        // no mode, since `for_policies` combines sources by itself; the row is for `--source`, and keeps both open
        name: "combined",
        about: "misses with low latency, and accesses: for policies that follow their readers",
        modes: &[],
        open: |namespace, _| {
            let misses = best(CaptureMode::Misses, namespace)?.source;
            let accesses = accesses(CaptureMode::Accesses, namespace, &*misses)?;
            Ok(match accesses {
                Some(accesses) => Box::new(CombinedSource::new(misses, accesses.source)),
                None => misses,
            })
        },
    },
    SourceRow {
        name: "shim",
        about: "programs that run with libanamnesis_shim.so preloaded; needs no privileges: shim:PIPE",
        modes: &[
            CaptureMode::Misses,
            CaptureMode::Accesses,
            CaptureMode::Recording,
        ],
        open: |_, pipe| Ok(Box::new(ShimSource::open(pipe)?)),
    },
    SourceRow {
        name: "reads",
        about: "fanotify pre-access events: every read, which it delays",
        modes: &[
            CaptureMode::Misses,
            CaptureMode::Accesses,
            CaptureMode::Recording,
        ],
        open: |namespace, _| Ok(Box::new(FanotifySource::reads(namespace)?)),
    },
    SourceRow {
        name: "opens",
        about: "fanotify: opens of files, as a sign that a service starts",
        // an open is no access
        modes: &[],
        open: |namespace, _| Ok(Box::new(FanotifySource::opens(namespace)?)),
    },
    SourceRow {
        name: "replay",
        about: "an event log, at the speed of its recording: replay:FILE",
        // only by name: its events are not of this machine
        modes: &[],
        open: |namespace, path| {
            Ok(Box::new(ReplaySource::open(
                Path::new(path),
                namespace,
                ReplaySpeed::Times(1.0),
            )?))
        },
    },
];

fn perf(mode: CaptureMode, namespace: &Namespace) -> Result<Box<dyn EventSource>> {
    let root = Some(namespace.root().to_owned());
    Ok(Box::new(PerfSource::new(
        mode,
        perf::PerfOptions {
            root,
            ..perf::PerfOptions::of(mode)
        },
    )?))
}

/// The names of all sources, with a one-line description of each.
pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    SOURCES.iter().map(|row| (row.name, row.about))
}

/// Opens the source called `name`, or `name:argument` for sources that take an argument.
///
/// # Errors
///
/// [`ErrorKind::Invalid`] if there is no source of this name; otherwise the reason why the source cannot be opened.
pub fn by_name(name: &str, namespace: &Namespace) -> Result<Box<dyn EventSource>> {
    // the first colon: paths may contain further ones
    let (name, argument) = name.split_once(':').unwrap_or((name, ""));
    let row = SOURCES.iter().find(|row| row.name == name).ok_or_else(|| {
        let known: Vec<_> = names().map(|(name, _)| name).collect();
        Error::invalid(format!(
            "unknown event source {name:?}; the sources are {}",
            known.join(", ")
        ))
    })?;
    (row.open)(namespace, argument)
}

/// Opens the best available source for `mode`.
///
/// # Errors
///
/// [`ErrorKind::Unavailable`] if none is available, with the reason for each.
pub fn best(mode: CaptureMode, namespace: &Namespace) -> Result<SelectedSource> {
    let mut rejected = Vec::new();
    for row in SOURCES.iter().filter(|row| row.modes.contains(&mode)) {
        match (row.open)(namespace, "") {
            Ok(source) => return Ok(SelectedSource { source, rejected }),
            // collected: with a missing capability, all of them fail, and the user wants to know why the best one did
            Err(error) => rejected.push((row.name, error)),
        }
    }
    let reasons: Vec<_> = rejected
        .iter()
        .map(|(name, error)| format!("{name}: {error}"))
        .collect();
    Err(Error::new(ErrorKind::Unavailable(format!(
        "no event source is available; {}",
        reasons.join("; ")
    ))))
}

/// Opens the best available source for policies: one of misses, combined with one for `mode` if the first does not cover
/// it. The second is opened and closed as policies need it ([`EventSource::set_mode`]).
///
/// # Errors
///
/// The errors of [`best`].
pub fn for_policies(mode: CaptureMode, namespace: &Namespace) -> Result<SelectedSource> {
    let mut misses = best(CaptureMode::Misses, namespace)?;
    let mut batched = None;
    if let Some(SelectedSource { source, rejected }) = accesses(mode, namespace, &*misses.source)? {
        misses.rejected.extend(rejected);
        batched = Some((mode, source));
    }
    let root = namespace.root().to_owned();
    let combined = CombinedSource::adaptive(root, misses.source, batched);
    Ok(SelectedSource {
        source: Box::new(combined),
        rejected: misses.rejected,
    })
}

/// A source for `mode` besides one of misses; `None` if that one covers it.
fn accesses(
    mode: CaptureMode,
    namespace: &Namespace,
    misses: &dyn EventSource,
) -> Result<Option<SelectedSource>> {
    if mode == CaptureMode::Misses {
        return Ok(None);
    }
    let selected = best(mode, namespace)?;
    // one source reports both, such as the shim
    Ok((selected.source.name() != misses.name()).then_some(selected))
}

/// An open source, and why better ones were rejected.
#[derive(Debug)]
pub struct SelectedSource {
    /// The source.
    pub source: Box<dyn EventSource>,
    /// Names of the better sources, and why each is not available.
    pub rejected: Vec<(&'static str, Error)>,
}

impl fmt::Display for SelectedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "events from {}, which does not report {}",
            self.source.name(),
            self.source.capabilities().limitations
        )?;
        self.rejected
            .iter()
            .try_for_each(|(name, error)| write!(f, "\n{name}: {error}"))
    }
}
