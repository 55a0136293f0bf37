//! Files that a verb writes: lists, pages, templates, manual pages. Each is new or replaces a file on request; it is never a
//! file of a model, whatever its name and however it is linked; and it is complete or not there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anamnesis::template::is_weight_file;
use anamnesis_os::files;
use anamnesis_os::whole_file::{self, WriteOptions};

use crate::exit::Failure;

/// Endings of what is part of a model beside a file of weights that was named alone.
const COMPANIONS: [&str; 3] = ["json", "model", "jinja"];

/// A file that is about to be written.
pub(crate) struct WrittenFile<'p> {
    path: &'p Path,
    overwrite: bool,
}

impl<'p> WrittenFile<'p> {
    /// Checks that a file may be written to `path`, before the work that makes its content. `models` are the arguments that are
    /// read. None of them is replaced, and another file of a model only if it is what this verb writes (`is_own`): a list of
    /// digests belongs into the directory that it describes.
    ///
    /// # Errors
    ///
    /// The path is a directory, device or pipe; it exists and `overwrite` is not set; or it is a file of a model.
    pub(crate) fn checked(
        path: &'p Path,
        overwrite: bool,
        models: &[PathBuf],
        is_own: impl Fn(&Path) -> bool,
    ) -> Result<Self, Failure> {
        // a rename replaces a link and not the file it leads to; a device behind it is refused, as one that was given directly
        let metadata = fs::symlink_metadata(path).map(|link| match link.is_symlink() {
            true => fs::metadata(path).unwrap_or(link),
            false => link,
        });
        match metadata {
            Ok(metadata) if metadata.is_dir() => {
                return Err(Failure::new("io", "is a directory", "name a file in it").in_file(path));
            }
            Ok(metadata) if !metadata.is_file() && !metadata.is_symlink() => {
                let failure = Failure::new(
                    "io",
                    "the output is a device or a pipe; only a regular file can be replaced",
                    "choose a regular file",
                );
                return Err(failure.in_file(path));
            }
            // first: no flag makes a part of a model replaceable
            Ok(_) => {
                let what = if models.iter().any(|model| files::is_same(path, model)) {
                    Some("this is what is read")
                } else if models.iter().any(|model| is_beside(path, model)) && !is_own(path) {
                    Some("this is a file of the model")
                } else {
                    None
                };
                if let Some(what) = what {
                    let failure = Failure::new("invalid_argument", what, "choose another path");
                    return Err(failure.in_file(path));
                }
                if !overwrite {
                    let exists = io::Error::from(io::ErrorKind::AlreadyExists);
                    return Err(Failure::from(anamnesis::Error::from(exists)).in_file(path));
                }
            }
            Err(_) => {}
        }
        Ok(Self { path, overwrite })
    }

    /// The path, as it was given.
    pub(crate) fn path(&self) -> &'p Path {
        self.path
    }

    /// Writes the file as a whole.
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<(), Failure> {
        let options = WriteOptions {
            overwrite: self.overwrite,
            // lists, pages and templates are made again as easily as they are lost
            sync: false,
        };
        whole_file::write(self.path, bytes, "anamnesis", options)
            .map_err(|e| Failure::from(anamnesis::Error::from(e)).in_file(self.path))
    }
}

/// Refuses a file that would replace, or be replaced by, the other output of the same run: `output` itself, or a file in it.
///
/// # Errors
///
/// The path is the output, or lies within it.
pub(crate) fn check_apart(path: &Path, output: &Path) -> Result<(), Failure> {
    if !files::is_within(path, output) {
        return Ok(());
    }
    let what = "this is, or is in, the other output of this run";
    Err(Failure::new("invalid_argument", what, "choose another path").in_file(path))
}

/// Whether a file is in the directory of a model, or beside a file of one and by its name a part of it.
fn is_beside(path: &Path, model: &Path) -> bool {
    let is_directory = model.is_dir();
    let directory = match model.parent() {
        _ if is_directory => model,
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|entry| {
            let name = entry.file_name().and_then(|name| name.to_str());
            let ending = entry.extension().and_then(|ending| ending.to_str());
            is_directory
                || name.is_some_and(is_weight_file)
                || ending.is_some_and(|ending| COMPANIONS.contains(&ending))
        })
        .any(|entry| files::is_same(path, &entry))
}
