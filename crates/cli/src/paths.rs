//! What the PATH arguments mean: files, patterns, standard input.

use std::fs::File;
use std::io::{self, Seek};
use std::path::{Path, PathBuf};

use anamnesis::source::{FileSource, Mapped, Stream};
use anamnesis::{Checkpoint, OpenOptions};

use crate::exit::Failure;

/// Something to open.
pub(crate) enum Target {
    /// `-`
    Stdin,
    /// A path, whether or not there is something.
    Path(PathBuf),
}

impl Target {
    /// Says of a failure that it happened here.
    pub(crate) fn place(&self, failure: Failure) -> Failure {
        match self {
            Self::Stdin => failure.in_stdin(),
            Self::Path(path) => failure.in_file(path),
        }
    }

    pub(crate) fn open(&self, options: &OpenOptions, map: bool) -> anamnesis::Result<Checkpoint> {
        match self {
            Self::Stdin => standard_input(options, map),
            Self::Path(path) => options.open(path),
        }
    }
}

/// Expands the patterns among the arguments.
pub(crate) fn expand(arguments: &[PathBuf]) -> impl Iterator<Item = Result<Target, Failure>> {
    arguments.iter().flat_map(|argument| {
        if argument.as_os_str() == "-" {
            return vec![Ok(Target::Stdin)];
        }
        match argument.to_str() {
            Some(text)
                if text.contains(['*', '?', '[']) && argument.symlink_metadata().is_err() =>
            {
                matches(text)
            }
            _ => vec![Ok(Target::Path(argument.clone()))],
        }
    })
}

fn matches(pattern: &str) -> Vec<Result<Target, Failure>> {
    let found = match glob::glob(pattern) {
        Ok(found) => found,
        Err(e) => {
            let message = format!("neither a file nor a pattern: {}", e.msg);
            let failure = Failure::new("no_match", message, "check the path");
            return vec![Err(failure.in_file(Path::new(pattern)))];
        }
    };
    let targets: Vec<_> = found
        .map(|path| match path {
            Ok(path) => Ok(Target::Path(path)),
            Err(e) => {
                let path = e.path().to_owned();
                Err(Failure::from(
                    anamnesis::Error::from(std::io::Error::from(e)).in_file(&path),
                ))
            }
        })
        .collect();
    if targets.is_empty() {
        let failure = Failure::new(
            "no_match",
            "no file matches this pattern",
            "check the pattern",
        );
        return vec![Err(failure.in_file(Path::new(pattern)))];
    }
    targets
}

/// A file that was redirected is as good as a path: every format can be read, and tensors too.
/// Anything else is read from front to back.
fn standard_input(options: &OpenOptions, map: bool) -> anamnesis::Result<Checkpoint> {
    if let Some(file) = redirected_file()? {
        if map {
            return Checkpoint::from_source_with(Mapped::new(file)?, options);
        }
        return Checkpoint::from_source_with(FileSource::new(file)?, options);
    }
    Checkpoint::from_source_with(Stream::new(io::stdin()), options)
}

/// Standard input as a file, if it is one and stands at its beginning.
fn redirected_file() -> io::Result<Option<File>> {
    #[cfg(unix)]
    let owned = std::os::fd::AsFd::as_fd(&io::stdin()).try_clone_to_owned()?;
    #[cfg(windows)]
    let owned = std::os::windows::io::AsHandle::as_handle(&io::stdin()).try_clone_to_owned()?;
    let mut file = File::from(owned);
    Ok((file.metadata()?.is_file() && file.stream_position()? == 0).then_some(file))
}
