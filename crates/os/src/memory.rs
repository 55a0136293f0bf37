//! Memory limit and usage of a control group or the machine.
//!
//! Outside of Linux there is no `/proc/meminfo`, and every query returns an error.

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::cgroup::{CgroupMount, CgroupMounts, Cgroups};
use crate::error::{Error, Result};

/// The processes whose memory is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryScope {
    /// The control group of this process.
    Own,
    /// The control group of a process.
    Process(u32),
    /// A control group, by its directory.
    Group(PathBuf),
    /// The whole machine.
    Machine,
}

/// The limit that a [`MemoryUsage`] refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "lowercase")
)]
pub enum LimitSource {
    /// The limit of a group of cgroup v1, by its directory.
    V1(PathBuf),
    /// The limit of a group of cgroup v2, by its directory.
    V2(PathBuf),
    /// The memory of the machine.
    Machine,
}

/// A reading of memory limit and usage, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct MemoryUsage {
    /// Bytes that may be used.
    pub limit: u64,
    /// Bytes in use: of a group including its page cache, of the machine `MemTotal − MemAvailable`.
    pub used: u64,
    /// Bytes of page cache. Included in `used` of a group; mostly not included in `used` of the machine.
    pub file: u64,
    /// The limit that was read.
    pub source: LimitSource,
}

impl MemoryUsage {
    /// `used / limit`; can exceed 1 while the kernel reclaims.
    pub fn share(&self) -> f64 {
        ratio(self.used, self.limit)
    }

    /// `file / limit`.
    pub fn file_share(&self) -> f64 {
        ratio(self.file, self.limit)
    }

    /// Bytes that can be added before `threshold` (0 to 1) of the limit is in use.
    pub fn room(&self, threshold: f64) -> u64 {
        self.below(threshold).saturating_sub(self.used)
    }

    /// `threshold` (0 to 1) of the limit, in bytes.
    pub fn below(&self, threshold: f64) -> u64 {
        let limit = u128::from(self.limit) * u128::from(per_mille(threshold)) / 1000;
        u64::try_from(limit).unwrap_or(u64::MAX)
    }

    /// See [`MemoryMeter::cache_room`]; of a group with this many bytes of inactive pages of files.
    fn cache_room(&self, threshold: f64, own: u64, inactive: u64) -> u64 {
        let needed = self.used.saturating_sub(inactive).saturating_add(own);
        // without any eviction, or by eviction of inactive pages
        self.room(threshold)
            .max(self.below(threshold).saturating_sub(needed))
    }

    /// Bytes in use that are not page cache, which eviction cannot free.
    pub fn held(&self) -> u64 {
        match self.source {
            LimitSource::Machine => self.used,
            LimitSource::V1(_) | LimitSource::V2(_) => self.used.saturating_sub(self.file),
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "compared with thresholds and printed"
)]
fn ratio(part: u64, of: u64) -> f64 {
    if of == 0 {
        // a group without memory is full
        1.0
    } else {
        part as f64 / of as f64
    }
}

/// A share (0 to 1) in thousandths, so that limits are scaled in integers.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the value is between 0 and 1000"
)]
fn per_mille(share: f64) -> u32 {
    (share.clamp(0.0, 1.0) * 1000.0).round() as u32
}

/// Reads the memory usage of a scope, whose control groups it looks up once.
#[derive(Clone, Debug)]
pub struct MemoryMeter {
    /// Cgroups with a memory controller, each with its ancestors.
    groups: Vec<LimitSource>,
}

impl MemoryMeter {
    /// A meter for this scope. The limits of all ancestors of its groups apply; without any, the memory of the machine is the
    /// limit.
    ///
    /// ```
    /// use anamnesis_os::memory::{MemoryMeter, MemoryScope};
    /// # #[cfg(target_os = "linux")] {
    /// let usage = MemoryMeter::of(&MemoryScope::Own)?.usage()?;
    /// println!("{:.0} % of {} bytes, {} bytes below 90 %", 100.0 * usage.share(), usage.limit, usage.room(0.9));
    /// # }
    /// # Ok::<_, anamnesis_os::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// There is no such process, or the directory is not a control group.
    pub fn of(scope: &MemoryScope) -> Result<Self> {
        if *scope == MemoryScope::Machine {
            return Ok(Self { groups: Vec::new() });
        }
        let mounts = CgroupMounts::read()?;
        let groups = match scope {
            MemoryScope::Own | MemoryScope::Machine => Cgroups::of("self", &mounts)?,
            MemoryScope::Process(pid) => Cgroups::of(&pid.to_string(), &mounts)?,
            MemoryScope::Group(dir) => Cgroups::at(dir, &mounts)?,
        };
        let lineage = |group: Option<PathBuf>, mount: &Option<CgroupMount>| match (group, mount) {
            (Some(group), Some(mount)) => mount.lineage(&group),
            _ => Vec::new(),
        };
        let v1 = lineage(groups.memory, &mounts.memory)
            .into_iter()
            .map(LimitSource::V1);
        let v2 = lineage(groups.unified, &mounts.unified)
            .into_iter()
            .map(LimitSource::V2);
        Ok(Self {
            groups: v1.chain(v2).collect(),
        })
    }

