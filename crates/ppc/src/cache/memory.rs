//! How much memory may be used, and how much is.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::cache::groups::{Groups, Mount, Mounts};
use crate::error::{Error, ErrorKind, Result};

/// Share of the limit above which nothing more is brought: below where the kernel begins to evict, which for a control
/// group is its limit, by what threads and read-ahead may have under way.
pub const THRESHOLD: f64 = 0.9;

/// Whose memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// That of this process's control group.
    Own,
    /// That of a process's control group.
    Process(u32),
    /// That of a control group, by its directory.
    Group(PathBuf),
    /// The machine's.
    Machine,
}

/// Whose limit it is that is nearest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// A group of cgroup v1, by its directory.
    V1(PathBuf),
    /// A group of cgroup v2.
    V2(PathBuf),
    /// The machine.
    Machine,
}

/// Memory in bytes, at a moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// What may be used.
    pub limit: u64,
    /// What is used. Of a group, with its page cache; of the machine, without what could be had at once
    /// (`MemTotal − MemAvailable`).
    pub used: u64,
    /// The page cache: of a group, part of `used`; of the machine, most of it is not.
    pub file: u64,
    /// Where the numbers are from.
    pub source: Source,
}

impl Usage {
    /// `used / limit`, in 0 to 1 and seldom beyond.
    pub fn share(&self) -> f64 {
        ratio(self.used, self.limit)
    }

    /// The page cache's share of the limit.
    pub fn file_share(&self) -> f64 {
        ratio(self.file, self.limit)
    }

    /// Bytes that can be brought before `threshold` of the limit is used.
    pub fn room(&self, threshold: f64) -> u64 {
        self.below(threshold).saturating_sub(self.used)
    }

    /// `threshold` of the limit, in bytes.
    pub fn below(&self, threshold: f64) -> u64 {
        let limit = u128::from(self.limit) * u128::from(per_mille(threshold)) / 1000;
        u64::try_from(limit).unwrap_or(u64::MAX)
    }

    /// What is used and is no page cache: eviction does not give it back.
    pub fn held(&self) -> u64 {
        match self.source {
            Source::Machine => self.used,
            Source::V1(_) | Source::V2(_) => self.used.saturating_sub(self.file),
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a share for people and thresholds"
)]
fn ratio(part: u64, of: u64) -> f64 {
    if of == 0 {
        1.0
    } else {
        part as f64 / of as f64
    }
}

/// A share in thousandths, 0 to 1.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is from 0 to 1000"
)]
fn per_mille(share: f64) -> u32 {
    (share.clamp(0.0, 1.0) * 1000.0).round() as u32
}

/// Where a scope's memory can be read, found once.
#[derive(Clone, Debug)]
pub struct Memory {
    /// Groups with a memory controller, each with its ancestors.
    groups: Vec<Source>,
}

impl Memory {
    /// Of this scope. Limits of all ancestors count; where no group has one, the machine's does.
    ///
    /// ```
    /// use anamnesis_ppc::cache::{Memory, Scope, THRESHOLD};
    /// let usage = Memory::of(&Scope::Own)?.usage()?;
    /// println!("{:.0} % of {} bytes, {} more may come", 100.0 * usage.share(), usage.limit, usage.room(THRESHOLD));
    /// # Ok::<_, anamnesis_ppc::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// No such process or group; a directory that is no group. The system's errors.
    pub fn of(scope: &Scope) -> Result<Self> {
        if *scope == Scope::Machine {
            return Ok(Self { groups: Vec::new() });
        }
        let mounts = Mounts::read()?;
        let groups = match scope {
            Scope::Own | Scope::Machine => Groups::of("self", &mounts)?,
            Scope::Process(pid) => Groups::of(&pid.to_string(), &mounts)?,
            Scope::Group(dir) => Groups::at(dir, &mounts)?,
        };
        let v1 = lineage(groups.memory, mounts.memory.as_ref())
            .into_iter()
            .map(Source::V1);
        let v2 = lineage(groups.unified, mounts.unified.as_ref())
            .into_iter()
            .map(Source::V2);
        Ok(Self {
            groups: v1.chain(v2).collect(),
        })
    }

    /// Now: of the group, of it and its ancestors, of whose limit the greatest share is used; or of the machine, if no
    /// group has a limit below the machine's memory.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] where `/proc/meminfo` is not to be read.
    pub fn usage(&self) -> Result<Usage> {
        let usage = self.used()?;
        let file = cached(&usage.source).unwrap_or(usage.file);
        Ok(Usage { file, ..usage })
    }

    /// The same, without the page cache of a group: for that the kernel sums up what each of its processors counted, which
    /// takes the longer the more was brought since.
    pub(crate) fn used(&self) -> Result<Usage> {
        let path = Path::new("/proc/meminfo");
        let text = fs::read_to_string(path).map_err(|error| Error::from(error).in_file(path))?;
        let machine = of_machine(&text).ok_or_else(|| {
            Error::new(ErrorKind::Unavailable(
                "no MemTotal and MemAvailable".into(),
            ))
            .in_file(path)
        })?;
        let used = self
            .groups
            .iter()
            .filter_map(|group| of_group(group, machine.limit));
        Ok(used
            .max_by(|a, b| a.share().total_cmp(&b.share()))
            .unwrap_or(machine))
    }

    /// The directory of the cgroup v2 group, if there is one with a memory controller.
    pub(super) fn unified(&self) -> Option<&Path> {
        self.groups.iter().find_map(|group| match group {
            Source::V2(dir) => Some(dir.as_path()),
            Source::V1(_) | Source::Machine => None,
        })
    }
}

