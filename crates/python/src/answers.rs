//! Answers of the command's verbs, and digests of files.

use std::ffi::OsString;

use anamnesis::OpenOptions;
use anamnesis_cli::{AnswerFailure, Interrupt};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::{exception, exception_of_kind};
use crate::json::loads;
use crate::run::interruptible;
use crate::warnings::warn;

/// The document of a verb, `None` of one without; its first failure is raised. Its messages are warnings of Python.
#[pyfunction]
#[pyo3(signature = (arguments, progress = None))]
pub(crate) fn answer(
    py: Python<'_>,
    arguments: Vec<OsString>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'_, PyAny>> {
    let answer = interruptible(py, progress.as_ref(), |state| {
        let interrupt = Interrupt::by_token(&state.cancel);
        let of_run = std::sync::Arc::clone(state);
        Ok(anamnesis_cli::answer(
            arguments,
            &interrupt,
            move |progress| {
                of_run.on_progress(progress);
            },
        ))
    })?;
    if let Some(failure) = answer.failures.into_iter().next() {
        return Err(raised(py, failure));
    }
    warn(py, answer.messages)?;
    let text = String::from_utf8_lossy(&answer.output);
    // a verb without a document says on a line what it has written
    if !text.starts_with('{') {
        return Ok(py.None().into_bound(py));
    }
    loads(py, &text).map_err(|e| PyValueError::new_err(e.to_string()))
}

fn raised(py: Python<'_>, failure: AnswerFailure) -> PyErr {
    match &failure.error {
        Some(error) => exception(py, error),
        None => exception_of_kind(py, failure.kind, failure.message),
    }
}

/// The SHA-256 digests of the files of a model: paths below its directory, and digests.
#[pyfunction]
#[pyo3(signature = (path, progress = None))]
pub(crate) fn digests(
    py: Python<'_>,
    path: OsString,
    progress: Option<Py<PyAny>>,
) -> PyResult<Vec<(String, String)>> {
    let report = interruptible(py, progress.as_ref(), |state| {
        let options = OpenOptions::new().cancel(&state.cancel);
        let of_run = std::sync::Arc::clone(state);
        anamnesis::check::check_path(std::path::Path::new(&path), &options)
            .file_digests()
            .cancel(&state.cancel)
            .progress(move |progress| of_run.on_progress(progress))
            .run()
    })?;
    let files = report.files.into_iter();
    Ok(files
        .filter_map(|file| Some((file.path, file.sha256?.to_string())))
        .collect())
}
