//! The template: files, groups, accesses. Immutable once it is built or read.

use std::collections::BTreeMap;
use std::fmt;

use crate::error::{Error, Result, quote};
use crate::{File, Runs, ServiceId};

/// One access: bytes of one file that a worker reads at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Access {
    /// Which bytes.
    pub runs: Runs,
    /// When, in microseconds since the load began, where that is known: when the first of its bytes were read.
    pub at: Option<u64>,
}

/// What one worker reads, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub(crate) rank: u32,
    pub(crate) name: Box<str>,
    pub(crate) accesses: Vec<Access>,
}

/// Which worker of an inference service reads which bytes of a model, in which order.
///
/// Made by a [`Builder`](crate::Builder), read by [`from_bytes`](Self::from_bytes), [`from_json`](Self::from_json) or
/// [`load`](Self::load). It is plain data, `Send`, and does not change.
#[derive(Clone, PartialEq, Eq)]
pub struct Template {
    pub(crate) service: Option<ServiceId>,
    pub(crate) parameters: BTreeMap<Box<str>, Box<str>>,
    pub(crate) files: Vec<File>,
    pub(crate) groups: Vec<Group>,
}

impl Group {
    /// The worker's number, from 0, over all nodes of the service. No two groups have the same.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// A name for people; may be empty.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it reads, in order.
    pub fn accesses(&self) -> &[Access] {
        &self.accesses
    }

    /// Bytes of all its accesses; what is read twice counts twice.
    pub fn nbytes(&self) -> u64 {
        self.accesses
            .iter()
            .map(|access| access.runs.nbytes())
            .fold(0, u64::saturating_add)
    }
}

impl Template {
    /// The service it was made for: what [`service_id`](crate::service_id) gave its maker.
    pub fn service(&self) -> Option<ServiceId> {
        self.service
    }

    /// The run-time parameters it was made for, ascending by key.
    pub fn parameters(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.parameters
            .iter()
            .map(|(key, value)| (&**key, &**value))
    }

    /// The files, as [`Runs::file`] numbers them. No two have the same path.
    pub fn files(&self) -> &[File] {
        &self.files
    }

    /// The groups, ascending by rank.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// The group of this worker.
    pub fn group(&self, rank: u32) -> Option<&Group> {
        self.groups
            .binary_search_by_key(&rank, |group| group.rank)
            .ok()
            .map(|i| &self.groups[i])
    }

    /// All accesses with the rank of their group: group after group, in order.
    pub fn accesses(&self) -> impl Iterator<Item = (u32, &Access)> {
        self.groups
            .iter()
            .flat_map(|group| group.accesses.iter().map(|access| (group.rank, access)))
    }

    /// Bytes of all accesses; what two workers read counts twice.
    pub fn nbytes(&self) -> u64 {
        self.groups
            .iter()
            .map(Group::nbytes)
            .fold(0, u64::saturating_add)
    }

    /// The index of the file with this path. Looks through all of them.
    pub fn position(&self, path: &str) -> Option<u32> {
        self.files
            .iter()
            .position(|file| &*file.path == path)
            .and_then(|i| u32::try_from(i).ok())
    }

    /// Which of its files differ from what `now` says: changed, or not there. Empty means that the template is for
    /// these files.
    pub fn stale(&self, mut now: impl FnMut(&str) -> Option<File>) -> Vec<&File> {
        self.files
            .iter()
            .filter(|file| !now(&file.path).is_some_and(|other| other.same(file)))
            .collect()
    }

    /// What a file holds must be what a builder allows.
    pub(crate) fn check(files: &[File], runs: &Runs) -> Result<()> {
        let file = usize::try_from(runs.file).ok().and_then(|i| files.get(i));
        let Some(file) = file else {
            return Err(Error::invalid(format!(
                "an access to file {} of {}",
                runs.file,
                files.len()
            )));
        };
        match runs.checked_end() {
            Some(end) if end <= file.nbytes => Ok(()),
            _ => Err(Error::invalid(format!(
                "bytes {runs} of {} reach behind its end at {}",
                quote(&file.path),
                file.nbytes
            ))),
        }
    }
}

/// One line: `4 workers read 145 GB of 37 files in 3212 accesses`.
impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let accesses: usize = self.groups.iter().map(|group| group.accesses.len()).sum();
        let plural =
            |n: usize, one: &str, many: &str| format!("{n} {}", if n == 1 { one } else { many });
        write!(
            f,
            "{} {} of {} in {}",
            plural(self.groups.len(), "worker reads", "workers read"),
            Bytes(self.nbytes()),
            plural(self.files.len(), "file", "files"),
            plural(accesses, "access", "accesses")
        )?;
        self.parameters
            .iter()
            .try_for_each(|(key, value)| write!(f, " {key}={value}"))
    }
}

/// Short: counts, not accesses.
impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Template({self}")?;
        match self.service {
            Some(id) => write!(f, ", service {id})"),
            None => write!(f, ")"),
        }
    }
}

/// A number of bytes with three digits, in powers of ten.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut scaled = self.0 as f64;
        let mut units = ["kB", "MB", "GB", "TB", "PB", "EB"].iter();
        let mut unit = "B";
        while scaled >= 999.5 {
            scaled /= 1000.0;
            unit = units.next().expect("64 bits are 18 EB");
        }
        let digits = if unit == "B" || scaled >= 99.95 { 0 } else { 1 };
        write!(f, "{scaled:.digits$} {unit}")
    }
}
