//! Symbolic links in a directory of another user, which a program must not follow everywhere.
//!
//! A program with more rights than the owner of a directory, such as one of root in a user's directory of models, would
//! otherwise copy any file of the machine to where that user reads it. The rule is the one that web servers call
//! `SymLinksIfOwnerMatch`.

use std::fs::File;
use std::io;
use std::path::Path;

/// Whether a link of user `link` may name a file of user `target` to a process of user `own`.
///
/// ```
/// use anamnesis_os::links::may_name;
///
/// assert!(may_name(1000, 1000, 0));
/// assert!(!may_name(1000, 0, 0));
/// ```
pub fn may_name(link: u32, target: u32, own: u32) -> bool {
    link == 0 || link == own || link == target
}

/// Opens a file by its whole path, which is below a directory, without waiting for the writer of a FIFO. A link is followed within the
/// directory; in a snapshot of the Hugging Face hub's cache to the blobs of its repository; and elsewhere if all links on
/// the way were made by root, by this user or by the owner of the file that they lead to ([`may_name`]). Links in the path of
/// the directory itself are followed.
///
/// Where the system has no such links, it is a plain open. The caller checks what was opened before it reads.
///
/// # Errors
///
/// The errors of `open`; [`io::ErrorKind::InvalidInput`] for a path that leads out of the directory by itself;
/// [`io::ErrorKind::PermissionDenied`] for a link that is not followed, which [`is_refused`] tells from others.
pub fn open_below(directory: &Path, path: &Path) -> io::Result<File> {
    #[cfg(unix)]
    {
        unix::open_below(directory, path)
    }
    #[cfg(not(unix))]
    {
        let _ = directory;
        crate::files::open_without_waiting(path)
    }
}

/// Checks that [`open_below`] would follow a path, which may be a directory's.
///
/// # Errors
///
/// The errors of [`open_below`].
pub fn check_below(directory: &Path, path: &Path) -> io::Result<()> {
    open_below(directory, path).map(drop)
}

/// The error of a link that is not followed.
pub fn refused() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, ForeignLink)
}

/// Whether an error says that a link is not followed.
///
/// ```
/// use std::io;
/// use anamnesis_os::links::{is_refused, refused};
///
/// assert!(is_refused(&refused()));
/// assert!(!is_refused(&io::Error::new(io::ErrorKind::PermissionDenied, "the file is immutable")));
/// ```
pub fn is_refused(error: &io::Error) -> bool {
    // not by its kind: files that are immutable are refused with the same
    error
        .get_ref()
        .is_some_and(|inner| inner.is::<ForeignLink>())
}

/// A link that is not followed.
#[derive(Debug)]
struct ForeignLink;

impl std::fmt::Display for ForeignLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(
            "a link of another user to a file that is not that user's, outside of the directory",
        )
    }
}

impl std::error::Error for ForeignLink {}

#[cfg(unix)]
mod unix {
    use std::ffi::OsString;
    use std::fs::{self, File};
    use std::io;
    use std::os::unix::fs::MetadataExt;
    use std::path::{Component, Path, PathBuf};

    use rustix::fs::OFlags;

    use super::may_name;
    use crate::hub_cache::repository_of;

    /// Links on the way to one file, as the kernel allows.
    const MOST_LINKS: usize = 40;

