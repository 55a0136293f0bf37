//! Files that may be changed where they are, and those that are refused.

use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use anamnesis_os::hub_cache;

use crate::base::error::{Error, Remedy, Result};
use crate::engine::sink::files::operations::FileOperations;
use crate::read::digest::Sha256Digest;
use crate::read::source::files::{check_no_url, url};
use crate::read::source::{Source, fill};

/// A file that is open to be changed, and locked.
pub(crate) struct EditTarget {
    pub(in super::super) path: PathBuf,
    pub(in super::super) file: File,
    pub(in super::super) len: u64,
}

/// Refuses a URL.
pub(crate) fn check_local(path: &Path) -> Result<()> {
    match url(path) {
        None => check_no_url(path),
        Some(_) => Err(refused(
            "a file at a URL is not changed where it is",
            Remedy::ConvertInstead,
        )
        .in_file(path)),
    }
}

/// Refuses a path, of a file or a directory, by what its name leads to: links, and the cache of the hub.
pub(crate) fn check_named(path: &Path) -> Result<Metadata> {
    let found = fs::symlink_metadata(path).map_err(|e| Error::from(e).in_file(path))?;
    if !found.is_file() && !found.is_dir() && !found.is_symlink() {
        return Err(Error::unsupported("it is no regular file").in_file(path));
    }
    let real = fs::canonicalize(path).map_err(|e| Error::from(e).in_file(path))?;
    let what = if hub_cache::repository_of(&real).is_some() {
        "it belongs to the cache of the hub, whose blobs several snapshots share, and whose names are their digests"
    } else if is_named_by_digest(&real) {
        "its name is the digest of its bytes, by which a store finds it"
    } else if found.is_symlink() {
        "it is a symbolic link, and what it leads to may have other users"
    } else {
        return Ok(found);
    };
    Err(refused(what, Remedy::ConvertInstead).in_file(path))
}

/// Whether a file is called `sha256-` and a digest, as the blobs of Ollama are.
fn is_named_by_digest(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let digest = name.and_then(|name| name.strip_prefix("sha256-"));
    digest.is_some_and(|digest| digest.parse::<Sha256Digest>().is_ok())
}

fn refused(what: &str, remedy: Remedy) -> Error {
    Error::unsupported(what).with_remedy(remedy)
}

impl EditTarget {
    /// Opens a file. With `copy`, one of its names may be given a file of its own.
    pub(super) fn open(system: &dyn FileOperations, path: &Path, copy: bool) -> Result<Self> {
        let open = || {
            let found = check_named(path)?;
            if !found.is_file() {
                return Err(Error::unsupported("it is no regular file"));
            }
            check_mode(&found, copy)?;
            let Some(file) = system.open_existing(path)? else {
                let what = "another process has locked the file";
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, what).into());
            };
            let opened = file.metadata()?;
            // another user may have put another file in its place meanwhile
            check_mode(&opened, copy)?;
            let len = opened.len();
            Ok(Self {
                path: path.to_owned(),
                file,
                len,
            })
        };
        open().map_err(|e: Error| e.in_file(path))
    }

    /// Its bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads bytes that must be there.
    pub(crate) fn read(&self, start: u64, buf: &mut [u8]) -> Result<()> {
        let read = self.read_at(start, buf);
        match read.map_err(|e| Error::from(e).in_file(&self.path))? {
            n if n == buf.len() => Ok(()),
            n => Err(Error::malformed("the file has become shorter")
                .at(start + n as u64)
                .in_file(&self.path)),
        }
    }
}

impl Source for EditTarget {
    fn len(&self) -> Option<u64> {
        Some(self.len)
    }

    fn read_at(&self, start: u64, buf: &mut [u8]) -> io::Result<usize> {
        let mut at = start;
        fill(buf, |buf| {
            #[cfg(unix)]
            let n = std::os::unix::fs::FileExt::read_at(&self.file, buf, at)?;
            #[cfg(windows)]
            let n = std::os::windows::fs::FileExt::seek_read(&self.file, buf, at)?;
            at += n as u64;
            Ok(n)
        })
    }

    #[cfg(unix)]
    fn as_fd(&self) -> Option<crate::read::source::SourceFd<'_>> {
        Some(std::os::fd::AsFd::as_fd(&self.file).into())
    }
}

/// Refuses a file by its mode and its names. Root may write to any file, and should not either.
fn check_mode(found: &Metadata, copy: bool) -> Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        if found.mode() & 0o222 == 0 {
            let what = "the file has no write permission";
            return Err(refused(what, Remedy::CheckPermissions));
        }
        if found.nlink() > 1 && !copy {
            let what = format!(
                "the file has {} names (hard links), and would change under all of them",
                found.nlink()
            );
            return Err(refused(&what, Remedy::EditCopy));
        }
    }
    #[cfg(not(unix))]
    if found.permissions().readonly() {
        return Err(refused("the file is read-only", Remedy::CheckPermissions));
    }
    let _ = copy;
    Ok(())
}
