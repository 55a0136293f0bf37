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
}
