//! The template: files, groups and accesses. Immutable once it is built or read.

use std::collections::BTreeMap;
use std::fmt;

use crate::error::{Error, Result, quote};
use crate::{File, ServiceId, StridedFileRange, StridedRange};

/// One access: bytes of one file that a worker reads in one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Access {
    /// Index into [`Template::files`].
    pub file: u32,
    /// The bytes of the file, in normal form.
    pub bytes: StridedRange,
    /// The time at which the first of its bytes were read, in microseconds since the load began, if
    /// known.
    pub at: Option<u64>,
}

/// The accesses of one worker, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessGroup {
    pub(crate) rank: u32,
    pub(crate) name: Box<str>,
    pub(crate) accesses: Vec<Access>,
}

/// Which worker of an inference service reads which bytes of a model, in which order.
///
/// Created by a [`TemplateBuilder`](crate::TemplateBuilder), or read by [`from_bytes`](Self::from_bytes),
/// [`from_json`](Self::from_json) or [`load`](Self::load). It is plain data, `Send`, and immutable.
#[derive(Clone, PartialEq, Eq)]
pub struct Template {
    pub(crate) service: Option<ServiceId>,
    pub(crate) parameters: BTreeMap<Box<str>, Box<str>>,
    pub(crate) files: Vec<File>,
    pub(crate) groups: Vec<AccessGroup>,
}

impl Access {
    /// Returns the file and the bytes, without the time.
    pub fn range(&self) -> StridedFileRange {
        StridedFileRange {
            file: self.file,
            bytes: self.bytes,
        }
    }
}

impl AccessGroup {
    /// The worker's rank, from 0, over all nodes of the service. Ranks are unique in a template.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// A display name; may be empty.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The accesses, in order.
    pub fn accesses(&self) -> &[Access] {
        &self.accesses
    }

    /// Bytes of all accesses; bytes that are read twice count twice.
    pub fn nbytes(&self) -> u64 {
        self.accesses
            .iter()
            .map(|access| access.bytes.nbytes())
            // saturating: the counts of an untrusted template may add up to more
            .fold(0, u64::saturating_add)
    }
}

impl Template {
    /// The service for which the template was made, as returned by
    /// [`service_id`](crate::service_id).
    pub fn service(&self) -> Option<ServiceId> {
        self.service
    }

    /// The run-time parameters for which the template was made, ascending by key.
    pub fn parameters(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.parameters
            .iter()
            .map(|(key, value)| (&**key, &**value))
    }

    /// The files, indexed by [`Access::file`]. Their paths are unique.
    pub fn files(&self) -> &[File] {
        &self.files
    }

    /// The groups, ascending by rank.
    pub fn groups(&self) -> &[AccessGroup] {
        &self.groups
    }

    /// Returns the group with this rank.
    pub fn group(&self, rank: u32) -> Option<&AccessGroup> {
        self.groups
            .binary_search_by_key(&rank, |group| group.rank)
            .ok()
            .map(|i| &self.groups[i])
    }

    /// All accesses with the rank of their group, group by group, in order.
    pub fn accesses(&self) -> impl Iterator<Item = (u32, &Access)> {
        self.groups
            .iter()
            .flat_map(|group| group.accesses.iter().map(|access| (group.rank, access)))
    }

    /// Bytes of all accesses; bytes that two workers read count twice.
    pub fn nbytes(&self) -> u64 {
        self.groups
            .iter()
            .map(AccessGroup::nbytes)
            .fold(0, u64::saturating_add)
    }

    /// Returns the index of the file with this path, by linear search.
    pub fn position(&self, path: &str) -> Option<u32> {
        self.files
            .iter()
            .position(|file| &*file.path == path)
            .and_then(|i| u32::try_from(i).ok())
    }

    /// Returns the files that differ from what `now` returns for their paths: changed or missing.
    /// If there are none, the template describes these files.
    pub fn stale(&self, mut now: impl FnMut(&str) -> Option<File>) -> Vec<&File> {
        self.files
            .iter()
            .filter(|file| !now(&file.path).is_some_and(|other| other.same(file)))
            .collect()
    }

    /// Checks that a range lies inside one of `files`. Used by the builder and the readers.
    pub(crate) fn check(files: &[File], range: &StridedFileRange) -> Result<()> {
        let file = usize::try_from(range.file).ok().and_then(|i| files.get(i));
        let Some(file) = file else {
            return Err(Error::invalid(format!(
                "an access to file {}, but the template has {} files",
                range.file,
                files.len()
            )));
        };
        match range.bytes.checked_end() {
            Some(end) if end <= file.nbytes => Ok(()),
            _ => Err(Error::invalid(format!(
                "bytes {} of {} end after the file of {} bytes",
                range.bytes,
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
            ByteCount(self.nbytes()),
            plural(self.files.len(), "file", "files"),
            plural(accesses, "access", "accesses")
        )?;
        self.parameters
            .iter()
            .try_for_each(|(key, value)| write!(f, " {key}={value}"))
    }
}

/// Writes the counts, not the accesses, of which there may be millions.
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
struct ByteCount(u64);

impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut scaled = self.0 as f64;
        let mut units = ["kB", "MB", "GB", "TB", "PB", "EB"].iter();
        let mut unit = "B";
        // at three digits, 999.5 is shown as 1000 of the smaller unit
        while scaled >= 999.5 {
            scaled /= 1000.0;
            unit = units.next().expect("64 bits are 18 EB");
        }
        // 99.95 would be shown as 100.0, with four digits
        let digits = if unit == "B" || scaled >= 99.95 { 0 } else { 1 };
        write!(f, "{scaled:.digits$} {unit}")
    }
}