/// A group's directory and those of its ancestors, up to where it is mounted.
fn lineage(group: Option<PathBuf>, mount: Option<&Mount>) -> Vec<PathBuf> {
    let (Some(group), Some(mount)) = (group, mount) else {
        return Vec::new();
    };
    group
        .ancestors()
        .take_while(|dir| dir.starts_with(&mount.at))
        .map(Path::to_owned)
        .collect()
}

/// `None` if the group has no limit below `most`, or is gone.
fn of_group(group: &Source, most: u64) -> Option<Usage> {
    let number = |dir: &Path, file: &str| {
        fs::read_to_string(dir.join(file))
            .ok()?
            .trim()
            .parse::<u64>()
            .ok()
    };
    let (dir, limit, used) = match group {
        Source::V1(dir) => (
            dir,
            number(dir, "memory.limit_in_bytes"),
            "memory.usage_in_bytes",
        ),
        Source::V2(dir) => {
            let limits = [number(dir, "memory.max"), number(dir, "memory.high")];
            (dir, limits.into_iter().flatten().min(), "memory.current")
        }
        Source::Machine => return None,
    };
    let limit = limit.filter(|&limit| limit < most)?;
    Some(Usage {
        limit,
        used: number(dir, used)?,
        file: 0,
        source: group.clone(),
    })
}

/// The page cache of a group.
fn cached(group: &Source) -> Option<u64> {
    let (dir, name) = match group {
        Source::V1(dir) => (dir, "total_cache"),
        Source::V2(dir) => (dir, "file"),
        Source::Machine => return None,
    };
    field(&fs::read_to_string(dir.join("memory.stat")).ok()?, name)
}

fn of_machine(meminfo: &str) -> Option<Usage> {
    let bytes = |name| field(meminfo, name)?.checked_mul(1024);
    let (limit, available) = (bytes("MemTotal:")?, bytes("MemAvailable:")?);
    let file = bytes("Cached:").unwrap_or(0);
    Some(Usage {
        limit,
        used: limit.saturating_sub(available),
        file,
        source: Source::Machine,
    })
}

/// The number behind a name at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().map(str::split_ascii_whitespace);
    let mut words = lines.find_map(|mut words| (words.next()? == name).then_some(words))?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine() {
        let meminfo = "MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:  400 kB\nBuffers: 7 kB\nCached: 300 kB\n";
        let usage = of_machine(meminfo).unwrap();
        assert_eq!(
            (usage.limit, usage.used, usage.file),
            (1_024_000, 614_400, 307_200)
        );
        assert_eq!(
            (usage.room(0.8), usage.room(0.5), usage.held()),
            (204_800, 0, 614_400)
        );
        assert!((usage.share() - 0.6).abs() < 1e-9);
        assert!(of_machine("MemTotal: 1 kB\n").is_none());
        let read = Memory::of(&Scope::Machine).unwrap().usage().unwrap();
        assert!(read.source == Source::Machine && read.used < read.limit);
    }

    #[test]
    fn the_fullest_limit_counts() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("outer/inner");
        fs::create_dir_all(&inner).unwrap();
        let write = |group: &Path, files: &[(&str, &str)]| {
            for (file, text) in files {
                fs::write(group.join(file), text).unwrap();
            }
        };
        let outer = inner.parent().unwrap();
        write(
            outer,
            &[
                ("memory.max", "max\n"),
                ("memory.high", "1000\n"),
                ("memory.current", "900\n"),
            ],
        );
        write(outer, &[("memory.stat", "anon 5\nfile 600\n")]);
        write(
            &inner,
            &[
                ("memory.max", "2000\n"),
                ("memory.high", "max\n"),
                ("memory.current", "800\n"),
            ],
        );
        let groups = |of: fn(PathBuf) -> Source| {
            let lineage = lineage(Some(inner.clone()), Some(&Mount::whole(dir.path())));
            Memory {
                groups: lineage.into_iter().map(of).collect(),
            }
        };
        let usage = groups(Source::V2).usage().unwrap();
        assert_eq!(
            usage,
            Usage {
                limit: 1000,
                used: 900,
                file: 600,
                source: Source::V2(outer.to_owned())
            }
        );
        assert_eq!((usage.held(), usage.room(0.95)), (300, 50));
        // cgroup v1, and a parent without a limit
        write(
            outer,
            &[
                ("memory.limit_in_bytes", "9223372036854771712\n"),
                ("memory.usage_in_bytes", "900\n"),
            ],
        );
        write(
            &inner,
            &[
                ("memory.limit_in_bytes", "4000\n"),
                ("memory.usage_in_bytes", "3000\n"),
            ],
        );
        write(&inner, &[("memory.stat", "cache 1\ntotal_cache 2500\n")]);
        let usage = groups(Source::V1).usage().unwrap();
        assert_eq!((usage.limit, usage.used, usage.file), (4000, 3000, 2500));
        assert!((usage.file_share() - 0.625).abs() < 1e-9);
    }

    #[test]
    fn own_and_unknown() {
        Memory::of(&Scope::Own).unwrap().usage().unwrap();
        Memory::of(&Scope::Process(std::process::id()))
            .unwrap()
            .usage()
            .unwrap();
        Memory::of(&Scope::Process(u32::MAX)).unwrap_err();
        Memory::of(&Scope::Group("/tmp".into())).unwrap_err();
    }
}
