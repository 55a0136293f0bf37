//! The control groups of a process or directory, under cgroup v1 and v2.
//!
//! Outside of Linux there is no `/proc/<pid>/cgroup`, and every query returns an error.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use crate::error::{Error, Result};

/// Mount points of the hierarchies that account for memory and I/O. Under cgroup v1 each controller has its own hierarchy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupMounts {
    /// The memory controller of cgroup v1.
    pub memory: Option<CgroupMount>,
    /// The block I/O controller of cgroup v1.
    pub blkio: Option<CgroupMount>,
    /// The hierarchy of cgroup v2.
    pub unified: Option<CgroupMount>,
}

/// A mounted hierarchy of control groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupMount {
    /// Path of the mounted group within the hierarchy; not `/` in a container that has a subtree mounted.
    root: PathBuf,
    /// Directory of the mount point.
    pub directory: PathBuf,
}

/// Directories of the control groups of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cgroups {
    /// The group of the memory controller, cgroup v1.
    pub memory: Option<PathBuf>,
    /// The group of the block I/O controller, cgroup v1.
    pub blkio: Option<PathBuf>,
    /// The group of cgroup v2.
    pub unified: Option<PathBuf>,
}

impl CgroupMounts {
    /// Reads the mounts of this process, from `/proc/self/mountinfo`.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn read() -> Result<Self> {
        let path = Path::new("/proc/self/mountinfo");
        let text = fs::read_to_string(path).map_err(|error| Error::new(path, error))?;
        Ok(Self::parse(&text))
    }

    fn parse(mountinfo: &str) -> Self {
        let mut mounts = Self::default();
        for line in mountinfo.lines() {
            let Some((left, right)) = line.split_once(" - ") else {
                continue;
            };
            // root and mount point are the fourth and fifth field; the optional fields that follow are of unknown
            // number, which is why the line is split at the dash first
            let (mut left, mut right) = (left.split(' ').skip(3), right.split(' '));
            let (Some(root), Some(directory)) = (left.next(), left.next()) else {
                continue;
            };
            let (kind, options) = (right.next().unwrap_or(""), right.nth(1).unwrap_or(""));
            let mount = || {
                Some(CgroupMount {
                    root: unescape(root).into(),
                    directory: unescape(directory).into(),
                })
            };
            match kind {
                // the first mount of a hierarchy; others show the same groups elsewhere
                "cgroup2" => mounts.unified = mounts.unified.or_else(mount),
                "cgroup" if options.split(',').any(|option| option == "memory") => {
                    mounts.memory = mounts.memory.or_else(mount)
                }
                "cgroup" if options.split(',').any(|option| option == "blkio") => {
                    mounts.blkio = mounts.blkio.or_else(mount)
                }
                _ => {}
            }
        }
        mounts
    }
}

impl CgroupMount {
    /// `group` and its ancestors up to the mount point, innermost first.
    pub fn lineage(&self, group: &Path) -> Vec<PathBuf> {
        group
            .ancestors()
            .take_while(|dir| dir.starts_with(&self.directory))
            .map(Path::to_owned)
            .collect()
    }

    #[cfg(test)]
    pub(crate) fn at(directory: &Path) -> Self {
        Self {
            root: "/".into(),
            directory: directory.to_owned(),
        }
    }
}

/// Decodes the octal escapes of `mountinfo`, as in `\040` for a blank.
fn unescape(path: &str) -> String {
    path.replace("\\040", " ")
        .replace("\\011", "\t")
        .replace("\\012", "\n")
        .replace("\\134", "\\")
}

impl Cgroups {
    /// The groups of a process, `self` or a process number, from `/proc/<process>/cgroup`.
    ///
    /// # Errors
    ///
    /// There is no such process, or the file cannot be read.
    pub fn of(process: &str, mounts: &CgroupMounts) -> Result<Self> {
        let path = PathBuf::from(format!("/proc/{process}/cgroup"));
        let text = fs::read_to_string(&path).map_err(|error| Error::new(&path, error))?;
        Ok(Self::parse(&text, mounts))
    }