    /// Whether a path is the one of a directory, and a plain name behind it. Bytes are compared: components take as long as
    /// the call that opens the file.
    fn is_entry(directory: &Path, path: &Path) -> bool {
        let directory = directory.as_os_str().as_encoded_bytes();
        let rest = path.as_os_str().as_encoded_bytes();
        let name = match rest.strip_prefix(directory) {
            Some(name) if directory.is_empty() || directory.ends_with(b"/") => Some(name),
            Some(rest) => rest.strip_prefix(b"/"),
            None => None,
        };
        name.is_some_and(|name| !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/'))
    }

    pub(super) fn open_below(directory: &Path, path: &Path) -> io::Result<File> {
        use rustix::io::Errno;
        // nearly all files are no links, and then one call opens them
        if is_entry(directory, path) {
            match rustix::fs::open(path, FLAGS, rustix::fs::Mode::empty()) {
                Err(Errno::LOOP | Errno::MLINK) => {}
                opened => return Ok(opened?.into()),
            }
        }
        let is_name = |part| matches!(part, Component::Normal(_));
        let below = path.strip_prefix(directory).ok();
        let below = below.filter(|below| below.components().all(is_name));
        let below = below.ok_or_else(|| {
            let what = "a path that leads out of its directory";
            io::Error::new(io::ErrorKind::InvalidInput, what)
        })?;
        // an empty path is no directory
        let directory = match directory.as_os_str().is_empty() {
            true => Path::new("."),
            false => directory,
        };
        let directory = fs::canonicalize(directory)?;
        let found = follow(&directory, below)?;
        let file = open_without_links(&found.path)?;
        let target = file.metadata()?;
        let own = rustix::process::geteuid().as_raw();
        let is_allowed = found.path.starts_with(&directory)
            || blobs_of(&directory).is_some_and(|blobs| found.path.starts_with(blobs))
            || found
                .owners
                .iter()
                .all(|&link| may_name(link, target.uid(), own));
        match is_allowed {
            true => Ok(file),
            false => Err(super::refused()),
        }
    }

    /// A path without links, and the owners of those that led to it.
    struct Followed {
        path: PathBuf,
        owners: Vec<u32>,
    }

    /// The parts of a path, the last one first.
    fn reversed(path: &Path) -> impl Iterator<Item = OsString> {
        path.components()
            .rev()
            .map(|part| part.as_os_str().to_owned())
    }

    /// Follows a path below a directory whose own path has no links.
    fn follow(directory: &Path, below: &Path) -> io::Result<Followed> {
        let (mut path, mut owners) = (directory.to_owned(), Vec::new());
        // last first
        let mut rest: Vec<OsString> = reversed(below).collect();
        while let Some(name) = rest.pop() {
            match Path::new(&name).components().next() {
                Some(Component::ParentDir) => drop(path.pop()),
                Some(Component::RootDir) => path = PathBuf::from("/"),
                Some(Component::Normal(name)) => {
                    path.push(name);
                    let meta = fs::symlink_metadata(&path)?;
                    if meta.is_symlink() {
                        if owners.len() == MOST_LINKS {
                            return Err(rustix::io::Errno::LOOP.into());
                        }
                        owners.push(meta.uid());
                        let target = fs::read_link(&path)?;
                        path.pop();
                        rest.extend(reversed(&target));
                    }
                }
                _ => {}
            }
        }
        Ok(Followed { path, owners })
    }

    /// How a file is opened: no link, and without waiting.
    const FLAGS: OFlags = OFlags::NOFOLLOW
        .union(OFlags::NONBLOCK)
        .union(OFlags::NOCTTY)
        .union(OFlags::CLOEXEC);

    /// Opens a path on which there was no link a moment ago. One that was put there since is refused.
    fn open_without_links(path: &Path) -> io::Result<File> {
        crate::files::while_leased(|| open_no_link(path))
    }

    fn open_no_link(path: &Path) -> io::Result<File> {
        use rustix::fs::Mode;
        #[cfg(target_os = "linux")]
        {
            use rustix::fs::{CWD, ResolveFlags};
            use rustix::io::Errno;
            match rustix::fs::openat2(CWD, path, FLAGS, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
                // containers may refuse the call
                Err(Errno::NOSYS | Errno::PERM) => {}
                opened => return Ok(opened?.into()),
            }
        }
        Ok(rustix::fs::open(path, FLAGS, Mode::empty())?.into())
    }

    /// The blobs of a repository, for its snapshot or a folder in one: `models--owner--name/snapshots/commit`.
    fn blobs_of(directory: &Path) -> Option<PathBuf> {
        let repository = repository_of(directory)?;
        let below = directory.strip_prefix(repository).ok()?;
        (below.iter().next()? == "snapshots").then(|| repository.join("blobs"))
    }

    #[cfg(test)]
    mod tests {
        use std::io::Read;
        use std::os::unix::fs::{lchown, symlink};

        use super::*;

        fn text(directory: &Path, name: &str) -> Result<String, io::ErrorKind> {
            let mut file = open_below(directory, &directory.join(name)).map_err(|e| e.kind())?;
            let mut text = String::new();
            file.read_to_string(&mut text).map_err(|e| e.kind())?;
            Ok(text)
        }

        #[test]
        fn links_of_others_lead_to_their_own_files_only() {
            let root = tempfile::tempdir().unwrap();
            let path = |name: &str| root.path().join(name);
            fs::create_dir_all(path("model/folder")).unwrap();
            for (name, owner) in [("mine", 0), ("theirs", 7), ("model/inside", 0)] {
                fs::write(path(name), name).unwrap();
                if rustix::process::geteuid().is_root() {
                    fs::set_permissions(
                        path(name),
                        std::os::unix::fs::PermissionsExt::from_mode(0o644),
                    )
                    .unwrap();
                    lchown(path(name), Some(owner), Some(owner)).unwrap();
                }
            }
            if !rustix::process::geteuid().is_root() {
                return eprintln!("SKIPPED: links of another user need root");
            }
            let link = |name: &str, target: &str, owner: u32| {
                symlink(target, path(name)).unwrap();
                lchown(path(name), Some(owner), Some(owner)).unwrap();
            };
            link("model/own", "../mine", 0);
            link("model/to-mine", "../mine", 7);
            link("model/to-theirs", "../theirs", 7);
            link("model/within", "inside", 7);
            // a link of root to a directory of the other user, whose link goes on
            link("model/chain", "folder/next", 0);
            link("model/folder/next", "../../mine", 7);
            // a directory on the way is a link of the other user
            link("model/up", "..", 7);
            link("model/around", "up/mine", 0);
            link("model/loop", "loop", 0);
            // a folder on the way is a link of the other user
            fs::create_dir(path("private")).unwrap();
            fs::write(path("private/file"), "private").unwrap();
            link("model/away", "../private", 7);
            let model = path("model");
            assert_eq!(text(&model, "own"), Ok("mine".into()));
            assert_eq!(text(&model, "to-theirs"), Ok("theirs".into()));
            assert_eq!(text(&model, "within"), Ok("model/inside".into()));
            assert_eq!(
                text(&model, "folder/../inside"),
                Err(io::ErrorKind::InvalidInput)
            );
            assert_eq!(text(&model, "../mine"), Err(io::ErrorKind::InvalidInput));
            for name in ["", ".", "..", "folder/..", "/own"] {
                assert!(text(&model, name).is_err(), "{name}");
            }
            // other forms of the same paths
            let within = |directory: &Path, path: &Path| open_below(directory, path).is_ok();
            assert!(within(&model.join(""), &model.join("own")));
            assert!(within(&model, &path("model//own")) && within(&model, &path("model/./own")));
            assert!(!within(&model, &path("mine")) && !within(&model, &path("model2")));
            for refused in ["to-mine", "chain", "around", "away/file", "folder/next"] {
                assert_eq!(
                    text(&model, refused),
                    Err(io::ErrorKind::PermissionDenied),
                    "{refused}"
                );
            }
            assert!(text(&model, "loop").is_err());
            assert_eq!(text(&model, "none"), Err(io::ErrorKind::NotFound));
        }

        #[test]
        fn a_snapshot_of_the_hub_leads_to_its_blobs() {
            let root = tempfile::tempdir().unwrap();
            let path = |name: &str| root.path().join(name);
            fs::create_dir_all(path("models--a--b/snapshots/c/text_encoder")).unwrap();
            fs::create_dir_all(path("models--a--b/blobs")).unwrap();
            fs::write(path("models--a--b/blobs/d"), "blob").unwrap();
            fs::write(path("secret"), "secret").unwrap();
            let snapshot = path("models--a--b/snapshots/c");
            let nested = snapshot.join("text_encoder");
            symlink("../../blobs/d", snapshot.join("config.json")).unwrap();
            symlink("../../../blobs/d", nested.join("config.json")).unwrap();
            symlink("../../../secret", snapshot.join("vocab.json")).unwrap();
            if rustix::process::geteuid().is_root() {
                // the cache is shared: one user's links, another one's blobs
                for link in [
                    snapshot.join("config.json"),
                    nested.join("config.json"),
                    snapshot.join("vocab.json"),
                ] {
                    lchown(link, Some(7), Some(7)).unwrap();
                }
                assert_eq!(
                    text(&snapshot, "vocab.json"),
                    Err(io::ErrorKind::PermissionDenied)
                );
            }
            assert_eq!(text(&snapshot, "config.json"), Ok("blob".into()));
            assert_eq!(text(&nested, "config.json"), Ok("blob".into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::may_name;

    #[test]
    fn a_link_names_files_of_its_owner_only() {
        for (link, target, own, allowed) in [
            (0, 7, 0, true),
            (0, 7, 1000, true),
            (7, 7, 0, true),
            (1000, 7, 1000, true),
            (7, 0, 0, false),
            (7, 8, 1000, false),
            (7, 1000, 1000, false),
        ] {
            assert_eq!(
                may_name(link, target, own),
                allowed,
                "{link} {target} {own}"
            );
        }
    }
}
