//! Building a template from accesses as they come.

use std::collections::{BTreeMap, HashMap};

use crate::error::{Error, Result, quote};
use crate::ranges::Ranges;
use crate::{Access, ByteRange, File, Group, Runs, ServiceId, Template};

/// Takes files and accesses in order, merges neighbours, gives a [`Template`].
///
/// An access that continues or overlaps the one before it in its group becomes part of it, and so do runs of equal
/// length at a constant stride, from the third on. The order of what is not merged is kept. A merged access has the
/// time of its first bytes.
///
/// ```
/// use anamnesis_template::{Builder, ByteRange, File};
///
/// let mut builder = Builder::new();
/// let file = builder.file(File::new("model.safetensors", 4096)?)?;
/// for start in [0, 1024, 2048] {
///     builder.access(0, ByteRange { file, start, len: 1024 }, None)?;
/// }
/// let template = builder.finish();
/// assert_eq!(template.to_string(), "1 worker reads 3.1 kB of 1 file in 1 access");
/// # Ok::<(), anamnesis_template::Error>(())
/// ```
#[derive(Debug)]
pub struct Builder {
    service: Option<ServiceId>,
    parameters: BTreeMap<Box<str>, Box<str>>,
    files: Vec<File>,
    paths: HashMap<Box<str>, u32>,
    groups: BTreeMap<u32, Open>,
    gap: u64,
    lookback: usize,
    once: bool,
}

