//! Reading a short file as a whole, and writing one: readers of its name see the old or the new contents, never a part.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::file_place::FilePlace;
use crate::files::{self, directory_of};
use crate::links;

/// How [`write()`] writes a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Whether a file of this name is replaced; without, it is an error.
    pub overwrite: bool,
    /// Whether the contents and the name outlive a loss of power.
    pub sync: bool,
}

/// Reads a regular file of at most `most` bytes. A FIFO is not waited for.
///
/// ```
/// use anamnesis_os::whole_file;
///
/// let directory = tempfile::tempdir()?;
/// let path = directory.path().join("token");
/// std::fs::write(&path, "abc")?;
/// assert_eq!(whole_file::read(&path, 3)?, b"abc");
/// assert!(whole_file::read(&path, 2).is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// The errors of reading; [`io::ErrorKind::InvalidInput`] for anything but a regular file; [`io::ErrorKind::FileTooLarge`].
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let (file, meta) = files::open_regular(path)?;
    read_opened(file, &meta, most)
}

/// Reads the first bytes of a regular file: `most`, or all that it has.
///
/// ```
/// use anamnesis_os::whole_file;
///
/// let directory = tempfile::tempdir()?;
/// let path = directory.path().join("model");
/// std::fs::write(&path, "GGUF and more")?;
/// assert_eq!(whole_file::read_start(&path, 4)?, b"GGUF");
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// The errors of reading; [`io::ErrorKind::InvalidInput`] for anything but a regular file.
pub fn read_start(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let (file, meta) = files::open_regular(path)?;
    let mut bytes = Vec::new();
    let len = usize::try_from(meta.len().min(most)).map_err(|_| io::ErrorKind::FileTooLarge)?;
    bytes.try_reserve_exact(len)?;
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a file of a directory that may be another user's, as [`read`] does: links lead where
/// [`links::open_below`] follows them.
///
/// # Errors
///
/// The errors of [`read`] and of [`links::open_below`].
pub fn read_below(directory: &Path, path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = links::open_below(directory, path)?;
    let meta = file.metadata()?;
    match meta.is_file() {
        true => read_opened(file, &meta, most),
        false => Err(io::ErrorKind::InvalidInput.into()),
    }
}

fn read_opened(file: fs::File, meta: &fs::Metadata, most: u64) -> io::Result<Vec<u8>> {
    if meta.len() > most {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut bytes = Vec::new();
    // exactly, as growth by doubling would take twice the memory; one that cannot be had is an error, and no abort
    let len = usize::try_from(meta.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
    bytes.try_reserve_exact(len)?;
    // a file that grows meanwhile, or a file of `/proc`, has an end
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    match bytes.len() as u64 <= most {
        true => Ok(bytes),
        false => Err(io::ErrorKind::FileTooLarge.into()),
    }
}

/// Writes a file: to a temporary file in the same directory, `.<label>-….part`, which is then renamed. Temporary files of this
/// name that processes left when they were killed are removed. A file that replaces another one has its permissions, and its
/// owner where the process may.
///
/// # Errors
///
/// The errors of `open`, `write` and `rename`; [`io::ErrorKind::AlreadyExists`] if the name exists and is not to be
/// replaced. No file is left behind.
pub fn write(path: &Path, bytes: &[u8], label: &str, options: WriteOptions) -> io::Result<()> {
    UnpublishedFile::write(path, bytes, label, options)?.publish()
}

/// A file that is written whole and lacks its name, so that several appear when all of them are written. Dropped, it is
/// removed.
///
/// ```
/// use anamnesis_os::whole_file::{UnpublishedFile, WriteOptions};
///
/// let directory = tempfile::tempdir()?;
/// let path = directory.path().join("page");
/// let file = UnpublishedFile::write(&path, b"text", "example", WriteOptions::default())?;
/// assert!(!path.exists());
/// file.publish()?;
/// assert_eq!(std::fs::read(&path)?, b"text");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct UnpublishedFile {
    /// Locked while it is open.
    file: fs::File,
    /// The directory that it was created in, which another run may replace by a new one.
    place: FilePlace,
    /// Its name there.
    temporary: OsString,
    path: PathBuf,
    options: WriteOptions,
    published: bool,
}

impl UnpublishedFile {
    /// Writes the bytes of the file, as [`write()`] does.
    ///
    /// # Errors
    ///
    /// The errors of `open` and `write`. No file is left behind.
    pub fn write(
        path: &Path,
        bytes: &[u8],
        label: &str,
        options: WriteOptions,
    ) -> io::Result<Self> {
        let name = path
            .file_name()
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidFilename))?;
        // before the temporary file is written: its name is short, so that it would not fail
        if let Err(e) = fs::symlink_metadata(path)
            && e.kind() == io::ErrorKind::InvalidFilename
        {
            return Err(e);
        }
        let prefix = part_prefix(name, label);
        remove_abandoned(path, &prefix);
        let (place, file, temporary) = create_part(directory_of(path), &prefix)?;
        // from here on a failure removes it
        let new = Self {
            file,
            place,
            temporary,
            path: path.to_owned(),
            options,
            published: false,
        };
        let replaced = fs::symlink_metadata(path).ok();
        let replaced = replaced.filter(|meta| options.overwrite && meta.is_file());
        replaced.map_or(Ok(()), |replaced| {
            files::carry_permissions(&replaced, &new.file)
        })?;
        (&new.file).write_all(bytes)?;
        // before the rename: otherwise the new name may outlive a loss of power without its bytes
        if options.sync {
            new.file.sync_all()?;
        }
        Ok(new)
    }

    /// Gives the file its name, in the directory that has the path by now.
    ///
    /// # Errors
    ///
    /// The errors of `rename`; [`io::ErrorKind::AlreadyExists`] if the name exists and is not to be replaced. The file is
    /// removed then.
    pub fn publish(mut self) -> io::Result<()> {
        let (directory, name) = (
            directory_of(&self.path).to_owned(),
            self.path.file_name().unwrap_or_default().to_owned(),
        );
        // a run exchanges a directory in one step, and takes milliseconds to move what it finds in the old one
        for _ in 0..ATTEMPTS {
            let current = FilePlace::open(&directory)?;
            match self.rename_to(&current, &name) {
                Ok(()) => {
                    // where the directory has been replaced in the meantime, the file moves on
                    self.place = current;
                    self.temporary.clone_from(&name);
                    if !self.place.is_at(&directory) {
                        continue;
                    }
                }
                // its run has moved the file, which has that name already
                Err(_) if current.has(&name, &self.file) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    std::thread::sleep(PAUSE);
                    continue;
                }
                Err(e) => return Err(e),
            }
            // the lock is kept until the file has its name
            self.published = true;
            if self.options.sync {
                files::sync_directory(&directory)?;
            }
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::NotFound,
            "other runs replace the directory again and again",
        ))
    }

    /// Gives the file its name in a directory: from the one that it was created in, or from this one, if a run that has
    /// exchanged the two has moved it.
    fn rename_to(&self, to: &FilePlace, name: &OsStr) -> io::Result<()> {
        let rename =
            |from: &FilePlace| from.rename(&self.temporary, to, name, self.options.overwrite);
        match rename(&self.place) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && self.temporary != name => rename(to),
            renamed => renamed,
        }
    }
}

