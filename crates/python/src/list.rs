//! The models of trees, caches and buckets.

use std::ffi::OsString;
use std::path::PathBuf;

use globset::Glob;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::run::interruptible;

/// A model: path, format, architecture, parameters, dtype, quantisation, bytes, context, files, error, note.
type ModelRow = (
    PathBuf,
    Option<&'static str>,
    Option<String>,
    Option<u64>,
    Option<String>,
    Option<String>,
    Option<u64>,
    Option<u64>,
    Option<u64>,
    Option<String>,
    Option<String>,
);

/// The models at and below a path. With `has`, those with a tensor or weight for each of these patterns.
#[pyfunction]
#[pyo3(signature = (root, *, has = Vec::new(), all_snapshots = false, threads = 0))]
pub(crate) fn ls(
    py: Python<'_>,
    root: OsString,
    has: Vec<String>,
    all_snapshots: bool,
    threads: usize,
) -> PyResult<Vec<ModelRow>> {
    let patterns = has
        .iter()
        .map(|pattern| {
            let glob = Glob::new(pattern);
            let text = |e: globset::Error| format!("has: {pattern:?}: {}", e.kind());
            glob.map(|glob| glob.compile_matcher())
                .map_err(|e| PyValueError::new_err(text(e)))
        })
        .collect::<PyResult<Vec<_>>>()?;
    interruptible(py, None, |state| {
        let mut list = anamnesis::list(PathBuf::from(root))
            .all_snapshots(all_snapshots)
            .threads(threads)
            .cancel(&state.cancel);
        for pattern in &patterns {
            list = list.has(|name| pattern.is_match(name));
        }
        let mut rows = Vec::new();
        for model in list.run()? {
            let model = model?;
            // a filter cannot tell of it
            if model.error.is_some() && !patterns.is_empty() {
                continue;
            }
            let error = model.error_text();
            rows.push((
                model.path,
                model.format,
                model.architecture,
                model.parameters,
                model.dtype,
                model.quantisation,
                model.nbytes,
                model.context,
                model.files,
                error,
                model.note,
            ));
        }
        Ok(rows)
    })
}
