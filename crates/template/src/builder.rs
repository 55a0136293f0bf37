//! Builds a template from accesses, in the order in which they happen.

use std::collections::{BTreeMap, HashMap};

use crate::byte_set::ByteSet;
use crate::error::{Error, Result, quote};
use crate::{Access, AccessGroup, File, ServiceId, StridedFileRange, StridedRange, Template};

/// Collects files and accesses in order, merges neighbours and returns a [`Template`].
///
/// An access that continues or overlaps the previous one of its group is merged into it. Runs of
/// equal length at a constant stride are merged from the third on. The order of accesses that are
/// not merged is kept. A merged access has the time of its first bytes.
///
/// ```
/// use anamnesis_template::{TemplateBuilder, ByteRange, File};
///
/// let mut builder = TemplateBuilder::new();
/// let file = builder.file(File::new("model.safetensors", 4096)?)?;
/// for start in [0, 1024, 2048] {
///     builder.access(0, ByteRange { file, start, len: 1024 }, None)?;
/// }
/// let template = builder.finish();
/// assert_eq!(template.to_string(), "1 worker reads 3.1 kB of 1 file in 1 access");
/// # Ok::<(), anamnesis_template::Error>(())
/// ```
#[derive(Debug)]
pub struct TemplateBuilder {
    service: Option<ServiceId>,
    parameters: BTreeMap<Box<str>, Box<str>>,
    files: Vec<File>,
    paths: HashMap<Box<str>, u32>,
    groups: BTreeMap<u32, OpenGroup>,
    gap: u64,
    lookback: usize,
    once: bool,
}

/// A group to which accesses are added.
#[derive(Debug, Default)]
struct OpenGroup {
    name: Box<str>,
    accesses: Vec<Access>,
    /// Per file, the bytes that were accessed; filled only with `once`.
    seen: HashMap<u32, ByteSet>,
}

impl Default for TemplateBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl TemplateBuilder {
    /// Creates a builder that merges an access with the previous one if they touch.
    pub fn new() -> Self {
        Self {
            service: None,
            parameters: BTreeMap::new(),
            files: Vec::new(),
            paths: HashMap::new(),
            groups: BTreeMap::new(),
            gap: 0,
            lookback: 1,
            once: false,
        }
    }

    /// Merges across gaps of up to `bytes`, also between runs; the gaps become part of the access.
    /// Default 0: the template contains exactly the accessed bytes. For a page cache 4095 is free
    /// of cost, because such a gap contains no whole page.
    #[must_use]
    pub fn gap(mut self, bytes: u64) -> Self {
        self.gap = bytes;
        self
    }

    /// Sets the number of previous accesses of a group with which a new one may be merged. Default
    /// 1. About the number of threads with which a worker reads is a good value.
    #[must_use]
    pub fn lookback(mut self, accesses: usize) -> Self {
        self.lookback = accesses.max(1);
        self
    }

    /// Omits bytes that the group has accessed before. Default off. Needs memory for every run.
    #[must_use]
    pub fn once(mut self, once: bool) -> Self {
        self.once = once;
        self
    }

    /// Sets the service for which the template is made.
    pub fn service(&mut self, id: ServiceId) -> &mut Self {
        self.service = Some(id);
        self
    }

    /// Sets a run-time parameter for which the template is made. A later value of the same key
    /// replaces an earlier one.
    pub fn parameter(&mut self, key: &str, value: &str) -> &mut Self {
        self.parameters.insert(key.into(), value.into());
        self
    }

    /// Adds a file and returns its number. A path that was added before keeps its number, and
    /// receives the time and key if it had none.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a path that [`File::new`] refuses;
    /// [`Conflict`](crate::ErrorKind::Conflict) for a path that was added with another length or
    /// key.
    pub fn file(&mut self, file: File) -> Result<u32> {
        crate::file::check_path(&file.path)?;
        if let Some(&number) = self.paths.get(&file.path) {
            let known = &mut self.files[usize::try_from(number).expect("an index")];
            if !known.same(&file) {
                let what = format!(
                    "{} was added before with another length or content",
                    quote(&file.path)
                );
                return Err(Error::new(crate::ErrorKind::Conflict(what)));
            }
            // the first that is known: sources learn it at different times
            known.key = known.key.or(file.key);
            known.mtime = known.mtime.or(file.mtime);
            return Ok(number);
        }
        let number = u32::try_from(self.files.len())
            .map_err(|_| Error::invalid("a template has at most 2³² files"))?;
        self.paths.insert(file.path.clone(), number);
        self.files.push(file);
        Ok(number)
    }

    /// Names a group, and creates it if it does not exist.
    pub fn group(&mut self, rank: u32, name: &str) -> &mut Self {
        self.groups.entry(rank).or_default().name = name.into();
        self
    }

    /// Sets the accesses of a group to a template's accesses, unmerged. `more` says that other accesses will follow.
    pub(crate) fn adopt(&mut self, rank: u32, accesses: Vec<Access>, more: bool) {
        let group = self.groups.entry(rank).or_default();
        // the set of bytes is needed only to leave out what later accesses repeat, and takes memory for every run
        for access in accesses.iter().filter(|_| more) {
            group
                .seen
                .entry(access.file)
                .or_default()
                .add(&access.bytes);
        }
        group.accesses = accesses;
    }

