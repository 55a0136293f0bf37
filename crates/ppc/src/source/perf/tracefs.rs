//! Where the trace points are described: tracefs, which need not be mounted.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::{Error, ErrorKind, Result};

/// A tracefs that can be read.
#[derive(Debug)]
pub(crate) struct Tracefs {
    path: PathBuf,
    /// What is mounted nowhere goes with it.
    _mount: Option<OwnedFd>,
}

impl Tracefs {
    /// The first of these places that has trace points; else, if it may, one that only this value knows.
    pub(crate) fn find(among: &[PathBuf], mount: bool) -> Result<Self> {
        if let Some(path) = among.iter().find(|path| has_points(path)) {
            return Ok(Self {
                path: path.clone(),
                _mount: None,
            });
        }
        if mount && let Ok(here) = Self::nowhere() {
            return Ok(here);
        }
        Err(unavailable(among))
    }

    /// A mount that is in no directory: nothing has to be undone, also if this process is killed. Linux 5.2, as root.
    fn nowhere() -> io::Result<Self> {
        let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&context)?;
        let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOSUID;
        let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
        if has_points(&path) {
            Ok(Self {
                path,
                _mount: Some(mount),
            })
        } else {
            Err(io::ErrorKind::NotFound.into())
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

fn has_points(path: &Path) -> bool {
    path.join("events/filemap").is_dir()
}

fn unavailable(among: &[PathBuf]) -> Error {
    let first = among
        .first()
        .map(|path| path.display().to_string())
        .unwrap_or_default();
    Error::new(ErrorKind::Unavailable(
        match among.iter().find_map(|path| fs::read_dir(path).err()) {
            Some(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                format!(
                    "trace points are read at {first}, which needs root; fanotify needs root as well, shim does not"
                )
            }
            _ => format!(
                "no trace points at {first}; as root: mount -t tracefs tracefs {first} (the kernel needs CONFIG_FTRACE)"
            ),
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_place_with_trace_points_is_taken() {
        let (empty, full) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir_all(full.path().join("events/filemap")).unwrap();
        let paths = [empty.path().join("tracing"), empty.path().to_owned()];
        let error = Tracefs::find(&paths, false).unwrap_err().to_string();
        assert!(error.contains("mount -t tracefs"), "{error}");
        let paths = [empty.path().to_owned(), full.path().to_owned()];
        assert_eq!(Tracefs::find(&paths, true).unwrap().path(), full.path());
    }

    #[test]
    fn what_is_mounted_nowhere_is_seen_by_nobody() {
        let Ok(tracefs) = Tracefs::find(&[], true) else {
            return eprintln!("skipped: no tracefs can be mounted here");
        };
        let path = tracefs.path().to_owned();
        assert!(
            fs::read_to_string(path.join("events/filemap/mm_filemap_add_to_page_cache/format"))
                .is_ok()
        );
        let mounts = || fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts().contains(path.to_str().unwrap()));
        drop(tracefs);
        assert!(!has_points(&path));
    }
}
