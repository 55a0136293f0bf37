//! Templates that were made: written, and said in a line.

use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anamnesis::template::Template;
use serde_json::{Value, json};

use crate::exit::Failure;
use crate::output::text::{Bytes, Exact, clean, plural};
use crate::output::{Stdout, json};

/// A template under its name, and what there is to say about it.
pub(crate) struct Kept {
    path: PathBuf,
    said: Said,
    /// Bytes of its file.
    size: u64,
    facts: Value,
}

/// Whether a template may be written there: before it is made.
pub(crate) fn free(path: &Path, overwrite: bool) -> Result<(), Failure> {
    let refuse = |kind: io::ErrorKind| {
        Err(anamnesis::template::Error::from(io::Error::from(kind))
            .in_file(path)
            .into())
    };
    match fs::symlink_metadata(path) {
        Ok(about) if about.is_dir() => refuse(io::ErrorKind::IsADirectory),
        Ok(about) if !about.is_file() && !about.is_symlink() => {
            let failure = Failure::new(
                "io",
                "only a file is replaced, and this is a device or a pipe",
                "name a file",
            );
            Err(failure.in_file(path))
        }
        Ok(_) if !overwrite => refuse(io::ErrorKind::AlreadyExists),
        _ => Ok(()),
    }
}

/// Writes a template.
pub(crate) fn keep(template: &Template, path: &Path, overwrite: bool) -> Result<Kept, Failure> {
    if overwrite {
        template.save(path, false)
    } else {
        template.save_new(path, false)
    }?;
    let size = fs::metadata(path)
        .map_err(|e| Failure::from(anamnesis::Error::from(e).in_file(path)))?
        .len();
    let said = Said::of(template);
    let facts = json!({
        "path": path.display().to_string(),
        "service": template.service().map(|id| id.to_string()),
        "parameters": template.parameters().collect::<std::collections::BTreeMap<_, _>>(),
        "workers": said.workers, "files": said.files, "accesses": said.accesses, "nbytes": said.nbytes,
        "template_nbytes": size,
    });
    Ok(Kept {
        path: path.to_owned(),
        said,
        size,
        facts,
    })
}

impl Kept {
    /// One line, or one document.
    pub(crate) fn tell(&self, json: bool, out: &mut Stdout) -> io::Result<()> {
        if json {
            return writeln!(
                out,
                "{}",
                json!({"version": json::VERSION, "template": self.facts})
            );
        }
        writeln!(out, "{self}")
    }

    /// What programs are told.
    pub(crate) fn facts(&self) -> &Value {
        &self.facts
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}; {}",
            clean(&self.path.display().to_string()),
            self.said,
            plural(self.size, "byte")
        )
    }
}

/// A template in a line.
pub(super) struct Said {
    workers: u64,
    files: u64,
    accesses: u64,
    nbytes: u64,
}

impl Said {
    pub(super) fn of(template: &Template) -> Self {
        Self {
            workers: template.groups().len() as u64,
            files: template.files().len() as u64,
            accesses: template
                .groups()
                .iter()
                .map(|group| group.accesses().len() as u64)
                .sum(),
            nbytes: template.nbytes(),
        }
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            workers,
            files,
            accesses,
            nbytes,
        } = *self;
        let read = if workers == 1 { "reads" } else { "read" };
        let (workers, files) = (plural(workers, "worker"), plural(files, "file"));
        write!(
            f,
            "{workers} {read} {} of {files} in {}",
            Bytes(nbytes),
            counted(accesses)
        )
    }
}

/// `1 access`, `2 accesses`.
pub(super) fn counted(accesses: u64) -> String {
    if accesses == 1 {
        "1 access".to_owned()
    } else {
        format!("{} accesses", Exact(accesses))
    }
}