impl Drop for UnpublishedFile {
    fn drop(&mut self) {
        if !self.published {
            // the first error is the one to report
            let removed = self.place.remove(&self.temporary);
            if removed.is_err() && self.path.file_name() != Some(&self.temporary) {
                let _ = fs::remove_file(self.path.with_file_name(&self.temporary));
            }
        }
    }
}

/// Attempts to name a file in a directory that others replace.
const ATTEMPTS: usize = 1000;

/// The time between two of them.
const PAUSE: Duration = Duration::from_millis(2);

/// The beginning of the temporary names for a target: a hash, so that they are short whatever the target's length.
fn part_prefix(name: &OsStr, label: &str) -> String {
    // FNV-1a: the same in every version of this library
    let hash = name
        .as_encoded_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
    format!(".{label}-{hash:016x}-")
}

/// Creates a temporary file, locked while it is open, in the directory that has this path.
fn create_part(directory: &Path, prefix: &str) -> io::Result<(FilePlace, fs::File, OsString)> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
    for _ in 0..100 {
        let place = FilePlace::open(directory)?;
        // process and number make the name unique among writers of the same path; `create_new` refuses a file that is
        // there nevertheless
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let part = OsString::from(format!("{prefix}{}-{number}.part", std::process::id()));
        match place.create(&part) {
            Ok(Some(file)) => return Ok((place, file, part)),
            // another process looks whether this one lives
            Ok(None) => drop(place.remove(&part)),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => last = e,
            // a run has replaced the directory since it was opened, and has removed it
            Err(e) if e.kind() == io::ErrorKind::NotFound && !place.is_at(directory) => last = e,
            Err(e) => return Err(e),
        }
    }
    Err(last)
}

/// Removes the temporary files that processes left when they were killed. A failure does not keep the file from being
/// written.
fn remove_abandoned(path: &Path, prefix: &str) {
    for entry in fs::read_dir(directory_of(path))
        .into_iter()
        .flatten()
        .flatten()
    {
        let name = entry.file_name();
        let is_part = name
            .to_str()
            .is_some_and(|name| name.starts_with(prefix) && name.ends_with(".part"));
        if is_part && files::is_abandoned(&entry.path()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_only_where_it_may_be_and_leaves_nothing() {
        let directory = std::env::temp_dir().join(format!("whole-file-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("page");
        // the file of a killed process
        let abandoned = directory.join(format!("{}1-0.part", part_prefix(OsStr::new("page"), "t")));
        fs::write(&abandoned, b"half").unwrap();
        let replace = WriteOptions {
            overwrite: true,
            sync: false,
        };
        write(&path, b"one", "t", WriteOptions::default()).unwrap();
        let refused = write(&path, b"two", "t", WriteOptions::default()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"one");
        write(&path, b"three", "t", replace).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"three");
        let names: Vec<_> = fs::read_dir(&directory)
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        assert_eq!(names, ["page"]);
        fs::remove_dir_all(&directory).unwrap();
    }
}