    /// Adds an access of worker `rank`, `at` microseconds after the load began. A range of no bytes
    /// adds nothing.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if the file was not added, the bytes end after the
    /// file, runs overlap, there are 2³² runs or more, or the time is 2⁶² or more.
    pub fn access(
        &mut self,
        rank: u32,
        range: impl Into<StridedFileRange>,
        at: Option<u64>,
    ) -> Result<()> {
        let StridedFileRange { file, bytes: given } = range.into();
        // the form counts runs with 32 bits, and 2³² runs are no access of a loader
        let counted = u32::try_from(given.count).is_ok();
        let bytes = StridedRange::strided(given.start, given.len, given.count, given.stride)
            .filter(|_| counted)
            .ok_or_else(|| {
                Error::invalid(format!(
                    "the runs {given} overlap, are more than 2³² - 1, or end beyond 64 bits"
                ))
            })?;
        Template::check(&self.files, &StridedFileRange { file, bytes })?;
        // the binary form has differences of times, which must not overflow
        if at.is_some_and(|at| at >> 62 != 0) {
            return Err(Error::invalid(
                "the time of an access must be below 2⁶² microseconds",
            ));
        }
        let (gap, lookback) = (self.gap, self.lookback);
        let group = self.groups.entry(rank).or_default();
        // after the checks: an empty range beyond its file is an error, too
        if bytes.len == 0 {
            return Ok(());
        }
        // runs whose gaps are allowed are one run: a page cache would read the gaps anyway
        let bytes = if bytes.count > 1 && bytes.gap() <= gap {
            bytes.covering()
        } else {
            bytes
        };
        if !self.once {
            group.push(Access { file, bytes, at }, gap, lookback);
            return Ok(());
        }
        for bytes in group.seen.entry(file).or_default().take_new(&bytes) {
            group.push(Access { file, bytes, at }, gap, lookback);
        }
        Ok(())
    }

    /// Returns the template.
    pub fn finish(self) -> Template {
        let finished = |(rank, group): (u32, OpenGroup)| AccessGroup {
            rank,
            name: group.name,
            accesses: group.accesses,
        };
        Template {
            service: self.service,
            parameters: self.parameters,
            files: self.files,
            groups: self.groups.into_iter().map(finished).collect(),
        }
    }
}

impl OpenGroup {
    fn push(&mut self, new: Access, gap: u64, lookback: usize) {
        let joined = self
            .accesses
            .iter_mut()
            .rev()
            .take(lookback)
            .any(|old| join(old, &new, gap));
        if !joined && !extend_runs(&mut self.accesses, &new) {
            self.accesses.push(new);
        }
    }
}

/// Extends `old` by `new` if both are single runs of one file, and `new` continues or overlaps
/// `old`.
fn join(old: &mut Access, new: &Access, gap: u64) -> bool {
    let single = old.bytes.count == 1 && new.bytes.count == 1 && old.file == new.file;
    let (old, new) = (&mut old.bytes, &new.bytes);
    let touches = if new.start >= old.start {
        new.start <= old.end().saturating_add(gap)
    } else {
        // A range before `old` is merged only if it overlaps: merging ranges that merely touch
        // would reverse the order of a reader that goes backwards.
        new.end() > old.start
    };
    if !(single && touches) {
        return false;
    }
    let end = old.end().max(new.end());
    old.start = old.start.min(new.start);
    old.len = end - old.start;
    true
}

/// Makes `new` the next run of the last access, or merges the last two accesses and `new` into one
/// of three runs if all have the same length and distance. Two accesses alone are not merged: any
/// two ranges have some distance.
fn extend_runs(accesses: &mut Vec<Access>, new: &Access) -> bool {
    let same_shape = |old: &Access| old.file == new.file && old.bytes.len == new.bytes.len;
    let Some(last) = accesses.last_mut().filter(|last| same_shape(last)) else {
        return false;
    };
    let (last, bytes) = (&mut last.bytes, &new.bytes);
    if last.count > 1 {
        let next = last
            .start
            .checked_add(last.count.saturating_mul(last.stride));
        let continues =
            next == Some(bytes.start) && (bytes.count == 1 || bytes.stride == last.stride);
        // The file format counts runs with 32 bits.
        let count = last.count + bytes.count;
        let fits = continues && u32::try_from(count).is_ok();
        if fits {
            last.count = count;
        }
        return fits;
    }
    let last = *last;
    let [.., before, _] = &mut accesses[..] else {
        return false;
    };
    let stride = last
        .start
        .checked_sub(before.bytes.start)
        .filter(|&stride| stride > bytes.len);
    let fits = stride.is_some() && bytes.start.checked_sub(last.start) == stride;
    if !(fits && same_shape(before) && before.bytes.count == 1 && bytes.count == 1) {
        return false;
    }
    (before.bytes.count, before.bytes.stride) = (3, stride.unwrap_or(0));
    accesses.pop();
    true
}
