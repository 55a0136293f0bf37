//! Writes templates, and describes them on one line or as JSON.

use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anamnesis::quote::escape;
use anamnesis::template::{Template, TemplateLimits};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::{Stdout, json};
use crate::shown_path::shown;
use crate::text::{ByteSize, ExactCount, plural};
use crate::written_file::WrittenFile;

/// A written template and its description.
pub(crate) struct SavedTemplate {
    path: PathBuf,
    totals: TemplateTotals,
    /// Size of the template file in bytes.
    file_nbytes: u64,
    document: Value,
}

/// Checks that a template may be written to `path`, before the work that makes it. `models` are the paths that are read.
///
/// # Errors
///
/// The errors of [`WrittenFile::checked`].
pub(crate) fn check_output(
    path: &Path,
    overwrite: bool,
    models: &[PathBuf],
) -> Result<(), Failure> {
    let is_template = |path: &Path| Template::load(path, &TemplateLimits::default()).is_ok();
    WrittenFile::checked(path, overwrite, models, is_template).map(drop)
}

/// Writes a template; as JSON if the name ends in `.json`.
pub(crate) fn save(
    template: &Template,
    path: &Path,
    overwrite: bool,
) -> Result<SavedTemplate, Failure> {
    let file_nbytes = if overwrite {
        // synced: a template may have taken a recording of hours
        template.save(path, true)
    } else {
        template.save_new(path, true)
    }?;
    let totals = TemplateTotals::of(template);
    let document = json!({
        "path": shown(path),
        "service": template.service().map(|id| id.to_string()),
        "parameters": shown_parameters(template).collect::<std::collections::BTreeMap<_, _>>(),
        "workers": totals.workers, "files": totals.files, "accesses": totals.accesses, "nbytes": totals.nbytes,
        "template_nbytes": file_nbytes,
    });
    Ok(SavedTemplate {
        path: path.to_owned(),
        totals,
        file_nbytes,
        document,
    })
}

/// The parameters of a template as they are shown: one may be a URL, whose query is a secret.
pub(super) fn shown_parameters(template: &Template) -> impl Iterator<Item = (&str, String)> {
    let parameters = template.parameters();
    parameters.map(|(key, value)| (key, shown(Path::new(value))))
}

impl SavedTemplate {
    /// Adds notes to the document.
    pub(crate) fn with_notes(mut self, notes: Vec<String>) -> Self {
        self.document["notes"] = json!(notes);
        self
    }

    /// Prints the description, as one line or as one JSON document.
    pub(crate) fn print(&self, json: bool, out: &mut Stdout) -> io::Result<()> {
        if json {
            let document = json!({"version": json::VERSION, "template": self.document});
            return json::write_line(&document, out);
        }
        writeln!(out, "{self}")
    }

    /// The description as JSON.
    pub(crate) fn document(&self) -> &Value {
        &self.document
    }
}

impl fmt::Display for SavedTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}; template of {}",
            escape(&shown(&self.path)),
            self.totals,
            plural(self.file_nbytes, "byte")
        )
    }
}

/// The totals of a template, displayed on one line.
pub(super) struct TemplateTotals {
    workers: u64,
    files: u64,
    accesses: u64,
    nbytes: u64,
}

impl TemplateTotals {
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

impl fmt::Display for TemplateTotals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            workers,
            files,
            accesses,
            nbytes,
        } = *self;
        let verb = if workers == 1 { "reads" } else { "read" };
        let (workers, files) = (plural(workers, "worker"), plural(files, "file"));
        write!(
            f,
            "{workers} {verb} {} of {files} in {}",
            ByteSize(nbytes),
            access_count(accesses)
        )
    }
}

/// `1 access`, `2 accesses`.
pub(super) fn access_count(accesses: u64) -> String {
    if accesses == 1 {
        "1 access".to_owned()
    } else {
        format!("{} accesses", ExactCount(accesses))
    }
}