/// A group that accesses are added to.
#[derive(Debug, Default)]
struct Open {
    name: Box<str>,
    accesses: Vec<Access>,
    /// Bytes per file that were accessed, kept for `once`.
    seen: HashMap<u32, Ranges>,
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl Builder {
    /// A builder that merges what touches, and only with the access before.
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

    /// Merges across gaps of up to `bytes`, which become part of the access, also between runs. Default 0: the
    /// template holds exactly what was accessed. A page cache loses nothing by 4095: such a gap holds no whole page.
    #[must_use]
    pub fn gap(mut self, bytes: u64) -> Self {
        self.gap = bytes;
        self
    }

    /// How many of a group's last accesses a new one may be merged with. Default 1; about the number of threads that
    /// a worker reads with.
    #[must_use]
    pub fn lookback(mut self, accesses: usize) -> Self {
        self.lookback = accesses.max(1);
        self
    }

    /// Leaves out what a group has accessed before. Default off. Costs memory for every run.
    #[must_use]
    pub fn once(mut self, once: bool) -> Self {
        self.once = once;
        self
    }

    /// The service that the template is for.
    pub fn service(&mut self, id: ServiceId) -> &mut Self {
        self.service = Some(id);
        self
    }

    /// A run-time parameter that the template is for. The last value of a key counts.
    pub fn parameter(&mut self, key: &str, value: &str) -> &mut Self {
        self.parameters.insert(key.into(), value.into());
        self
    }

    /// Adds a file and gives its number. A path that is there already keeps its number, and learns the time and key
    /// if it had none.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a path that [`File::new`] refuses;
    /// [`Conflict`](crate::ErrorKind::Conflict) for a path that is there with another length or key.
    pub fn file(&mut self, file: File) -> Result<u32> {
        crate::file::check_path(&file.path)?;
        if let Some(&number) = self.paths.get(&file.path) {
            let known = &mut self.files[usize::try_from(number).expect("an index")];
            if !known.same(&file) {
                let what = format!(
                    "{} has another length or content than before",
                    quote(&file.path)
                );
                return Err(Error::new(crate::ErrorKind::Conflict(what)));
            }
            known.key = known.key.or(file.key);
            known.mtime = known.mtime.or(file.mtime);
            return Ok(number);
        }
        let number =
            u32::try_from(self.files.len()).map_err(|_| Error::invalid("more than 2³² files"))?;
        self.paths.insert(file.path.clone(), number);
        self.files.push(file);
        Ok(number)
    }

    /// Names a group, and makes it if it is not there.
    pub fn group(&mut self, rank: u32, name: &str) -> &mut Self {
        self.groups.entry(rank).or_default().name = name.into();
        self
    }

    /// Sets the accesses of a group as they are; those of a template. `more` if others will be added to them.
    pub(crate) fn adopt(&mut self, rank: u32, accesses: Vec<Access>, more: bool) {
        let group = self.groups.entry(rank).or_default();
        for access in accesses.iter().filter(|_| more) {
            group
                .seen
                .entry(access.runs.file)
                .or_default()
                .add(&access.runs);
        }
        group.accesses = accesses;
    }

    /// Adds what worker `rank` reads next, `at` microseconds after the load began. Nothing, if it has no bytes.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if the file was not added, the bytes reach behind its end, runs
    /// overlap, or the time is 2⁶² or more.
    pub fn access(&mut self, rank: u32, runs: impl Into<Runs>, at: Option<u64>) -> Result<()> {
        let given: Runs = runs.into();
        let first = ByteRange {
            file: given.file,
            start: given.start,
            len: given.len,
        };
        let runs = Runs::strided(first, given.count, given.stride).ok_or_else(|| {
            Error::invalid(format!("runs {given} overlap or reach beyond 64 bits"))
        })?;
        Template::check(&self.files, &runs)?;
        if at.is_some_and(|at| at >> 62 != 0) {
            return Err(Error::invalid("a time of 2⁶² microseconds or more"));
        }
        let (gap, lookback) = (self.gap, self.lookback);
        let group = self.groups.entry(rank).or_default();
        if runs.len == 0 {
            return Ok(());
        }
        let runs = if runs.count > 1 && runs.stride - runs.len <= gap {
            runs.span().into()
        } else {
            runs
        };
        if !self.once {
            group.push(Access { runs, at }, gap, lookback);
            return Ok(());
        }
        for piece in group.seen.entry(runs.file).or_default().take_new(&runs) {
            group.push(Access { runs: piece, at }, gap, lookback);
        }
        Ok(())
    }

    /// The template.
    pub fn finish(self) -> Template {
        let group = |(rank, open): (u32, Open)| Group {
            rank,
            name: open.name,
            accesses: open.accesses,
        };
        Template {
            service: self.service,
            parameters: self.parameters,
            files: self.files,
            groups: self.groups.into_iter().map(group).collect(),
        }
    }
}

impl Open {
    fn push(&mut self, new: Access, gap: u64, lookback: usize) {
        let joined = self
            .accesses
            .iter_mut()
            .rev()
            .take(lookback)
            .any(|old| join(&mut old.runs, &new.runs, gap));
        if !joined && !fold(&mut self.accesses, &new) {
            self.accesses.push(new);
        }
    }
}

/// Makes `new` part of `old` if it continues or overlaps it.
fn join(old: &mut Runs, new: &Runs, gap: u64) -> bool {
    let single = old.count == 1 && new.count == 1 && old.file == new.file;
    let touches = if new.start >= old.start {
        new.start <= old.end().saturating_add(gap)
    } else {
        new.end() > old.start // from below only what overlaps: else a reader going backwards would be turned round
    };
    if !(single && touches) {
        return false;
    }
    let end = old.end().max(new.end());
    old.start = old.start.min(new.start);
    old.len = end - old.start;
    true
}

/// Makes `new` the next run of the access before, or of the two before if the three are equally long and equally far
/// apart.
fn fold(accesses: &mut Vec<Access>, new: &Access) -> bool {
    let new = &new.runs;
    let alike = |old: &Runs| old.file == new.file && old.len == new.len;
    let Some(last) = accesses
        .last_mut()
        .map(|access| &mut access.runs)
        .filter(|last| alike(last))
    else {
        return false;
    };
    if last.count > 1 {
        let next = last
            .start
            .checked_add(u64::from(last.count).saturating_mul(last.stride));
        let goes_on = next == Some(new.start) && (new.count == 1 || new.stride == last.stride);
        let count = last.count.checked_add(new.count).filter(|_| goes_on);
        last.count = count.unwrap_or(last.count);
        return count.is_some();
    }
    let last = *last;
    let [.., before, _] = &mut accesses[..] else {
        return false;
    };
    let before = &mut before.runs;
    let stride = last
        .start
        .checked_sub(before.start)
        .filter(|&stride| stride > new.len);
    let fits = stride.is_some() && new.start.checked_sub(last.start) == stride;
    if !(fits && alike(before) && before.count == 1 && new.count == 1) {
        return false;
    }
    (before.count, before.stride) = (3, stride.unwrap_or(0));
    accesses.pop();
    true
}
