//! Who may change what a path names: the owners of a file or directory and of everything above it, and their permissions.

use std::io;
use std::path::{Path, PathBuf};

/// A user, other than this one and root, who may change what a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stranger {
    /// The file or directory that they may change: the path without links, or a directory above it.
    pub path: PathBuf,
    /// The right that they have.
    pub right: StrangersRight,
}

/// Why another user may change a file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StrangersRight {
    /// They own it.
    Owner(u32),
    /// Their group may write to it.
    Group(u32),
    /// All users may write to it.
    AllUsers,
}

impl std::fmt::Display for Stranger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = self.path.display();
        match self.right {
            StrangersRight::Owner(user) => write!(f, "{path} belongs to user {user}"),
            StrangersRight::Group(group) => write!(f, "group {group} can write to {path}"),
            StrangersRight::AllUsers => write!(f, "other users can write to {path}"),
        }
    }
}

/// The user, besides this one and root, who may replace the file or directory at `path`, or change it. `None`: there is none.
///
/// A directory above it with the sticky bit, such as `/tmp`, lets others make names, and not replace a name of this user. The
/// group of the user's own number, which has no other members by convention, is the user.
///
/// Always `None` where files have no such owners.
///
/// # Errors
///
/// The errors of `stat` and of resolving links.
pub fn stranger(path: &Path) -> io::Result<Option<Stranger>> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let own = rustix::process::geteuid().as_raw();
        let path = std::fs::canonicalize(path)?;
        for (above, part) in path.ancestors().enumerate() {
            let meta = std::fs::symlink_metadata(part)?;
            // the sticky bit guards the names in a directory, which for the path itself are what may be changed
            let is_sticky = above > 0 && meta.mode() & 0o1000 != 0;
            if let Some(right) = right(own, meta.uid(), meta.gid(), meta.mode(), is_sticky) {
                let path = part.to_owned();
                return Ok(Some(Stranger { path, right }));
            }
        }
        Ok(None)
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        Ok(None)
    }
}

/// The user, besides this one and root, who may change a model in the cache of the Hugging Face hub. `path` is a snapshot, or a
/// file of one, whose links lead to the blobs of the repository.
///
/// # Errors
///
/// The errors of [`stranger`] and of listing the snapshot.
pub fn stranger_to_snapshot(path: &Path) -> io::Result<Option<Stranger>> {
    let snapshot = if path.is_dir() {
        Some(path)
    } else {
        path.parent()
    };
    let repository = crate::hub_cache::repository_of(path);
    // who may write to `refs` chooses the snapshot
    let beside = ["blobs", "refs"].map(|name| Some(repository?.join(name)));
    let beside = beside.into_iter().flatten().filter(|path| path.exists());
    let parts = snapshot.map(Path::to_owned).into_iter().chain(beside);
    for part in parts.chain([path.to_owned()]) {
        if let Some(found) = stranger(&part)? {
            return Ok(Some(found));
        }
    }
    #[cfg(unix)]
    if path.is_dir() {
        use std::os::unix::fs::MetadataExt;
        let own = rustix::process::geteuid().as_raw();
        for entry in std::fs::read_dir(path)? {
            let path = entry?.path();
            // the blob that a link leads to; where there is none, opening says so
            let Ok(meta) = std::fs::metadata(&path) else {
                continue;
            };
            if let Some(right) = right(own, meta.uid(), meta.gid(), meta.mode(), false) {
                return Ok(Some(Stranger { path, right }));
            }
        }
    }
    Ok(None)
}

/// Like [`stranger`] for a path that need not exist: who may change it, or make it.
///
/// # Errors
///
/// The errors of [`stranger`].
pub fn stranger_to_place(path: &Path) -> io::Result<Option<Stranger>> {
    let path = std::path::absolute(path)?;
    let existing = path.ancestors().find(|path| path.exists());
    existing.map_or(Ok(None), stranger)
}

