//! Control groups: where a process is, and going there.

use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};

/// Where the hierarchies that count memory and I/O are mounted. Those of cgroup v1 are one for each controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mounts {
    pub(super) memory: Option<Mount>,
    pub(super) blkio: Option<Mount>,
    pub(super) unified: Option<Mount>,
}

/// A hierarchy that is seen here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// The group that is the topmost to be seen; in containers it may not be `/`.
    top: PathBuf,
    /// Its directory.
    pub(super) at: PathBuf,
}

/// The groups of a process, as directories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Groups {
    pub(super) memory: Option<PathBuf>,
    pub(super) blkio: Option<PathBuf>,
    pub(super) unified: Option<PathBuf>,
}

impl Mounts {
    pub(super) fn read() -> Result<Self> {
        let path = Path::new("/proc/self/mountinfo");
        let text = fs::read_to_string(path).map_err(|error| Error::from(error).in_file(path))?;
        Ok(Self::parse(&text))
    }

    fn parse(mountinfo: &str) -> Self {
        let mut mounts = Self::default();
        for line in mountinfo.lines() {
            let Some((left, right)) = line.split_once(" - ") else {
                continue;
            };
            let (mut left, mut right) = (left.split(' ').skip(3), right.split(' '));
            let (Some(top), Some(at)) = (left.next(), left.next()) else {
                continue;
            };
            let (kind, options) = (right.next().unwrap_or(""), right.nth(1).unwrap_or(""));
            let at = || {
                Some(Mount {
                    top: unescape(top).into(),
                    at: unescape(at).into(),
                })
            };
            match kind {
                "cgroup2" => mounts.unified = mounts.unified.or_else(at),
                "cgroup" if options.split(',').any(|it| it == "memory") => {
                    mounts.memory = mounts.memory.or_else(at)
                }
                "cgroup" if options.split(',').any(|it| it == "blkio") => {
                    mounts.blkio = mounts.blkio.or_else(at)
                }
                _ => {}
            }
        }
        mounts
    }
}

impl Mount {
    #[cfg(test)]
    pub(super) fn whole(at: &Path) -> Self {
        Self {
            top: "/".into(),
            at: at.to_owned(),
        }
    }
}

/// Blanks in paths are written as `\040`.
fn unescape(path: &str) -> String {
    path.replace("\\040", " ")
        .replace("\\011", "\t")
        .replace("\\012", "\n")
        .replace("\\134", "\\")
}

impl Groups {
    /// Of a process, `self` or a number.
    pub(super) fn of(process: &str, mounts: &Mounts) -> Result<Self> {
        let path = PathBuf::from(format!("/proc/{process}/cgroup"));
        let text = fs::read_to_string(&path).map_err(|error| Error::from(error).in_file(&path))?;
        Ok(Self::parse(&text, mounts))
    }