    /// The current usage of the group, among the scope's groups and their ancestors, that uses the largest share of its limit;
    /// of the machine if no group has a limit below the machine's memory.
    ///
    /// # Errors
    ///
    /// `/proc/meminfo` cannot be read or lacks `MemAvailable`.
    pub fn usage(&self) -> Result<MemoryUsage> {
        let usage = self.usage_without_file()?;
        let file = cached(&usage.source).unwrap_or(usage.file);
        Ok(MemoryUsage { file, ..usage })
    }

    /// Like [`MemoryMeter::usage`], with [`MemoryUsage::file`] 0 for a group. Cheaper, because reading `memory.stat` makes
    /// the kernel sum the counters of every core, and that takes longer the more pages were charged since the last reading.
    ///
    /// # Errors
    ///
    /// The errors of [`MemoryMeter::usage`].
    pub fn usage_without_file(&self) -> Result<MemoryUsage> {
        let machine = machine_usage()?;
        // the group that is closest to its limit is the one whose limit is reached first
        let used = self
            .groups
            .iter()
            .filter_map(|group| of_group(group, machine.limit));
        Ok(used
            .max_by(|a, b| a.share().total_cmp(&b.share()))
            .unwrap_or(machine))
    }

    /// Bytes of files that can be read into the page cache before `threshold` (0 to 1) of a limit is in use, where `own` bytes
    /// of them were read before and are to stay: the least over all groups of the scope and the machine.
    ///
    /// Inactive pages of other files count as free, because the kernel evicts them first; a group that has read files for a
    /// while is always full of them. Pages in use by programs and active pages of files do not.
    ///
    /// # Errors
    ///
    /// The errors of [`MemoryMeter::usage`].
    pub fn cache_room(&self, threshold: f64, own: u64) -> Result<u64> {
        let machine = machine_usage()?;
        let groups = self.groups.iter().filter_map(|group| {
            let usage = of_group(group, machine.limit)?;
            Some(usage.cache_room(threshold, own, inactive(group).unwrap_or(0)))
        });
        // available memory includes the inactive pages
        let whole = machine.below(threshold).saturating_sub(machine.used);
        Ok(groups.fold(whole.saturating_sub(own), u64::min))
    }

    /// The directory of the scope's group under cgroup v2, if there is one.
    pub fn unified(&self) -> Option<&Path> {
        self.groups.iter().find_map(|group| match group {
            LimitSource::V2(dir) => Some(dir.as_path()),
            LimitSource::V1(_) | LimitSource::Machine => None,
        })
    }
}

/// `None` if the group was removed or has no limit below `most`.
fn of_group(group: &LimitSource, most: u64) -> Option<MemoryUsage> {
    let number = |dir: &Path, file: &str| {
        fs::read_to_string(dir.join(file))
            .ok()?
            .trim()
            .parse::<u64>()
            .ok()
    };
    let (dir, limit, used) = match group {
        LimitSource::V1(dir) => (
            dir,
            number(dir, "memory.limit_in_bytes"),
            "memory.usage_in_bytes",
        ),
        LimitSource::V2(dir) => {
            // above `memory.high` the kernel reclaims and delays the group, so it limits as `memory.max` does; `max`
            // does not parse and is no limit
            let limits = [number(dir, "memory.max"), number(dir, "memory.high")];
            (dir, limits.into_iter().flatten().min(), "memory.current")
        }
        LimitSource::Machine => return None,
    };
    // cgroup v1 has no word for "no limit" and reports 2^63 less a page
    let limit = limit.filter(|&limit| limit < most)?;
    Some(MemoryUsage {
        limit,
        used: number(dir, used)?,
        file: 0,
        source: group.clone(),
    })
}

/// Page-cache bytes charged to a group.
fn cached(group: &LimitSource) -> Option<u64> {
    let (dir, name) = match group {
        // with the group's descendants, as the usage counts them
        LimitSource::V1(dir) => (dir, "total_cache"),
        LimitSource::V2(dir) => (dir, "file"),
        LimitSource::Machine => return None,
    };
    field(&fs::read_to_string(dir.join("memory.stat")).ok()?, name)
}

/// Inactive pages of files that are charged to a group, in bytes.
fn inactive(group: &LimitSource) -> Option<u64> {
    let (dir, name) = match group {
        LimitSource::V1(dir) => (dir, "total_inactive_file"),
        LimitSource::V2(dir) => (dir, "inactive_file"),
        LimitSource::Machine => return None,
    };
    field(&fs::read_to_string(dir.join("memory.stat")).ok()?, name)
}

fn machine_usage() -> Result<MemoryUsage> {
    let path = Path::new("/proc/meminfo");
    let text = fs::read_to_string(path).map_err(|error| Error::new(path, error))?;
    of_machine(&text).ok_or_else(|| {
        Error::message(
            path,
            io::ErrorKind::InvalidData,
            "no MemTotal or no MemAvailable",
        )
    })
}

fn of_machine(meminfo: &str) -> Option<MemoryUsage> {
    let bytes = |name| field(meminfo, name)?.checked_mul(1024);
    let (limit, available) = (bytes("MemTotal:")?, bytes("MemAvailable:")?);
    let file = bytes("Cached:").unwrap_or(0);
    Some(MemoryUsage {
        limit,
        used: limit.saturating_sub(available),
        file,
        source: LimitSource::Machine,
    })
}

/// The number that follows `name` at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().map(str::split_ascii_whitespace);
    let mut words = lines.find_map(|mut words| (words.next()? == name).then_some(words))?;
    words.next()?.parse().ok()
}