#[cfg(unix)]
fn right(own: u32, owner: u32, group: u32, mode: u32, is_sticky: bool) -> Option<StrangersRight> {
    if owner != own && owner != 0 {
        return Some(StrangersRight::Owner(owner));
    }
    if is_sticky {
        return None;
    }
    if mode & 0o002 != 0 {
        return Some(StrangersRight::AllUsers);
    }
    let is_own_group = group == 0 || group == own;
    (mode & 0o020 != 0 && !is_own_group).then_some(StrangersRight::Group(group))
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    #[test]
    fn rights_are_those_of_owner_group_and_others() {
        use StrangersRight::{AllUsers, Group, Owner};
        for (own, owner, group, mode, is_sticky, expected) in [
            (7, 7, 7, 0o755, false, None),
            (7, 0, 0, 0o755, false, None),
            (7, 7, 7, 0o775, false, None),
            (7, 0, 0, 0o775, false, None),
            (7, 7, 9, 0o775, false, Some(Group(9))),
            (7, 7, 7, 0o777, false, Some(AllUsers)),
            (7, 0, 0, 0o777, true, None),
            (7, 9, 9, 0o700, true, Some(Owner(9))),
            (0, 7, 7, 0o700, false, Some(Owner(7))),
        ] {
            let found = right(own, owner, group, mode, is_sticky);
            assert_eq!(found, expected, "{own} {owner} {group} {mode:o}");
        }
    }

    #[test]
    fn a_directory_above_counts() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("a/b");
        fs::create_dir_all(&inner).unwrap();
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(&inner, 0o700);
        mode(&root.path().join("a"), 0o755);
        assert_eq!(stranger(&inner).unwrap(), None);
        mode(&root.path().join("a"), 0o777);
        let found = stranger(&inner).unwrap().unwrap();
        assert!(
            found.to_string().contains("other users can write to"),
            "{found}"
        );
        mode(&root.path().join("a"), 0o1777);
        assert_eq!(stranger(&inner).unwrap(), None);
        if rustix::process::geteuid().is_root() {
            chown(root.path().join("a"), Some(7), Some(7)).unwrap();
            let found = stranger(&inner).unwrap().unwrap();
            assert_eq!(found.right, StrangersRight::Owner(7));
        }
    }

    #[test]
    fn a_snapshot_is_as_safe_as_its_blobs_and_references() {
        let root = tempfile::tempdir().unwrap();
        let repository = root.path().join("models--a--b");
        let path = |name: &str| repository.join(name);
        let mode = |name: &str, mode| {
            fs::set_permissions(path(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        for name in ["snapshots/c", "blobs", "refs"] {
            fs::create_dir_all(path(name)).unwrap();
        }
        fs::write(path("blobs/d"), "").unwrap();
        fs::write(path("snapshots/c/own"), "").unwrap();
        std::os::unix::fs::symlink("../../blobs/d", path("snapshots/c/config.json")).unwrap();
        for (name, sound) in [
            ("", 0o755),
            ("snapshots", 0o755),
            ("snapshots/c", 0o755),
            ("blobs", 0o755),
            ("refs", 0o755),
            ("blobs/d", 0o644),
            ("snapshots/c/own", 0o644),
        ] {
            mode(name, sound);
        }
        let (snapshot, file) = (path("snapshots/c"), path("snapshots/c/config.json"));
        let found = |path: &Path| stranger_to_snapshot(path).unwrap();
        assert_eq!((found(&snapshot), found(&file)), (None, None));
        for (name, unsound) in [
            ("blobs", 0o777),
            ("refs", 0o777),
            ("snapshots/c", 0o777),
            ("blobs/d", 0o666),
            ("", 0o777),
        ] {
            let sound = fs::metadata(path(name)).unwrap().permissions();
            mode(name, unsound);
            for path in [&snapshot, &file] {
                let found = found(path).unwrap_or_else(|| panic!("{name}"));
                assert_eq!(found.right, StrangersRight::AllUsers, "{name}");
            }
            fs::set_permissions(path(name), sound).unwrap();
        }
        // a file of another's in the snapshot is not read when another one is opened
        mode("snapshots/c/own", 0o666);
        assert!(found(&snapshot).is_some() && found(&file).is_none());
    }

    #[test]
    fn a_place_that_does_not_exist_is_as_safe_as_its_parent() {
        let root = tempfile::tempdir().unwrap();
        let place = root.path().join("a/b/c");
        assert_eq!(stranger_to_place(&place).unwrap(), None);
        fs::create_dir(root.path().join("a")).unwrap();
        let all = fs::Permissions::from_mode(0o777);
        fs::set_permissions(root.path().join("a"), all).unwrap();
        let found = stranger_to_place(&place).unwrap().unwrap();
        assert!(found.path.ends_with("a"), "{found}");
    }
}