    fn parse(groups: &str, mounts: &Mounts) -> Self {
        let mut found = Self::default();
        for line in groups.lines() {
            let mut fields = line.splitn(3, ':');
            let (Some(number), Some(controllers), Some(path)) =
                (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            let below = |mount: &Option<Mount>| {
                let mount = mount.as_ref()?;
                let path = Path::new(path).strip_prefix(&mount.top).ok()?;
                // `/../…`: a group outside of what this namespace of groups shows
                let seen = path
                    .components()
                    .all(|part| matches!(part, Component::Normal(_)));
                seen.then(|| mount.at.join(path))
            };
            let controls = |name| controllers.split(',').any(|it| it == name);
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

    /// The groups of a directory: that one, in the hierarchy that it is of.
    pub(super) fn at(dir: &Path, mounts: &Mounts) -> Result<Self> {
        let dir = fs::canonicalize(dir).map_err(|error| Error::from(error).in_file(dir))?;
        let below = |mount: &Option<Mount>| {
            mount
                .as_ref()
                .filter(|it| dir.starts_with(&it.at))
                .map(|_| dir.clone())
        };
        let groups = Self {
            memory: below(&mounts.memory),
            blkio: below(&mounts.blkio),
            unified: below(&mounts.unified),
        };
        if groups == Self::default() {
            return Err(
                Error::invalid("no control group of memory, blkio or cgroup v2").in_file(&dir),
            );
        }
        Ok(groups)
    }
}

/// This process is in the control groups of another one, until this is dropped.
///
/// A page of the page cache is charged to the group of who touches it first: what is prefetched for a service from
/// outside of its groups counts on us, and neither its limit nor its throttle holds for it. All threads of this process
/// are moved, as cgroup v1 charges by the process; so they share the service's other limits too, and what ends the
/// whole group ends this process.
///
/// ```no_run
/// let joined = anamnesis_ppc::cache::join(1234)?;
/// // prefetch
/// drop(joined); // back
/// # Ok::<_, anamnesis_ppc::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "dropped, it moves this process back"]
pub struct Joined {
    /// Where we were and where we are, by hierarchy.
    moves: Vec<(PathBuf, PathBuf)>,
}

/// Moves this process into the groups of a process: those of memory and blkio under cgroup v1, and that of cgroup v2.
///
/// # Errors
///
/// [`ErrorKind::Unavailable`] without the right to do so, and where the groups cannot be seen from here. All is as it
/// was then.
pub fn join(pid: u32) -> Result<Joined> {
    let mounts = Mounts::read()?;
    let (own, other) = (
        Groups::of("self", &mounts)?,
        Groups::of(&pid.to_string(), &mounts)?,
    );
    let mut joined = Joined { moves: Vec::new() };
    let hierarchies = [
        (own.memory, other.memory),
        (own.blkio, other.blkio),
        (own.unified, other.unified),
    ]
    .into_iter()
    .filter_map(|(own, other)| match (own, other) {
        (Some(own), Some(other)) if own != other => Some((own, other)),
        _ => None,
    });
    for (own, other) in hierarchies {
        // where two controllers have one hierarchy, the first move was for both
        if joined.moves.iter().any(|(_, there)| *there == other) {
            continue;
        }
        enter(&other).map_err(|error| {
            let what = format!(
                "this process cannot be moved into the group ({error}); it takes root, or the group's delegation"
            );
            Error::new(ErrorKind::Unavailable(what)).in_file(&other)
        })?;
        joined.moves.push((own, other));
    }
    Ok(joined)
}

impl Joined {
    /// The directories of the groups that were entered; none if we were there.
    pub fn groups(&self) -> impl Iterator<Item = &Path> {
        self.moves.iter().map(|(_, there)| there.as_path())
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        for (own, _) in self.moves.iter().rev() {
            if let Err(error) = enter(own) {
                tracing::warn!(group = %own.display(), "not moved back: {error}");
            }
        }
    }
}

/// Moves this process.
fn enter(group: &Path) -> std::io::Result<()> {
    // 0 is who writes
    fs::write(group.join("cgroup.procs"), "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "31 1 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
        35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:3 - cgroup cgroup rw,memory\n\
        38 31 0:35 / /sys/fs/cgroup/blk\\040io rw,relatime - cgroup cgroup rw,cpu,blkio\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate\nbad\n";

    #[test]
    fn groups_of_mounts() {
        let mounts = Mounts::parse(MOUNTS);
        assert_eq!(
            mounts.blkio.as_ref().map(|mount| &*mount.at),
            Some(Path::new("/sys/fs/cgroup/blk io"))
        );
        let groups = Groups::parse(
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
        // a container that sees a part of the hierarchy at its top
        let part = Mounts::parse(
            "35 31 0:32 /docker/a /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
        );
        let groups = Groups::parse("4:memory:/docker/a/b\n", &part);
        assert_eq!(
            groups.memory.as_deref(),
            Some(Path::new("/sys/fs/cgroup/memory/b"))
        );
        assert_eq!(
            Groups::parse("4:memory:/docker/c\n", &part),
            Groups::default()
        );
        // not to be seen from here
        assert_eq!(
            Groups::parse("4:memory:/../../etc\n", &mounts),
            Groups::default()
        );
        assert_eq!(
            Groups::parse("4:memory:/a\n", &Mounts::parse("")),
            Groups::default()
        );
    }
}
