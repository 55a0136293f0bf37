//! Files that a verb writes: lists, pages, templates, manual pages. Each is new or replaces a file on request; it is never a
//! file of a model, whatever its name and however it is linked; and it is complete or not there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anamnesis::companions::Companions;
use anamnesis::format;
use anamnesis::sink::check_target;
use anamnesis::template::is_weight_file;
use anamnesis_os::files;
use anamnesis_os::whole_file::{self, UnpublishedFile, WriteOptions};

use crate::failure::Failure;
use crate::paths::is_url;

/// Endings of what is part of a model beside a file of weights that was named alone, besides names that clients open.
const COMPANIONS: [&str; 3] = ["json", "model", "jinja"];

/// Whether a file is part of a model beside a file of weights, by its name.
fn is_companion(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    let name = path.file_name().and_then(|name| name.to_str());
    ending.is_some_and(|ending| COMPANIONS.contains(&ending))
        || name.is_some_and(Companions::is_known_name)
}

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
    /// The path is `-`, a URL, a directory, device or pipe; its directory is not there, or not writable; it exists and `overwrite` is not set; or
    /// it is a file of a model.
    pub(crate) fn checked(
        path: &'p Path,
        overwrite: bool,
        models: &[PathBuf],
        is_own: impl Fn(&Path) -> bool,
    ) -> Result<Self, Failure> {
        check_local_name(path)?;
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
                } else if begins_as_model(path) {
                    Some("this is a file of a model by its first bytes")
                } else if is_of_a_model(path) && !is_own(path) {
                    Some("this is a file of another model")
                } else {
                    None
                };
                if let Some(what) = what {
                    let failure = Failure::new("invalid_argument", what, "choose another path");
                    return Err(failure.in_file(path));
                }
                if !overwrite {
                    return Err(Failure::io(io::ErrorKind::AlreadyExists.into(), path));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidFilename => {
                return Err(Failure::io(error, path));
            }
            Err(_) => check_directory(path)?,
        }
        // its contents are written beside it, and renamed
        let creatable = files::check_creatable(files::directory_of(path));
        creatable.map_err(|e| Failure::io(e, path))?;
        Ok(Self { path, overwrite })
    }

    /// The path, as it was given.
    pub(crate) fn path(&self) -> &'p Path {
        self.path
    }

    /// Writes the file as a whole.
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<(), Failure> {
        let written = self.write_unpublished(bytes)?.publish();
        written.map_err(|e| Failure::io(e, self.path))
    }

    /// Writes all bytes of the file, which then lacks its name only.
    pub(crate) fn write_unpublished(&self, bytes: &[u8]) -> Result<UnpublishedFile, Failure> {
        let options = WriteOptions {
            overwrite: self.overwrite,
            // lists, pages and templates are made again as easily as they are lost
            sync: false,
        };
        UnpublishedFile::write(self.path, bytes, "anamnesis", options)
            .map_err(|e| Failure::io(e, self.path))
    }
}

/// Refuses the names of outputs that mean something else to their users, and would become the names of files and directories:
/// `-`, which most programs take for standard output.
///
/// # Errors
///
/// The output is `-`.
pub(crate) fn check_output_name(path: &Path) -> Result<(), Failure> {
    if path.as_os_str() == "-" {
        let what = "this output is not written to standard output";
        let help = "name a file; one that is called `-` is ./-";
        return Err(Failure::new("invalid_argument", what, help).in_file(path));
    }
    Ok(())
}

/// The same for an output of tensors. One that is replaced has tensors too: no flag makes a tokenizer replaceable by them.
///
/// # Errors
///
/// The output is `-`, or a file of a model that holds no tensors.
pub(crate) fn check_tensor_output(path: &Path) -> Result<(), Failure> {
    check_output_name(path)?;
    // before the work: the library refuses it when it begins to write
    check_target(path).map_err(|error| Failure::from(error).of_arguments())?;
    let has_tensors = path.file_name().and_then(|name| name.to_str());
    let has_tensors = has_tensors.is_some_and(is_weight_file);
    if !is_url(path) && path.is_file() && !has_tensors && is_of_a_model(path) {
        let what = "this is a file of a model, and none of tensors";
        let failure = Failure::new("invalid_argument", what, "choose another path");
        return Err(failure.in_file(path));
    }
    Ok(())
}

/// The same for an output that is written to no URL.
///
/// # Errors
///
/// The output is `-` or a URL.
pub(crate) fn check_local_name(path: &Path) -> Result<(), Failure> {
    check_output_name(path)?;
    if is_url(path) {
        let what = "this output is written to no URL";
        let help = "name a file on this machine, and copy it";
        return Err(Failure::new("invalid_argument", what, help).in_file(path));
    }
    Ok(())
}

/// Refuses a path in a directory that is not there, before the work and not after it.
fn check_directory(path: &Path) -> Result<(), Failure> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() && !parent.is_dir() => {
            let missing = io::Error::from(io::ErrorKind::NotFound);
            let help = "make its directory first, or correct the path";
            Err(Failure::io(missing, path).with_remedy(help))
        }
        _ => Ok(()),
    }
}

/// Whether a file is one of a model by its first bytes, whatever its name: a copy, a download, a file without an ending.
fn begins_as_model(path: &Path) -> bool {
    let start = whole_file::read_start(path, 64);
    start.is_ok_and(|bytes| format::begins_as_model(&bytes))
}

/// Whether a file is one of weights, or by its name a part of the model that lies in its directory.
fn is_of_a_model(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    if name.is_some_and(is_weight_file) {
        return true;
    }
    is_companion(path) && {
        let entries = fs::read_dir(files::directory_of(path))
            .into_iter()
            .flatten()
            .flatten();
        let mut names = entries.map(|entry| entry.file_name());
        names.any(|name| name.to_str().is_some_and(is_weight_file))
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
    let directory = match is_directory {
        true => model,
        false => files::directory_of(model),
    };
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|entry| {
            let name = entry.file_name().and_then(|name| name.to_str());
            is_directory || name.is_some_and(is_weight_file) || is_companion(entry)
        })
        .any(|entry| files::is_same(path, &entry))
}
