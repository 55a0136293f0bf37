//! The entries of a directory below another one, for a search: each name with the kind of its file.

use std::ffi::OsString;
use std::io;
use std::path::Path;

/// The kind of a file that an entry names. Links to files are followed, as the caches of hubs consist of links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file, a link to one, or a link that leads to nothing.
    File,
    /// A directory.
    Folder,
    /// A link to a directory, which a search does not follow: it may lead to where the search began.
    LinkedFolder,
    /// A pipe, a socket or a device, or a link to one.
    Special,
}

/// Passes the entries of a directory at or below `root` to `each`, in an unspecified order, until that is false. The links on the
/// way from `root` are followed as [`links::open_below`](crate::links::open_below) does; nothing else is opened.
///
/// ```
/// use anamnesis_os::entries::{EntryKind, list_below};
///
/// let root = std::env::temp_dir().join(format!("anamnesis-entries-{}", std::process::id()));
/// std::fs::create_dir_all(root.join("models/folder"))?;
/// std::fs::write(root.join("models/file"), "")?;
/// let mut found = Vec::new();
/// list_below(&root, &root.join("models"), &mut |name, kind| {
///     found.push((name, kind));
///     true
/// })?;
/// found.sort_by_key(|(name, _)| name.clone());
/// assert_eq!(found, [("file".into(), EntryKind::File), ("folder".into(), EntryKind::Folder)]);
/// # std::fs::remove_dir_all(root)?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// The errors of [`links::open_below`](crate::links::open_below) and of reading the directory.
pub fn list_below(
    root: &Path,
    directory: &Path,
    each: &mut dyn FnMut(OsString, EntryKind) -> bool,
) -> io::Result<()> {
    // an empty path is no directory
    let named = |path: &'_ Path| match path.as_os_str().is_empty() {
        true => Path::new(".").to_owned(),
        false => path.to_owned(),
    };
    #[cfg(unix)]
    {
        unix::list(&named(root), &named(directory), each)
    }
    #[cfg(not(unix))]
    {
        let _ = root;
        for entry in std::fs::read_dir(named(directory))? {
            let entry = entry?;
            let linked = entry.file_type()?.is_symlink();
            let kind = match std::fs::metadata(entry.path()) {
                Ok(meta) if meta.is_dir() && linked => EntryKind::LinkedFolder,
                Ok(meta) if meta.is_dir() => EntryKind::Folder,
                _ => EntryKind::File,
            };
            if !each(entry.file_name(), kind) {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(unix)]
mod unix {
    use std::ffi::{CStr, OsStr, OsString};
    use std::fs::File;
    use std::io;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    use rustix::fs::{AtFlags, Dir, FileType, statat};

    use super::EntryKind;

    pub(super) fn list(
        root: &Path,
        path: &Path,
        each: &mut dyn FnMut(OsString, EntryKind) -> bool,
    ) -> io::Result<()> {
        // by the open directory: one that is replaced by a link meanwhile leads nowhere
        let directory = crate::links::open_below(root, path)?;
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let kind = kind(&directory, name, entry.file_type());
            if !each(OsStr::from_bytes(name.to_bytes()).to_owned(), kind) {
                break;
            }
        }
        Ok(())
    }

    fn kind(directory: &File, name: &CStr, listed: FileType) -> EntryKind {
        let stat = |flags| {
            let stat = statat(directory, name, flags).ok()?;
            Some(FileType::from_raw_mode(stat.st_mode))
        };
        let own = match listed {
            // a file system that does not store the kind in the entry
            FileType::Unknown => stat(AtFlags::SYMLINK_NOFOLLOW).unwrap_or(FileType::Unknown),
            own => own,
        };
        match own {
            FileType::RegularFile | FileType::Unknown => EntryKind::File,
            FileType::Directory => EntryKind::Folder,
            FileType::Symlink => match stat(AtFlags::empty()) {
                Some(FileType::Directory) => EntryKind::LinkedFolder,
                Some(FileType::RegularFile) | None => EntryKind::File,
                Some(_) => EntryKind::Special,
            },
            _ => EntryKind::Special,
        }
    }

    #[cfg(test)]
    mod tests {
        use std::collections::BTreeMap;
        use std::os::unix::fs::symlink;

        use super::*;
        use crate::entries::list_below;

        #[test]
        fn each_entry_is_what_its_name_leads_to() {
            let root = tempfile::tempdir().unwrap();
            let path = |name: &str| root.path().join(name);
            std::fs::create_dir(path("folder")).unwrap();
            std::fs::write(path("file"), "").unwrap();
            for (target, name) in [("file", "link"), ("folder", "to"), ("none", "dangling")] {
                symlink(target, path(name)).unwrap();
            }
            let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
            let mut found = BTreeMap::new();
            list_below(root.path(), root.path(), &mut |name, kind| {
                found.insert(name.into_string().unwrap(), kind);
                true
            })
            .unwrap();
            let wanted = [
                ("dangling", EntryKind::File),
                ("file", EntryKind::File),
                ("folder", EntryKind::Folder),
                ("link", EntryKind::File),
                ("socket", EntryKind::Special),
                ("to", EntryKind::LinkedFolder),
            ];
            let wanted: BTreeMap<String, EntryKind> = wanted
                .into_iter()
                .map(|(name, kind)| (name.to_owned(), kind))
                .collect();
            assert_eq!(found, wanted);
            let file = path("file");
            assert!(list_below(root.path(), &file, &mut |_, _| true).is_err());
        }
    }
}
