//! Reading what lies beside a checkpoint while another process replaces it.
//!
//! Configurations, tokenizers and names of a directory are read after the checkpoint was opened. Each reading is of one moment, in
//! which no run hides a name; whether it is of the checkpoint that is open, the files of that say, and if not, the caller begins
//! again ([`again_if_replaced`]).

use std::path::Path;
use std::time::{Duration, Instant};

use anamnesis_os::directory_lock::is_locked;

use super::Checkpoint;
use super::replaced::{FileNumber, NameWatch, NamedFiles, is_hidden_name, number_of};
use crate::base::error::Result;
use crate::read::source::files::Files;

/// Reads files in the directory of a checkpoint, again if names in it change meanwhile or are hidden by a run that replaces it:
/// where no directory can be exchanged for another one, files have hidden names for a moment.
pub(crate) fn read_beside_runs<T>(
    files: &Files,
    directory: &Path,
    mut read: impl FnMut() -> Result<T>,
) -> Result<T> {
    if !files.is_local() {
        return read();
    }
    let directory = match directory.as_os_str().is_empty() {
        true => Path::new("."),
        false => directory,
    };
    // a second at most: the moment takes a few renames and the system's own time to write them
    for _ in 0..500 {
        let mut before = DirectoryState::of(directory);
        let found = read();
        // in this order: what is hidden now has not been given its name between the two looks at the directory
        let is_hidden = is_locked(directory) && has_hidden(directory);
        if !before.has_changed() && !is_hidden {
            return found;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    read()
}

/// The like, for what belongs to a checkpoint and no other: fails with [`ErrorKind::Replaced`](crate::ErrorKind::Replaced) if it may be another one's.
/// `is_found`: whether anything was found.
pub(crate) fn read_of_checkpoint<T>(
    checkpoint: &Checkpoint,
    directory: &Path,
    is_found: impl Fn(&T) -> bool,
    read: impl FnMut() -> Result<T>,
) -> Result<T> {
    let found = read_beside_runs(checkpoint.files(), directory, read)?;
    let own = NamedFiles::of(checkpoint, &checkpoint.budget())?;
    match is_found(&found) {
        true => own.check()?,
        false => own.check_alone()?,
    }
    Ok(found)
}

/// A directory at one moment. Its time of change tells of every name that appears or goes, unless it has changed a moment ago
/// already: then the names are compared.
struct DirectoryState<'d> {
    directory: &'d Path,
    number: Option<FileNumber>,
    names: Option<NameWatch>,
}

/// The resolution of times of change, generously: of the kernel's own clock it is 10 ms at most.
const RESOLUTION: Duration = Duration::from_millis(30);

impl<'d> DirectoryState<'d> {
    fn of(directory: &'d Path) -> Self {
        let meta = std::fs::metadata(directory).ok();
        let changed = meta.as_ref().and_then(|meta| meta.modified().ok());
        // a time in the future is another machine's, and says nothing
        let is_recent =
            changed.is_some_and(|changed| changed.elapsed().map_or(true, |ago| ago < RESOLUTION));
        Self {
            directory,
            number: meta.as_ref().and_then(number_of),
            names: is_recent
                .then(|| NameWatch::begin(directory, |_| true))
                .flatten(),
        }
    }

    fn has_changed(&mut self) -> bool {
        let meta = std::fs::metadata(self.directory).ok();
        meta.as_ref().and_then(number_of) != self.number
            || self.names.as_mut().is_some_and(NameWatch::has_changed)
    }
}

fn has_hidden(directory: &Path) -> bool {
    let names = std::fs::read_dir(directory).into_iter().flatten().flatten();
    names
        .map(|entry| entry.file_name())
        .any(|name| name.to_str().is_some_and(is_hidden_name))
}

/// Attempts at reading what another process is replacing.
pub(super) struct Attempts {
    began: Instant,
    failed: u32,
}

impl Attempts {
    /// How many there are at least.
    const LEAST: u32 = 10;
    /// For how long there are further ones: a writer in a loop may replace a small checkpoint more often than a program that waits
    /// for a processor can read it.
    const PATIENCE: Duration = Duration::from_secs(5);
    const LONGEST_PAUSE: Duration = Duration::from_millis(30);

    pub(super) fn begin() -> Self {
        Self {
            began: Instant::now(),
            failed: 0,
        }
    }

    /// Whether there is another one after one that has failed, for which it pauses: longer each time.
    pub(super) fn again(&mut self) -> bool {
        self.failed += 1;
        let is_left = self.failed < Self::LEAST || self.began.elapsed() < Self::PATIENCE;
        if is_left {
            let pause = self.failed * Duration::from_millis(3);
            std::thread::sleep(pause.min(Self::LONGEST_PAUSE));
        }
        is_left
    }
}

/// Calls `run`, which opens checkpoints and has no effect if it fails, again while it fails because another process has replaced
/// one of them: ten times, and further ones within five seconds. A reader beside writers then has the old checkpoint
/// or the new one.
/// `is_replaced` says which errors these are: [`Error::is_replaced`](crate::Error::is_replaced), for errors of this library.
///
/// ```
/// use anamnesis::{Checkpoint, Error, again_if_replaced};
///
/// let path = "fixtures/model/scribe.safetensors";
/// let summary = again_if_replaced(Error::is_replaced, || Checkpoint::open(path)?.inspect())?;
/// assert_eq!(summary.format, "safetensors");
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// The errors of `run`.
pub fn again_if_replaced<T, E>(
    is_replaced: impl Fn(&E) -> bool,
    mut run: impl FnMut() -> std::result::Result<T, E>,
) -> std::result::Result<T, E> {
    let mut attempts = Attempts::begin();
    loop {
        match run() {
            Err(error) if is_replaced(&error) && attempts.again() => {}
            ended => return ended,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::{Error, ErrorKind};

    #[test]
    fn what_was_hidden_for_a_moment_is_read_again() {
        let name = format!("beside-runs-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let (config, hidden) = (
            directory.join("config.json"),
            directory.join(".anamnesis-0-1-2.config.json.old"),
        );
        std::fs::write(&config, "{}").unwrap();
        for pause in [Duration::ZERO, 2 * RESOLUTION] {
            std::thread::sleep(pause);
            let mut calls = 0;
            let found = read_beside_runs(&Files::default(), &directory, || {
                calls += 1;
                // a run hides the file before it is looked for, and has undone that before the directory is looked at again
                if calls == 1 {
                    std::fs::rename(&config, &hidden).unwrap();
                }
                let found = config.exists();
                if calls == 1 {
                    std::thread::sleep(Duration::from_millis(20));
                    std::fs::rename(&hidden, &config).unwrap();
                }
                Ok(found)
            });
            assert_eq!((found.unwrap(), calls), (true, 2), "{pause:?}");
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_run_is_begun_again_while_its_checkpoint_is_replaced() {
        let replaced = || Error::new(ErrorKind::Replaced("the file".to_owned()));
        let mut calls = 0;
        let done = again_if_replaced(Error::is_replaced, || {
            calls += 1;
            match calls {
                4 => Ok(calls),
                _ => Err(replaced()),
            }
        });
        assert_eq!(done.unwrap(), 4);
        let mut calls = 0;
        let failed: Result<()> = again_if_replaced(Error::is_replaced, || {
            calls += 1;
            Err(replaced())
        });
        assert!(failed.unwrap_err().is_replaced() && calls >= Attempts::LEAST);
        let mut calls = 0;
        let other: Result<()> = again_if_replaced(Error::is_replaced, || {
            calls += 1;
            Err(Error::malformed("the header"))
        });
        assert!(!other.unwrap_err().is_replaced() && calls == 1);
    }
}
