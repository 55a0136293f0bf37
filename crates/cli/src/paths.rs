//! PATH arguments: files, glob patterns and standard input.

use std::fs::File;
use std::io::{self, Seek};
use std::path::{Path, PathBuf};

use anamnesis::source::{FileSource, MmapSource};
use anamnesis::{Checkpoint, OpenOptions};

use crate::failure::Failure;

/// An input to open.
pub(crate) enum InputPath {
    /// Standard input, written as `-`.
    Stdin,
    /// A path, which may not exist.
    Path(PathBuf),
    /// A model that a search has found below a path of the arguments.
    Found {
        /// The path that was searched, within which links are followed.
        root: PathBuf,
        /// The model's.
        path: PathBuf,
    },
}

impl InputPath {
    /// Adds this input to a failure.
    pub(crate) fn locate(&self, failure: Failure) -> Failure {
        match self {
            Self::Stdin => failure.in_stdin(),
            Self::Path(path) | Self::Found { path, .. } => failure.in_file(path),
        }
    }

    /// The path; `None` for standard input.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::Stdin => None,
            Self::Path(path) | Self::Found { path, .. } => Some(path),
        }
    }

    /// The options by which it is opened.
    pub(crate) fn options(&self, options: &OpenOptions) -> OpenOptions {
        match self {
            Self::Found { root, .. } => options.clone().found_in(root),
            Self::Stdin | Self::Path(_) => options.clone(),
        }
    }

    pub(crate) fn open(&self, options: &OpenOptions, map: bool) -> anamnesis::Result<Checkpoint> {
        match self {
            Self::Stdin => standard_input(options, map),
            Self::Path(path) => options.open(path),
            Self::Found { path, .. } => self.options(options).open(path),
        }
    }
}

/// Expands the glob patterns among the arguments. An argument that exists as a path is not a pattern.
pub(crate) fn expand(arguments: &[PathBuf]) -> impl Iterator<Item = Result<InputPath, Failure>> {
    arguments.iter().flat_map(|argument| {
        if argument.as_os_str() == "-" {
            return vec![Ok(InputPath::Stdin)];
        }
        match argument.to_str() {
            Some(text)
                if text.contains(['*', '?', '['])
                    && !is_url(argument)
                    // names with brackets exist, and a link that leads nowhere is an error of its own
                    && argument.symlink_metadata().is_err() =>
            {
                matches(text)
            }
            _ => vec![Ok(InputPath::Path(argument.clone()))],
        }
    })
}

/// Like [`expand`]; with `recursive`, directories stand for the models at or below them.
pub(crate) fn expand_trees<'a>(
    arguments: &'a [PathBuf],
    recursive: bool,
    options: &'a OpenOptions,
) -> impl Iterator<Item = Result<InputPath, Failure>> + 'a {
    expand(arguments).flat_map(move |input| match input {
        Ok(InputPath::Path(root)) if recursive => models_below(root, options),
        input => Box::new(std::iter::once(input)),
    })
}

/// The models at or below a path, while they are found.
fn models_below(
    root: PathBuf,
    options: &OpenOptions,
) -> Box<dyn Iterator<Item = Result<InputPath, Failure>>> {
    let paths = anamnesis::list(&root).open_options(options.clone()).paths();
    let paths = match paths {
        Ok(paths) => paths,
        Err(error) => {
            return Box::new(std::iter::once(Err(Failure::from(error).in_file(&root))));
        }
    };
    let mut paths = paths.peekable();
    if paths.peek().is_none() {
        let failure = Failure::new(
            "no_match",
            "no model was found below this directory",
            "check the path",
        );
        return Box::new(std::iter::once(Err(failure.in_file(&root))));
    }
    Box::new(paths.map(move |path| match path {
        // the caller has named it
        Ok(path) if path == root => Ok(InputPath::Path(path)),
        Ok(path) => Ok(InputPath::Found {
            root: root.clone(),
            path,
        }),
        Err(error) => Err(Failure::from(error).in_file(&root)),
    }))
}

/// Whether an argument is a URL, which need not exist as a path, and whose `?` is no pattern.
pub(crate) fn is_url(argument: &Path) -> bool {
    let text = argument.to_str().and_then(|text| text.split_once("://"));
    text.is_some_and(|(scheme, _)| {
        // not only known schemes: an unknown one is refused by its name, and is no pattern
        !scheme.is_empty() && scheme.bytes().all(|b| b.is_ascii_alphanumeric())
    })
}

fn matches(pattern: &str) -> Vec<Result<InputPath, Failure>> {
    let found = match glob::glob(pattern) {
        Ok(found) => found,
        Err(e) => {
            let message = format!("neither an existing file nor a valid pattern: {}", e.msg);
            let failure = Failure::new("no_match", message, "check the path");
            return vec![Err(failure.in_file(Path::new(pattern)))];
        }
    };
    // as in a directory that is searched: the caller has named none of its links
    let root = fixed_part(pattern);
    let targets: Vec<_> = found
        .map(|path| match path {
            Ok(path) => Ok(InputPath::Found {
                root: root.clone(),
                path,
            }),
            Err(e) => {
                let path = e.path().to_owned();
                Err(Failure::from(
                    anamnesis::Error::from(std::io::Error::from(e)).in_file(&path),
                ))
            }
        })
        .collect();
    // a pattern without a match would leave a script with the status 0 for no work
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

/// The directory that a pattern names before its first sign.
fn fixed_part(pattern: &str) -> PathBuf {
    let has_sign = |part: &std::path::Component<'_>| {
        part.as_os_str().to_string_lossy().contains(['*', '?', '['])
    };
    let parts = Path::new(pattern).components();
    let fixed: PathBuf = parts.take_while(|part| !has_sign(part)).collect();
    match fixed.as_os_str().is_empty() {
        true => ".".into(),
        false => fixed,
    }
}

/// Opens standard input. A redirected file supports random access, so every format can be read from it. A pipe is read
/// sequentially.
fn standard_input(options: &OpenOptions, map: bool) -> anamnesis::Result<Checkpoint> {
    let file = standard_input_file()?;
    if !is_whole(&file)? {
        return options.from_pipe(file);
    }
    if map {
        return options.from_source(MmapSource::new(file)?);
    }
    options.from_source(FileSource::new(file)?)
}

/// Standard input as a file.
fn standard_input_file() -> io::Result<File> {
    // a duplicate, so that dropping the file leaves standard input open
    #[cfg(unix)]
    let owned = std::os::fd::AsFd::as_fd(&io::stdin()).try_clone_to_owned()?;
    #[cfg(windows)]
    let owned = std::os::windows::io::AsHandle::as_handle(&io::stdin()).try_clone_to_owned()?;
    Ok(File::from(owned))
}

/// Whether it is a regular file whose position is 0: a source counts offsets from the start.
fn is_whole(mut file: &File) -> io::Result<bool> {
    Ok(file.metadata()?.is_file() && file.stream_position()? == 0)
}