    fn parse(groups: &str, mounts: &CgroupMounts) -> Self {
        let mut found = Self::default();
        for line in groups.lines() {
            // a group's name may contain colons
            let mut fields = line.splitn(3, ':');
            let (Some(number), Some(controllers), Some(path)) =
                (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            let below = |mount: &Option<CgroupMount>| {
                let mount = mount.as_ref()?;
                let path = Path::new(path).strip_prefix(&mount.root).ok()?;
                // `/../…` is a group outside of this cgroup namespace
                let visible = path
                    .components()
                    .all(|part| matches!(part, Component::Normal(_)));
                visible.then(|| mount.directory.join(path))
            };
            let controls = |name| controllers.split(',').any(|option| option == name);
            if (number, controllers) == ("0", "") {
                found.unified = below(&mounts.unified);
            }
            if controls("memory") {
                found.memory = below(&mounts.memory);
            }
            if controls("blkio") {
                found.blkio = below(&mounts.blkio);
            }
        }
        found
    }

    /// The group with directory `dir`, in the hierarchies that are mounted above it.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] if `dir` lies in no hierarchy; errors of resolving `dir`.
    pub fn at(dir: &Path, mounts: &CgroupMounts) -> Result<Self> {
        let dir = fs::canonicalize(dir).map_err(|error| Error::new(dir, error))?;
        let below = |mount: &Option<CgroupMount>| {
            mount
                .as_ref()
                .filter(|mount| dir.starts_with(&mount.directory))
                .map(|_| dir.clone())
        };
        let groups = Self {
            memory: below(&mounts.memory),
            blkio: below(&mounts.blkio),
            unified: below(&mounts.unified),
        };
        if groups == Self::default() {
            return Err(Error::message(
                &dir,
                io::ErrorKind::InvalidInput,
                "not a control group of the memory or blkio controller or of cgroup v2",
            ));
        }
        Ok(groups)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "31 1 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
        35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:3 - cgroup cgroup rw,memory\n\
        38 31 0:35 / /sys/fs/cgroup/blk\\040io rw,relatime - cgroup cgroup rw,cpu,blkio\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate\nbad\n";

    #[test]
    fn group_paths_are_resolved_against_the_mounts() {
        let mounts = CgroupMounts::parse(MOUNTS);
        assert_eq!(
            mounts.blkio.as_ref().map(|mount| &*mount.directory),
            Some(Path::new("/sys/fs/cgroup/blk io"))
        );
        let groups = Cgroups::parse(
            "7:cpu,blkio:/\n4:memory:/a/b:c\n2:memoryless:/x\n0::/u\nbad\n",
            &mounts,
        );
        assert_eq!(
            groups.memory.as_deref(),
            Some(Path::new("/sys/fs/cgroup/memory/a/b:c"))
        );
        assert_eq!(
            groups.blkio.as_deref(),
            Some(Path::new("/sys/fs/cgroup/blk io/"))
        );
        assert_eq!(
            groups.unified.as_deref(),
            Some(Path::new("/sys/fs/cgroup/unified/u"))
        );
        // a container with a subtree of the hierarchy
        let subtree = CgroupMounts::parse(
            "35 31 0:32 /docker/a /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
        );
        let groups = Cgroups::parse("4:memory:/docker/a/b\n", &subtree);
        assert_eq!(
            groups.memory.as_deref(),
            Some(Path::new("/sys/fs/cgroup/memory/b"))
        );
        assert_eq!(
            Cgroups::parse("4:memory:/docker/c\n", &subtree),
            Cgroups::default()
        );
        // outside of the cgroup namespace
        assert_eq!(
            Cgroups::parse("4:memory:/../../etc\n", &mounts),
            Cgroups::default()
        );
        assert_eq!(
            Cgroups::parse("4:memory:/a\n", &CgroupMounts::parse("")),
            Cgroups::default()
        );
    }
}
